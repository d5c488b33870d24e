"""The built files of the web pages, read once when the application starts: no request reaches the file system."""

import gzip
import mimetypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

DIST = Path(__file__).resolve().parents[2] / "viewer" / "dist"
"""Where the build lies, in a checkout as in an installed wheel."""

INDEX = "index.html"
START = "start.js"
HASHED = "assets/"
"""Files below this folder have a hash of their contents in their names, so browsers may keep them for ever."""

BASE = '<base href="/ui/" />'
MIN_COMPRESSED_BYTES = 1024
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
BUILD_DIGITS = 12


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file with its compressed contents; `compressed` is None where that saves nothing."""

    content: bytes
    compressed: bytes | None
    media_type: str
    etag: str
    cache_control: str


@dataclass(frozen=True, slots=True)
class PageFiles:
    """All files by their path below `/ui/`, and the document that every page address gives."""

    files: Mapping[str, PageFile]
    index: bytes


@cache
def find_build(folder: Path = DIST) -> str | None:
    """Return the id of the build: 12 hex digits of the SHA-256 of its files and their names. None: there is none."""
    if not (folder / INDEX).is_file():
        return None
    digest = sha256()
    for file in sorted(each for each in folder.rglob("*") if each.is_file()):
        digest.update(f"{file.relative_to(folder).as_posix()}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:BUILD_DIGITS]


def pages_are_served(*, is_on: bool) -> bool:
    """Return whether this process serves pages: they are built, and EASEL_VIEWER is on."""
    return is_on and find_build() is not None


def read_page_files(folder: Path, base_path: str) -> PageFiles | None:
    """Read the build in a folder for an application below a path ("" or "/easel"); None if the folder has no build."""
    if not (folder / INDEX).is_file():
        return None
    contents = {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
    index = contents.pop(INDEX).replace(BASE.encode(), f'<base href="{base_path}/ui/" />'.encode())
    files = {name: _page_file(name, content) for name, content in contents.items()}
    return PageFiles(files, index)


def _page_file(name: str, content: bytes) -> PageFile:
    packed = gzip.compress(content, 9, mtime=0) if len(content) >= MIN_COMPRESSED_BYTES else content
    suffix = Path(name).suffix
    media_type = MEDIA_TYPES.get(suffix) or mimetypes.types_map.get(suffix, "application/octet-stream")
    return PageFile(
        content,
        packed if len(packed) < len(content) else None,
        f"{media_type}; charset=utf-8" if media_type.startswith(("text/", "image/svg")) else media_type,
        f'W/"{sha256(content).hexdigest()[:32]}"',  # weak: it names the contents with and without compression
        _cache_control(name),
    )


def _cache_control(name: str) -> str:
    if name.startswith(HASHED):
        return "public, max-age=31536000, immutable"
    return "no-store" if name == START else "no-cache"
