"""Files that go into a browser and come out of it."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file that can be uploaded. `id` is the stored file's id, or the address it came from."""

    id: str
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class DownloadedFile:
    """A file that was downloaded. `path` is None for one that is not to be had, and `problem` says why."""

    name: str
    path: Path | None
    problem: str = ""
