"""What a browser remembers from run to run: one folder a node, used by one browser at a time.

A lock on a file beside the folder says who has it. It holds between processes and, where the folder is shared and its
file system keeps such locks, between machines; it ends with the process that holds it, however that ends.
"""

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

PATIENCE = 3.0  # seconds that one waits for another to be done
LOOK_AGAIN = 0.1  # seconds

_CHROMIUMS_OWN = ("SingletonLock", "SingletonCookie", "SingletonSocket")
_PREFERENCES = {"plugins": {"always_open_pdf_externally": True}}  # a PDF is a file to keep, not a page to look at


@asynccontextmanager
async def lent(home: Path, name: str, patience: float = PATIENCE) -> AsyncGenerator[Path | None]:
    """The profile of this name, new or as it was left; None if another has it for longer than one waits."""
    lock = await asyncio.to_thread(_opened, home, name)
    try:
        if await _locked(lock, patience):
            yield await asyncio.to_thread(prepared, home / name)
        else:
            yield None
    finally:
        os.close(lock)


def prepared(folder: Path) -> Path:
    """A folder in which Chromium starts. Its own marks of being in use go: it was not closed well, or elsewhere."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in _CHROMIUMS_OWN:
        (folder / name).unlink(missing_ok=True)
    preferences = folder / "Default" / "Preferences"
    if not preferences.exists():
        preferences.parent.mkdir(mode=0o700, exist_ok=True)
        preferences.write_text(json.dumps(_PREFERENCES))
    return folder


def _opened(home: Path, name: str) -> int:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(home / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


async def _locked(lock: int, patience: float) -> bool:
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() >= until:
                return False
            await asyncio.sleep(LOOK_AGAIN)
        else:
            return True
