"""The built pages that browsers show, if there are any."""

import hashlib
from functools import cache
from pathlib import Path

BUILD = Path(__file__).resolve().parents[2] / "viewer" / "dist"
"""Where a build of the pages lies, in a checkout and in an installation."""


@cache
def find_build(folder: Path = BUILD) -> str | None:
    """Return the id of the build: 12 hex digits of the SHA-256 of its files and their names. None: there is none."""
    if not (folder / "index.html").is_file():
        return None
    digest = hashlib.sha256()
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(f"{file.relative_to(folder).as_posix()}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def pages_are_served(*, is_on: bool) -> bool:
    """Return whether this process serves pages: they are built, and EASEL_VIEWER is on."""
    return is_on and find_build() is not None
