"""Selects which files of a program are returned, by file type, number and size.

A file that is not returned does not affect the other files; it is listed by name and reason.
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
MOST_SKIPPED = 50  # skipped files that are listed
DEEPEST = 16  # levels of nested folders

NOT_PLAIN = "it is not a regular file"
OTHER_KIND = "its file type is not supported"
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
"""The supported file types, by extension."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files of a program: those that are returned, and those that are skipped."""

    files: list[ProducedFile] = field(default_factory=list[ProducedFile])
    skipped: list[SkippedFile] = field(default_factory=list[SkippedFile])

    def skip(self, name: str, reason: str) -> None:
        """List a file as skipped, up to MOST_SKIPPED of them."""
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(SkippedFile(name, reason))


def mime_type(name: str) -> str | None:
    """Return the MIME type of a file by its name; None if the type is not supported."""
    return MIME_TYPES.get(os.path.splitext(name)[1].lower())


def is_inside(name: str) -> bool:
    """Return whether a relative path from an untrusted source stays inside its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\x00" not in name


def within_limits(files: Iterable[ProducedFile | SkippedFile]) -> Found:
    """Return the first files within the limits of number and size; a file that is too large is skipped."""
    selection = Found()
    free = MOST_BYTES
    for file in files:
        if isinstance(file, SkippedFile):
            selection.skip(file.name, file.reason)
        elif len(selection.files) < MOST_FILES and len(file.data) <= min(LARGEST, free):
            selection.files.append(file)
            free -= len(file.data)
        else:
            selection.skip(file.name, NO_ROOM)
    return selection


def received(files: Iterable[tuple[str, bytes]]) -> Iterator[ProducedFile | SkippedFile]:
    """Check the names and types of files that another machine has sent as (name, bytes)."""
    for name, data in files:
        kind = mime_type(name)
        if not is_inside(name):
            yield SkippedFile(PurePosixPath(name).name, BAD_NAME)
        elif kind is None:
            yield SkippedFile(name, OTHER_KIND)
        else:
            yield ProducedFile(name, data, kind)


def collected(folder: Path) -> Found:
    """Return the files below a folder with untrusted content: only regular files, no links."""
    return within_limits(_plain_files(folder))


def _plain_files(folder: Path) -> Iterator[ProducedFile | SkippedFile]:
    if folder.is_symlink() or not os.access(folder, os.R_OK | os.X_OK):  # gone, a link, or not readable
        return
    for path, folders, names, opened in os.fwalk(folder, follow_symlinks=False):
        inside = Path(path).relative_to(folder)
        folders[:] = sorted(folders) if len(inside.parts) < DEEPEST else []
        for name in sorted(names):
            shown = (inside / name).as_posix()
            kind = mime_type(name)
            yield SkippedFile(shown, OTHER_KIND) if kind is None else _read(shown, kind, name, opened)


def _read(shown: str, kind: str, name: str, folder: int) -> ProducedFile | SkippedFile:
    """Read a regular file; links, devices, hard links and files that are too large are skipped."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return SkippedFile(shown, NOT_PLAIN)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return SkippedFile(shown, NOT_PLAIN)
        if status.st_size > LARGEST:
            return SkippedFile(shown, NO_ROOM)
        return ProducedFile(shown, opened.read(LARGEST), kind)
