"""Which of the files that a program leaves behind are taken: kinds, number and size (tools 3.3).

What is not taken costs nobody the rest; it is told by name and reason.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from providers.interfaces import ProducedFile, SkippedFile

MOST_FILES = 20
LARGEST = 10 * 1024 * 1024  # bytes of one file
MOST_BYTES = 64 * 1024 * 1024  # of all files together
MOST_SKIPPED = 50  # files that are told of although they are not taken
DEEPEST = 16  # folders in folders

NOT_PLAIN = "it is no plain file"
OTHER_KIND = "its kind is not taken"
NO_ROOM = "there are too many files, or they are too large"
BAD_NAME = "its name leads out of the folder"

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


@dataclass(frozen=True, slots=True)
class Found:
    """What a program left behind: the files that are taken, and the others."""

    files: list[ProducedFile] = field(default_factory=list[ProducedFile])
    skipped: list[SkippedFile] = field(default_factory=list[SkippedFile])

    def skip(self, name: str, reason: str) -> None:
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(SkippedFile(name, reason))


def mime_type(name: str) -> str | None:
    """What a file is by its name; None for a kind that is not taken."""
    return MIME_TYPES.get(os.path.splitext(name)[1].lower())


def is_inside(name: str) -> bool:
    """Whether a name that came from elsewhere stays below the folder that it is relative to."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\x00" not in name


def within_limits(files: Iterable[ProducedFile | SkippedFile]) -> Found:
    """The first files that number and size allow; one that is too large does not cost the others."""
    found = Found()
    room = MOST_BYTES
    for file in files:
        if isinstance(file, SkippedFile):
            found.skip(file.name, file.reason)
        elif len(found.files) < MOST_FILES and len(file.data) <= min(LARGEST, room):
            found.files.append(file)
            room -= len(file.data)
        else:
            found.skip(file.name, NO_ROOM)
    return found


def received(files: Iterable[tuple[str, bytes]]) -> Iterator[ProducedFile | SkippedFile]:
    """Files that another machine has sent, each by its name and bytes."""
    for name, data in files:
        kind = mime_type(name)
        if not is_inside(name):
            yield SkippedFile(PurePosixPath(name).name, BAD_NAME)
        elif kind is None:
            yield SkippedFile(name, OTHER_KIND)
        else:
            yield ProducedFile(name, data, kind)


def collected(folder: Path) -> Found:
    """The files below a folder that whoever filled it may have meant harm with: no links, nothing but plain files."""
    return within_limits(_plain_files(folder))


def _plain_files(folder: Path) -> Iterator[ProducedFile | SkippedFile]:
    if folder.is_symlink() or not os.access(folder, os.R_OK | os.X_OK):  # it is gone, elsewhere, or closed to us
        return
    for path, folders, names, opened in os.fwalk(folder, follow_symlinks=False):
        inside = Path(path).relative_to(folder)
        folders[:] = sorted(folders) if len(inside.parts) < DEEPEST else []
        for name in sorted(names):
            shown = (inside / name).as_posix()
            kind = mime_type(name)
            yield SkippedFile(shown, OTHER_KIND) if kind is None else _read(shown, kind, name, opened)


def _read(shown: str, kind: str, name: str, folder: int) -> ProducedFile | SkippedFile:
    """A plain file; what is a link, a device, a second name of another file, or too large is only told of."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return SkippedFile(shown, NOT_PLAIN)
    with os.fdopen(file, "rb") as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            return SkippedFile(shown, NOT_PLAIN)
        if found.st_size > LARGEST:
            return SkippedFile(shown, NO_ROOM)
        return ProducedFile(shown, opened.read(LARGEST), kind)
