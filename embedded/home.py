"""The embedded servers of a home: the process that starts them is the owner, other processes of the home are guests.

The owner restarts a killed server under the same URL, and stops both when its guests have left.

    home/embedded.lock       locked by the owner; holds the servers' URLs once they answer
    home/embedded.guests     lock shared by all guests; the owner stops the servers when it is free
    home/postgres-18/        data, password and log of PostgreSQL 18; Valkey stores nothing
"""

import fcntl
import json
import os
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from canvas.errors import Conflict, ExecutorError
from embedded import postgres, valkey
from embedded.server import START_TIMEOUT_S, ServerProcess


@dataclass(frozen=True, slots=True)
class EmbeddedServers:
    """The servers' URLs, "" for a server that was not requested. URLs contain passwords and are not in the repr."""

    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    # servers that this process has started
    owned: tuple[ServerProcess, ...] = field(default=(), repr=False, compare=False)

    def restart_ended(self) -> list[str]:
        """Restart owned servers that have ended, without waiting until they answer; return their names.

        Call it from the main thread. Raises ExecutorError if a server does not come up again, for example because its
        port is in use by now.
        """
        return [server.name for server in self.owned if server.restart_if_ended()]


@contextmanager
def run_servers(
    home: Path,
    *,
    durable: bool = True,
    need_database: bool = True,
    need_redis: bool = True,
    linger: timedelta = timedelta(seconds=10),
) -> Generator[EmbeddedServers]:
    """Start the servers of this home and stop them when the block ends, or join those of another process.

    `durable=False` turns off fsync, for tests. An owner waits up to `linger` for its guests before it stops.
    Call it from the main thread, because the servers end with the thread that started them.
    Raises ExecutorError if a server cannot run here, and Conflict if another process of this home runs only one of the
    servers that are needed, or cannot be joined.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ExecutorError("The embedded servers end with the thread that starts them. Start them from the main one.")
    home = home.expanduser().resolve()
    if not home.is_dir():
        home.mkdir(parents=True, mode=0o711)  # as root, PostgreSQL runs under another account and must get through
    give_up = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up:
        with _lock(home / "embedded.lock", fcntl.LOCK_EX) as owned:
            if owned is not None:
                with _run_as_owner(home, owned, durable, need_database, need_redis, linger) as servers:
                    yield servers
                return
        with _lock(home / "embedded.guests", fcntl.LOCK_SH) as joined:
            if joined is not None and (found := _read_announcement(home)) is not None:
                if (need_database and not found.database_url) or (need_redis and not found.redis_url):
                    raise Conflict(f"Another process runs only one of the two servers of {home}. Stop it first.")
                yield found
                return
        time.sleep(0.02)
    raise Conflict(f"Another process uses {home} and cannot be joined. Stop it, or set another EASEL_HOME.")


@contextmanager
def _lock(path: Path, kind: int) -> Generator[int | None]:
    """Lock a file until the block ends; yield its descriptor, or None if another process has a conflicting lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        locked = descriptor
    except BlockingIOError:
        locked = None
    try:
        yield locked
    finally:
        os.close(descriptor)


@contextmanager
def _run_as_owner(
    home: Path, lock: int, durable: bool, need_database: bool, need_redis: bool, linger: timedelta
) -> Generator[EmbeddedServers]:
    os.ftruncate(lock, 0)  # removes what a killed owner has left
    with ExitStack() as running:
        urls, owned = {"database_url": "", "redis_url": ""}, list[ServerProcess]()
        for is_needed, url, make in (
            (need_redis, "redis_url", lambda: valkey.valkey_server(home)),
            (need_database, "database_url", lambda: postgres.postgres_server(home, durable)),
        ):
            if is_needed:
                server = make()
                running.callback(server.stop)
                server.start_and_wait()
                urls[url] = server.url
                owned.append(server)
        os.pwrite(lock, json.dumps({"pid": os.getpid(), **urls}).encode(), 0)
        try:
            yield EmbeddedServers(**urls, owned=tuple(owned))
        finally:
            give_up = time.monotonic() + linger.total_seconds()
            while True:
                with _lock(home / "embedded.guests", fcntl.LOCK_EX) as alone:
                    if alone is not None or time.monotonic() > give_up:
                        os.ftruncate(lock, 0)  # under the lock, so that no guest joins or is reading it
                        break
                time.sleep(0.02)


def _read_announcement(home: Path) -> EmbeddedServers | None:
    """Return the servers that a living owner has announced; None while it starts or stops."""
    try:
        where = json.loads((home / "embedded.lock").read_bytes())
        os.kill(where["pid"], 0)
    except (ValueError, OSError):
        return None
    return EmbeddedServers(where["database_url"], where["redis_url"])
