"""Files of EASEL_HOME by which commands find a running `easel up`.

    home/up.json     locked as long as `easel up` runs; contains its address once it is ready
    home/token       an API token of the local tenant, created once
    home/logs/       logs of the processes of `easel up`

The kernel releases the lock when its process ends, however it ends. An unlocked file with content is therefore a
leftover of an `easel up` that was killed.
"""

import fcntl
import json
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from canvas.errors import Conflict

STATE_FILE = "up.json"
TOKEN_FILE = "token"  # noqa: S105 (a file's name)
LOG_FOLDER = "logs"
LOCK_TRIES = 10  # tries to lock the file: a command that checks whether `easel up` runs holds the lock for a moment


@dataclass(frozen=True, slots=True)
class Up:
    """A running `easel up`. Its repr shows no secrets."""

    url: str
    pid: int
    token: str = field(repr=False)
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)


class StateFile:
    """The state file, locked by this process. `was_killed`: the previous `easel up` was killed."""

    def __init__(self, descriptor: int, *, was_killed: bool) -> None:
        self._descriptor = descriptor
        self.was_killed = was_killed

    def write(self, up: Up) -> None:
        """Write the addresses into the file, so that other commands use this `easel up`."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(asdict(up)).encode(), 0)


@contextmanager
def lock_home(home: Path) -> Generator[StateFile]:
    """Lock the state file of this home until the block ends. Raises Conflict if another `easel up` holds it."""
    home.mkdir(parents=True, exist_ok=True, mode=0o711)  # passable, as the embedded servers want it
    descriptor = os.open(home / STATE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _try_lock(descriptor):
            up = find_running_up(home)
            where = f" at {up.url} (process {up.pid})" if up is not None else ", and is not ready yet"
            raise Conflict(f"`easel up` already runs for {home}{where}. Stop it, or set EASEL_HOME to another folder.")
        was_killed = os.fstat(descriptor).st_size > 0
        os.ftruncate(descriptor, 0)
        try:
            yield StateFile(descriptor, was_killed=was_killed)
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock the file; return False if another process holds it for longer than a check takes."""
    for _ in range(LOCK_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def find_running_up(home: Path) -> Up | None:
    """Return the `easel up` that runs for this home and is ready, or None."""
    try:
        descriptor = os.open(home / STATE_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # not locked: a leftover
        return Up(**json.loads(os.pread(descriptor, 65536, 0)))
    except (ValueError, TypeError):  # `easel up` is still starting, or is another release
        return None
    finally:
        os.close(descriptor)


def read_token(home: Path) -> str | None:
    """Return the API token stored in this home, or None."""
    with suppress(OSError, UnicodeDecodeError):
        return (home / TOKEN_FILE).read_text().strip() or None
    return None


def write_token(home: Path, token: str) -> None:
    """Store an API token in this home, readable by this user only."""
    draft = home / f"{TOKEN_FILE}.new"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    draft.replace(home / TOKEN_FILE)
