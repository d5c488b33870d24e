"""Which of the files that a program leaves behind are taken: kinds, number and size (tools 3.3)."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from providers.services import ProducedFile

MOST_FILES = 16
MOST_BYTES = 32 * 1024 * 1024  # of all files together
DEEPEST = 16  # folders in folders

MIME_TYPES: Mapping[str, str] = {
    ".csv": "text/csv",
    ".html": "text/html",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".json": "application/json",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""The kinds of files that are taken, by their extension."""


def mime_type(name: str) -> str | None:
    """What a file is by its name; None for a kind that is not taken."""
    return MIME_TYPES.get(os.path.splitext(name)[1].lower())


def within_limits(files: Iterable[ProducedFile]) -> list[ProducedFile]:
    """The first files that number and size allow; one that is too large does not cost the others."""
    taken: list[ProducedFile] = []
    room = MOST_BYTES
    for file in files:
        if len(taken) == MOST_FILES:
            break
        if len(file.data) <= room:
            taken.append(file)
            room -= len(file.data)
    return taken


def collected(folder: Path) -> list[ProducedFile]:
    """The files below a folder that whoever filled it may have meant harm with: no links, nothing but plain files."""
    return within_limits(_plain_files(folder))


def _plain_files(folder: Path) -> Iterator[ProducedFile]:
    if not os.access(folder, os.R_OK | os.X_OK):  # it is gone, or closed to us
        return
    for path, folders, names, opened in os.fwalk(folder, follow_symlinks=False):
        inside = Path(path).relative_to(folder)
        folders[:] = sorted(folders) if len(inside.parts) < DEEPEST else []
        for name in sorted(names):
            kind = mime_type(name)
            data = _contents(name, opened) if kind else None
            if kind and data is not None:
                yield ProducedFile((inside / name).as_posix(), data, kind)


def _contents(name: str, folder: int) -> bytes | None:
    """A plain file's bytes; None for a link, a device, a second name of another file, or one too large."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_size > MOST_BYTES:
            return None
        return opened.read(MOST_BYTES)
