"""A file storage that is slow or fails on request, and records transactions that are open during its calls."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar

import psycopg

from store.files.blobs import Blobs, StorageUnavailable

T = TypeVar("T")

OPEN = """
    select pid, xact_start, query from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null
      and backend_type = 'client backend'
"""
MAX_FOREIGN_TIME = 2.0
"""Seconds that transactions of other threads may take. A transaction that waits for the storage lasts longer: it cannot
end before the call returns."""


@dataclass
class Record:
    """The calls, and the last statements of transactions that were open during them."""

    calls: list[str] = field(default_factory=list[str])
    open: list[str] = field(default_factory=list[str])


@dataclass
class SlowStorage:
    """A wrapper of a storage. `slowness`: seconds of each call. `breaks_at`: number of calls that succeed."""

    inner: Blobs
    database_url: str
    slowness: float = 0.0
    breaks_at: int | None = None
    record: Record = field(default_factory=Record)

    def store(self, data: bytes) -> bytes:
        return self._call("put", lambda: self.inner.store(data))

    def store_file(self, file: BinaryIO) -> tuple[bytes, int]:
        return self._call("put_file", lambda: self.inner.store_file(file))

    def get(self, sha256: bytes) -> bytes:
        return self._call("get", lambda: self.inner.get(sha256))

    def discard(self, sha256: bytes) -> bool:
        return self._call("discard", lambda: self.inner.discard(sha256))

    def is_reachable(self) -> bool:
        return self._call("is_there", self.inner.is_reachable)

    def part(self, name: str) -> "SlowStorage":
        return SlowStorage(self.inner.part(name), self.database_url, self.slowness, self.breaks_at, self.record)

    def parts(self) -> list[str]:
        return self._call("parts", self.inner.parts)

    def clear(self) -> int:
        return self._call("clear", self.inner.clear)

    def _call(self, name: str, work: Callable[[], T]) -> T:
        self.record.open += self._waiting_transactions()
        self.record.calls.append(name)
        if self.breaks_at is not None and len(self.record.calls) > self.breaks_at:
            raise StorageUnavailable("The file storage: out of service")
        time.sleep(self.slowness)
        return work()

    def _waiting_transactions(self) -> list[str]:
        """Return the last statements of the transactions that are open now and stay open during this call."""
        with psycopg.connect(_plain(self.database_url), autocommit=True) as connection:
            opened = {(pid, since): query for pid, since, query in connection.execute(OPEN)}
            deadline = time.monotonic() + MAX_FOREIGN_TIME
            while opened and time.monotonic() < deadline:
                time.sleep(0.01)
                still = {(pid, since) for pid, since, _ in connection.execute(OPEN)}
                opened = {key: query for key, query in opened.items() if key in still}
        return list(opened.values())


def _plain(url: str) -> str:
    return url.replace("postgresql+psycopg://", "postgresql://")
