"""Frames between a process and its limited children: a JSON head followed by raw bytes.

    8 bytes: length of the head    head (JSON)    raw bytes, with the lengths that "bytes" in the head lists

Head of a request: {"function": "module:name", "arguments", "named", "cpu_seconds", "bytes": [[position, length]]}.
Head of a reply: {"status", "value", "bytes": length or null}. Every frame that is read is checked.
"""

import json
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

VALUE, FAILURE, MEMORY = "value", "failure", "memory"  # statuses that a child sends
TIMEOUT, TOO_LARGE, ENDED = "timeout", "too large", "ended"  # statuses that the parent sets if no valid reply comes

_LENGTH = struct.Struct("!Q")
_READ_SIZE = 1024 * 1024
MAX_REQUEST_BYTES = 2**32  # bytes; protects a child from a damaged frame


class FrameTooLarge(ValueError):
    """A frame is larger than the reader's limit."""


@dataclass(frozen=True, slots=True)
class ChildReply:
    """The result of a call. `value` is the function's result, its failure, or the signal that ended the child."""

    status: str
    value: Any = None

    @property
    def is_reusable(self) -> bool:
        """Return whether the child can be used again. A child that ran out of memory may be damaged."""
        return self.status in (VALUE, FAILURE)


def encode(value: Any) -> bytes:
    """Return a value as JSON, also if it has lone surrogates or integers of more than 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()


def decode(data: bytes | bytearray) -> Any:
    """Return the value of JSON text. Raises ValueError."""
    try:
        return orjson.loads(data)
    except ValueError:
        try:
            return json.loads(data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


def to_argument(value: Any) -> str:
    """Return a value as a command line argument."""
    return json.dumps(value)


def child_options(descriptor: int, parent: int, memory: int, idle: float) -> str:
    """Return the start options of a child as a command line argument."""
    return to_argument({"descriptor": descriptor, "parent": parent, "memory": memory, "idle": idle})


def request_frame(
    function: str, arguments: Sequence[Any], named: Mapping[str, Any], *, cpu_seconds: int
) -> list[bytes | memoryview]:
    """Return the parts of a request frame. Arguments of type bytes follow the JSON head."""
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
    """Return the parts of a reply frame."""
    if isinstance(value, bytes | bytearray):
        return [*_frame_head({"status": status, "value": None, "bytes": len(value)}), bytes(value)]
    return _frame_head({"status": status, "value": value, "bytes": None})


def _frame_head(value: Any) -> list[bytes]:
    data = encode(value)
    return [_LENGTH.pack(len(data)) + data]


def read_request(connection: socket.socket) -> Mapping[str, Any] | None:
    """Read the next request, with its raw bytes as arguments; return None if the parent is gone."""
    try:
        head = decode(_read_exactly(connection, _read_length(connection, None, MAX_REQUEST_BYTES), None))
        for place, length in head["bytes"]:
            head["arguments"][place] = bytes(_read_exactly(connection, length, None))
    except EOFError:
        return None
    return head


def read_reply(connection: socket.socket, give_up: float, most: int) -> ChildReply:
    """Read a child's reply. Raises TimeoutError, OSError, FrameTooLarge, and ValueError if the reply is not valid."""
    try:
        length = _read_length(connection, give_up, most)
        head = decode(_read_exactly(connection, length, give_up))
        status, value, size = head["status"], head["value"], head["bytes"]
        if size is not None:
            if not isinstance(size, int) or not 0 <= size <= most:
                raise FrameTooLarge
            value = bytes(_read_exactly(connection, size, give_up))
    except EOFError:
        raise ConnectionResetError from None
    except (TypeError, KeyError) as error:
        raise ValueError("invalid reply") from error
    if status not in (VALUE, FAILURE, MEMORY):
        raise ValueError("invalid reply")
    return ChildReply(status, value)


def _read_length(connection: socket.socket, give_up: float | None, most: int) -> int:
    (length,) = _LENGTH.unpack(_read_exactly(connection, _LENGTH.size, give_up))
    if length > most:
        raise FrameTooLarge
    return length


def _read_exactly(connection: socket.socket, length: int, give_up: float | None) -> bytearray:
    data = bytearray()
    while len(data) < length:
        if give_up is not None:
            connection.settimeout(max(0.001, give_up - time.monotonic()))
        part = connection.recv(min(_READ_SIZE, length - len(data)))
        if not part:
            raise EOFError
        data += part
    return data
