"""Selects which files of a program are returned, by file type, number and size.

A file that is not returned does not affect the other files; it is listed by name and reason.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from providers.interfaces import ProducedFile, SkippedFile

MAX_FILES = 20
MAX_FILE_BYTES = 10 * 1024 * 1024  # bytes of one file
MAX_TOTAL_BYTES = 64 * 1024 * 1024  # of all files together
MAX_SKIPPED = 50  # skipped files that are listed
MAX_DEPTH = 16  # levels of nested folders

NOT_REGULAR = "it is not a regular file"
UNSUPPORTED_TYPE = "its file type is not supported"
TOO_LARGE = "there are too many files, or they are too large"
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
class FileSelection:
    """The files of a program: those that are returned, and those that are skipped."""

    files: list[ProducedFile] = field(default_factory=list[ProducedFile])
    skipped: list[SkippedFile] = field(default_factory=list[SkippedFile])

    def skip(self, name: str, reason: str) -> None:
        """List a file as skipped, up to MAX_SKIPPED of them."""
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(SkippedFile(name, reason))


def mime_type(name: str) -> str | None:
    """Return the MIME type of a file by its name; None if the type is not supported."""
    return MIME_TYPES.get(os.path.splitext(name)[1].lower())


def is_inside(name: str) -> bool:
    """Return whether a relative path from an untrusted source stays inside its folder."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\x00" not in name


def select_files(files: Iterable[ProducedFile | SkippedFile]) -> FileSelection:
    """Return the first files within the limits of number and size; a file that is too large is skipped."""
    selection = FileSelection()
    free = MAX_TOTAL_BYTES
    for file in files:
        if isinstance(file, SkippedFile):
            selection.skip(file.name, file.reason)
        elif len(selection.files) < MAX_FILES and len(file.data) <= min(MAX_FILE_BYTES, free):
            selection.files.append(file)
            free -= len(file.data)
        else:
            selection.skip(file.name, TOO_LARGE)
    return selection


def check_files(files: Iterable[tuple[str, bytes]]) -> Iterator[ProducedFile | SkippedFile]:
    """Check the names and types of files that another machine has sent as (name, bytes)."""
    for name, data in files:
        kind = mime_type(name)
        if not is_inside(name):
            yield SkippedFile(PurePosixPath(name).name, BAD_NAME)
        elif kind is None:
            yield SkippedFile(name, UNSUPPORTED_TYPE)
        else:
            yield ProducedFile(name, data, kind)


def collect_files(folder: Path) -> FileSelection:
    """Return the files below a folder with untrusted content: only regular files, no links."""
    return select_files(_regular_files(folder))


def _regular_files(folder: Path) -> Iterator[ProducedFile | SkippedFile]:
    if folder.is_symlink() or not os.access(folder, os.R_OK | os.X_OK):  # gone, a link, or not readable
        return
    for path, folders, names, opened in os.fwalk(folder, follow_symlinks=False):
        inside = Path(path).relative_to(folder)
        folders[:] = sorted(folders) if len(inside.parts) < MAX_DEPTH else []
        for name in sorted(names):
            shown = (inside / name).as_posix()
            kind = mime_type(name)
            yield SkippedFile(shown, UNSUPPORTED_TYPE) if kind is None else _read(shown, kind, name, opened)


def _read(shown: str, kind: str, name: str, folder: int) -> ProducedFile | SkippedFile:
    """Read a regular file; links, devices, hard links and files that are too large are skipped."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return SkippedFile(shown, NOT_REGULAR)
    with os.fdopen(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            return SkippedFile(shown, NOT_REGULAR)
        if status.st_size > MAX_FILE_BYTES:
            return SkippedFile(shown, TOO_LARGE)
        return ProducedFile(shown, opened.read(MAX_FILE_BYTES), kind)
