"""What commands of one EASEL_HOME know of each other: the file in which a running `easel up` says where it is.

    home/up.json     locked for as long as `easel up` runs; where it listens, once it is ready
    home/token       an API token of the local tenant, made once
    home/logs/       what the processes of `easel up` log

The lock goes away with the process that holds it, however it ends, so a file without one is a leftover.
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

STATE = "up.json"
TOKEN = "token"  # noqa: S105 (a file's name)
LOGS = "logs"
LOOKS = 10  # whoever wants to know whether `easel up` runs holds the lock for a moment


@dataclass(frozen=True, slots=True)
class Up:
    """A running `easel up`. What holds a secret does not show in its repr."""

    url: str
    pid: int
    token: str = field(repr=False)
    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)


class Announcement:
    """The state file, held by this process. `follows_killed`: another `easel up` held it, and did not end in order."""

    def __init__(self, descriptor: int, *, follows_killed: bool) -> None:
        self._descriptor = descriptor
        self.follows_killed = follows_killed

    def announce(self, up: Up) -> None:
        """Tell other commands that everything runs, and where."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, json.dumps(asdict(up)).encode(), 0)


@contextmanager
def held(home: Path) -> Generator[Announcement]:
    """Be the `easel up` of this home until the block ends. Raises Conflict if another one is."""
    home.mkdir(parents=True, exist_ok=True, mode=0o711)  # passable, as the embedded servers want it
    descriptor = os.open(home / STATE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _is_locked(descriptor):
            up = running_up(home)
            where = f" at {up.url} (process {up.pid})" if up is not None else ", and is not ready yet"
            raise Conflict(f"`easel up` runs already for {home}{where}. Stop it, or set EASEL_HOME to another folder.")
        follows_killed = os.fstat(descriptor).st_size > 0
        os.ftruncate(descriptor, 0)
        try:
            yield Announcement(descriptor, follows_killed=follows_killed)
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Lock the file for us; False if somebody has it for longer than the blink of an eye that a look takes."""
    for _ in range(LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(0.02)
    return False


def running_up(home: Path) -> Up | None:
    """The `easel up` that runs for this home and is ready; None if there is none."""
    try:
        descriptor = os.open(home / STATE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None  # nobody holds it: a leftover
        return Up(**json.loads(os.pread(descriptor, 65536, 0)))
    except (ValueError, TypeError):  # it is starting, or of another release
        return None
    finally:
        os.close(descriptor)


def kept_token(home: Path) -> str | None:
    """The token that was kept in this home; None if there is none."""
    with suppress(OSError, UnicodeDecodeError):
        return (home / TOKEN).read_text().strip() or None
    return None


def keep_token(home: Path, token: str) -> None:
    """Keep a token for this user's eyes only."""
    draft = home / f"{TOKEN}.new"
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token)
    draft.replace(home / TOKEN)
