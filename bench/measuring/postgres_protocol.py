"""An observer of PostgreSQL's protocol: counts statements by what they do, and transactions.

It parses message by message, so statements count the same one by one and in a pipeline. Of a connection with TLS only
bytes and round trips are counted.
"""

import re
import struct
from collections.abc import Iterator

from bench.measuring.tally import RoundTripCounter, Tally

TLS_REQUEST, GSS_REQUEST = 80877103, 80877104  # each is answered by one byte that is not a message
HEAD = 5  # bytes before a message's body: type and length
ENDS = ("COMMIT", "ROLLBACK")  # tags that end a transaction

_VERB = re.compile(r"^[\s(]*(?:--[^\n]*\n\s*)*([a-z]+)", re.IGNORECASE)
_WRITES = re.compile(
    r"(?<!for )(?<!key )(?<!do )\b(insert\s+into|delete\s+from|update)\s+(?:only\s+)?\"?([a-z_]\w*)", re.IGNORECASE
)
_READS = re.compile(r"\b(?:from|join)\s+(?:(?:only|lateral)\s+)?+\"?([a-z_]\w*+)(?!\()", re.IGNORECASE)
_PARTITION = re.compile(r"_p\d{4}w\d{2}\b")
_LOCKS = re.compile(r"\bfor\s+(?:no\s+key\s+)?(?:update|share)\b", re.IGNORECASE)


def statement_label(sql: str) -> str:
    """Return a short label of a statement: "update activations", "select runs, locked", "begin".

    Several writes in one statement are joined, each once and in order: "update runs + insert scopes". The name of a
    partition is replaced by that of its table.
    """
    sql = _PARTITION.sub("", sql)
    verb = _VERB.match(sql)
    if verb is None:
        return "nothing"
    first = verb[1].lower()
    if first not in ("select", "insert", "update", "delete", "with"):
        return first
    if written := {f"{verb.split()[0]} {table}".lower(): None for verb, table in _WRITES.findall(sql)}:
        return " + ".join(written)
    read = _READS.search(sql)
    return " ".join(filter(None, ("select", read and read[1].lower()))) + (", locked" if _LOCKS.search(sql) else "")


class PostgresObserver(RoundTripCounter):
    """Observes one connection to PostgreSQL."""

    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self._requests, self._responses = bytearray(), bytearray()
        self._has_started = False
        self._bytes_without_message = 0
        self._is_encrypted = False
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._has_completed_statement = False  # since the last transaction ended

    def on_request(self, data: bytes) -> None:
        super().on_request(data)
        if self._is_encrypted:
            return
        self._requests += data
        if not self._has_started:
            self._parse_startup()
        if self._has_started:
            for kind, body in _take_messages(self._requests):
                self.tally.messages += 1
                self._on_client_message(kind, body)

    def on_response(self, data: bytes) -> None:
        super().on_response(data)
        if self._is_encrypted:
            return
        self._responses += data
        while self._bytes_without_message and self._responses:
            self._bytes_without_message -= 1
            self._is_encrypted = self._responses.pop(0) != ord("N")
            if self._is_encrypted:
                return
        for kind, body in _take_messages(self._responses):
            self._on_server_message(kind, body)

    def _parse_startup(self) -> None:
        """Parse the client's first messages, which have a length and no type."""
        while not self._has_started and len(self._requests) >= 8:
            length, code = struct.unpack_from("!ii", self._requests)
            if len(self._requests) < length:
                return
            del self._requests[:length]
            self.tally.messages += 1
            if code in (TLS_REQUEST, GSS_REQUEST):
                self._bytes_without_message += 1
            else:
                self._has_started = True

    def _on_client_message(self, kind: bytes, body: bytes) -> None:
        match kind:
            case b"P":
                name, sql, *_ = body.split(b"\0", 2)
                self._prepared[name] = statement_label(sql.decode(errors="replace"))
            case b"B":
                portal, name, *_ = body.split(b"\0", 2)
                self._portals[portal] = self._prepared.get(name, "unknown")
            case b"E":
                self.tally.statements[self._portals.get(body.partition(b"\0")[0], "unknown")] += 1
            case b"Q":
                self.tally.statements[statement_label(body.rstrip(b"\0").decode(errors="replace"))] += 1
            case _:
                pass

    def _on_server_message(self, kind: bytes, body: bytes) -> None:
        """Count transactions: by the tag of their end, and without BEGIN when the server is idle again."""
        if kind == b"C":
            has_ended = body.startswith(tuple(end.encode() for end in ENDS))
            self.tally.transactions += has_ended
            self._has_completed_statement = not has_ended
        elif kind == b"Z" and body == b"I" and self._has_completed_statement:
            self.tally.transactions += 1
            self._has_completed_statement = False


def _take_messages(buffer: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Remove complete messages from the front of a buffer; yield type and body of each."""
    while len(buffer) >= HEAD:
        (length,) = struct.unpack_from("!i", buffer, 1)  # of the body and of itself
        if len(buffer) < length + 1:
            return
        kind, body = bytes(buffer[:1]), bytes(buffer[HEAD : length + 1])
        del buffer[: length + 1]
        yield kind, body
