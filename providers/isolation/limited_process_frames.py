"""What goes between a process and its limited children: frames of JSON, with raw bytes beside it.

    8 bytes: length of the head    head (JSON)    the bytes that the head counts in "bytes"

A request's head is {"function": "module:name", "arguments", "named", "cpu_seconds", "bytes": [[position, length]]}, a
reply's {"status", "value", "bytes": length or null}. Nothing that is read here is trusted to be well formed.
"""

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

VALUE, FAILURE, MEMORY = "value", "failure", "memory"  # what a child replies
TIMEOUT, TOO_LARGE, ENDED = "timeout", "too large", "ended"  # what its parent makes of a reply that does not come

_LENGTH = struct.Struct("!Q")
_PIECE = 1024 * 1024
LONGEST_REQUEST = 2**32  # bytes; a child trusts its parent, but not a damaged frame


class TooLarge(ValueError):
    """A frame is larger than its reader takes."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a call. `value`: its result, the failure, or the signal that has ended the child."""

    status: str
    value: Any = None

    @property
    def is_reusable(self) -> bool:
        """Whether the child that gave it can do other work. One that has run out of memory may be damaged."""
        return self.status in (VALUE, FAILURE)


def encode(value: Any) -> bytes:
    """A value as JSON; also one with halves of surrogate pairs, or numbers of more than 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


def decode(data: bytes | bytearray) -> Any:
    """The value of some JSON. Raises ValueError."""
    try:
        return orjson.loads(data)
    except ValueError:
        try:
            return json.loads(data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def text(value: Any) -> str:
    """A value as an argument of a command line."""
    return json.dumps(value)


def options(descriptor: int, parent: int, memory: int, idle: float) -> str:
    """What a child is told when it is started."""
    return text({"descriptor": descriptor, "parent": parent, "memory": memory, "idle": idle})


def request_frame(
    function: str, arguments: Sequence[Any], named: Mapping[str, Any], *, cpu_seconds: int
) -> list[bytes | memoryview]:
    """A request. Arguments that are bytes go beside the JSON."""
    raw = [(place, value) for place, value in enumerate(arguments) if isinstance(value, bytes | bytearray)]
    head = encode(
        {
            "function": function,
            "arguments": [None if isinstance(value, bytes | bytearray) else value for value in arguments],
            "named": named,
            "cpu_seconds": cpu_seconds,
            "bytes": [[place, len(value)] for place, value in raw],
        }
    )
    return [_LENGTH.pack(len(head)) + head, *(memoryview(value) for _, value in raw)]


def reply_frame(status: str, value: Any) -> list[bytes]:
    """A reply."""
    if isinstance(value, bytes | bytearray):
        return [*_head({"status": status, "value": None, "bytes": len(value)}), bytes(value)]
    return _head({"status": status, "value": value, "bytes": None})


def _head(value: Any) -> list[bytes]:
    data = encode(value)
    return [_LENGTH.pack(len(data)) + data]


def read_request(connection: socket.socket) -> Mapping[str, Any] | None:
    """The next request, its bytes put in their places; None if the parent is gone."""
    try:
        head = decode(_exactly(connection, _length(connection, None, LONGEST_REQUEST), None))
        for place, length in head["bytes"]:
            head["arguments"][place] = bytes(_exactly(connection, length, None))
    except EOFError:
        return None
    return head


def read_reply(connection: socket.socket, give_up: float, most: int) -> Reply:
    """The reply that a child sends. Raises TimeoutError, OSError, TooLarge, and ValueError for what is none."""
    try:
        length = _length(connection, give_up, most)
        head = decode(_exactly(connection, length, give_up))
        status, value, size = head["status"], head["value"], head["bytes"]
        if size is not None:
            if not isinstance(size, int) or not 0 <= size <= most:
                raise TooLarge
            value = bytes(_exactly(connection, size, give_up))
    except EOFError:
        raise ConnectionResetError from None
    except (TypeError, KeyError) as error:
        raise ValueError("no reply") from error
    if status not in (VALUE, FAILURE, MEMORY):
        raise ValueError("no reply")
    return Reply(status, value)


def _length(connection: socket.socket, give_up: float | None, most: int) -> int:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, give_up))
    if length > most:
        raise TooLarge
    return length


def _exactly(connection: socket.socket, length: int, give_up: float | None) -> bytearray:
    data = bytearray()
    while len(data) < length:
        if give_up is not None:
            connection.settimeout(max(0.001, give_up - time.monotonic()))
        part = connection.recv(min(_PIECE, length - len(data)))
        if not part:
            raise EOFError
        data += part
    return data
