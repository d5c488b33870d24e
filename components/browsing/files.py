"""Files that enter a browser (uploads) and leave it (downloads), and file names that every file system accepts."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

MAX_NAME_BYTES = 180  # bytes of a file name; file systems accept 255

_FOLDERS = re.compile(r"[/\\]")
_NOT_IN_A_NAME = re.compile(r'[:*?"<>|\x00-\x1f\x7f\ud800-\udfff]')
_EXTENDED = re.compile(r"filename\*\s*=\s*([\w.-]*)'[^']*'([^;\s]+)", re.IGNORECASE)
_QUOTED = re.compile(r'filename\s*=\s*"((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_BARE = re.compile(r"filename\s*=\s*([^;\s\"]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file that the browser may upload. `id` is the id of the stored file, or the address it was fetched from."""

    id: str
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class DownloadedFile:
    """A file that the browser downloaded. If the download failed, `path` is None and `problem` gives the reason."""

    name: str
    path: Path | None
    problem: str = ""


# -- names ------------------------------------------------------------------------------------------------------------


def fit_name(name: str, default: str = "file") -> str:
    """Return the name without folders and forbidden characters, cut to length; the default if nothing is left."""
    bare = _NOT_IN_A_NAME.sub("_", _FOLDERS.split(name)[-1]).strip(". ")
    stem, suffix = _split(bare)
    if len(suffix) > MAX_NAME_BYTES // 4:
        stem, suffix = bare, ""
    max_stem = MAX_NAME_BYTES - len(suffix.encode())
    return stem.encode()[:max_stem].decode("utf-8", "ignore") + suffix or default


def free_name(name: str, used: Collection[str]) -> str:
    """Return the name, or the first of `name_1.pdf`, `name_2.pdf` and so on that is not in use."""
    stem, suffix = _split(name)
    free, number = name, 0
    while free in used:
        number += 1
        free = f"{stem}_{number}{suffix}"
    return free


def name_from_response(url: str, headers: Mapping[str, str]) -> str:
    """Return a file name for a response: from Content-Disposition, else from the URL's path, else from a hash."""
    number = sha256(url.encode("utf-8", "replace")).hexdigest()[:8]
    declared = _declared_name(headers.get("content-disposition", ""))
    return fit_name(declared, "") or fit_name(_last_path_segment(url), "") or f"url_file_{number}.bin"


def _split(name: str) -> tuple[str, str]:
    suffix = PurePosixPath(name).suffix
    return name.removesuffix(suffix), suffix


def _declared_name(disposition: str) -> str:
    """Return the name in a Content-Disposition header: the extended form, else the quoted one, else the bare one."""
    if extended := _EXTENDED.search(disposition):
        try:
            return unquote(extended[2], encoding=extended[1] or "utf-8", errors="replace")
        except LookupError:  # unknown charset
            return unquote(extended[2], errors="replace")
    if quoted := _QUOTED.search(disposition):
        return re.sub(r"\\(.)", r"\1", quoted[1])
    bare = _BARE.search(disposition)
    return bare[1] if bare else ""


def _last_path_segment(url: str) -> str:
    try:
        return unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return ""
