"""The servers of a home: the process that starts them owns them, further processes of the same home are its guests.

The owner starts one that was killed again under the same URL, and stops both when its guests have left.

    home/embedded.lock       held by the owner; says where the servers are, once they answer
    home/embedded.guests     held, shared, by every guest; the owner stops its servers when they have left
    home/postgres-18/        data, password and log of PostgreSQL 18; Valkey keeps nothing
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
from embedded.server import PATIENCE_S, Server


@dataclass(frozen=True, slots=True)
class Services:
    """Where the servers listen. An URL nobody asked for is empty; none shows in a repr, for it holds a password."""

    database_url: str = field(default="", repr=False)
    redis_url: str = field(default="", repr=False)
    owned: tuple[Server, ...] = field(default=(), repr=False, compare=False)  # those that this process has started

    def tend(self) -> list[str]:
        """Start again what has ended of the servers we own, without waiting until they answer; their names.

        From the main thread. Raises ExecutorError if one does not come up again: perhaps its port is taken by now.
        """
        return [server.name for server in self.owned if server.tend()]


@contextmanager
def services(
    home: Path,
    *,
    durable: bool = True,
    need_database: bool = True,
    need_redis: bool = True,
    linger: timedelta = timedelta(seconds=10),
) -> Generator[Services]:
    """The servers of this home: started here and stopped at the end, or those that another process has started.

    `durable=False` leaves out every fsync, for tests. An owner waits `linger` for its guests before it stops.
    To be called from the main thread, since the servers die with the thread that started them.
    Raises ExecutorError where no server can be run, Conflict where another process runs them, but not as asked.
    """
    if threading.current_thread() is not threading.main_thread():
        raise ExecutorError("The embedded servers die with the thread that starts them: start them from the main one.")
    home = home.expanduser().resolve()
    if not home.is_dir():
        home.mkdir(parents=True, mode=0o711)  # passable, so that a root's PostgreSQL reaches its data below
    give_up = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up:
        with _lock(home / "embedded.lock", fcntl.LOCK_EX) as owned:
            if owned is not None:
                with _started(home, owned, durable, need_database, need_redis, linger) as servers:
                    yield servers
                return
        with _lock(home / "embedded.guests", fcntl.LOCK_SH) as joined:
            if joined is not None and (found := _announced(home)) is not None:
                if (need_database and not found.database_url) or (need_redis and not found.redis_url):
                    raise Conflict(f"Another process runs only one of the two servers of {home}. Stop it first.")
                yield found
                return
        time.sleep(0.02)
    raise Conflict(f"Another process holds {home}, out of reach from here. Stop it, or use an EASEL_HOME of your own.")


@contextmanager
def _lock(path: Path, kind: int) -> Generator[int | None]:
    """The descriptor of a file locked in this way, or None if somebody else's lock forbids it."""
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
def _started(
    home: Path, lock: int, durable: bool, need_database: bool, need_redis: bool, linger: timedelta
) -> Generator[Services]:
    os.ftruncate(lock, 0)  # what an owner that was killed left there
    with ExitStack() as running:
        urls, owned = {"database_url": "", "redis_url": ""}, list[Server]()
        for wanted, url, make in (
            (need_redis, "redis_url", lambda: valkey.server(home)),
            (need_database, "database_url", lambda: postgres.server(home, durable)),
        ):
            if wanted:
                server = make()
                running.callback(server.stop)
                server.start_and_wait()
                urls[url] = server.url
                owned.append(server)
        os.pwrite(lock, json.dumps({"pid": os.getpid(), **urls}).encode(), 0)
        try:
            yield Services(**urls, owned=tuple(owned))
        finally:
            give_up = time.monotonic() + linger.total_seconds()
            while True:
                with _lock(home / "embedded.guests", fcntl.LOCK_EX) as alone:
                    if alone is not None or time.monotonic() > give_up:
                        os.ftruncate(lock, 0)  # none joins from now on, and none is just reading it
                        break
                time.sleep(0.02)


def _announced(home: Path) -> Services | None:
    """What a living owner has announced; None while it starts or stops."""
    try:
        where = json.loads((home / "embedded.lock").read_bytes())
        os.kill(where["pid"], 0)
    except (ValueError, OSError):
        return None
    return Services(where["database_url"], where["redis_url"])
