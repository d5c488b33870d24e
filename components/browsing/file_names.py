"""Names of files that come from pages and headers, made fit for a folder."""

import re
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

LONGEST = 180  # bytes; file systems take 255

_FOLDERS = re.compile(r"[/\\]")
_NOT_IN_A_NAME = re.compile(r'[:*?"<>|\x00-\x1f\x7f\ud800-\udfff]')
_EXTENDED = re.compile(r"filename\*\s*=\s*([\w.-]*)'[^']*'([^;\s]+)", re.IGNORECASE)
_QUOTED = re.compile(r'filename\s*=\s*"((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_BARE = re.compile(r"filename\s*=\s*([^;\s\"]+)", re.IGNORECASE)


def fit_name(name: str, default: str = "file") -> str:
    """The name without folders and without signs that file systems refuse; the default if nothing is left."""
    bare = _NOT_IN_A_NAME.sub("_", _FOLDERS.split(name)[-1]).strip(". ")
    stem, suffix = _split(bare)
    if len(suffix) > LONGEST // 4:
        stem, suffix = bare, ""
    room = LONGEST - len(suffix.encode())
    return stem.encode()[:room].decode("utf-8", "ignore") + suffix or default


def free_name(name: str, taken: Collection[str]) -> str:
    """The name, or `name_1.pdf`, `name_2.pdf` and so on where others have it already."""
    stem, suffix = _split(name)
    free, number = name, 0
    while free in taken:
        number += 1
        free = f"{stem}_{number}{suffix}"
    return free


def name_from(url: str, headers: Mapping[str, str]) -> str:
    """What a file from an address is called: as its header says, else by the end of the path, else by a number."""
    number = sha256(url.encode("utf-8", "replace")).hexdigest()[:8]
    said = _said(headers.get("content-disposition", ""))
    return fit_name(said, "") or fit_name(_end_of_path(url), "") or f"url_file_{number}.bin"


def _split(name: str) -> tuple[str, str]:
    suffix = PurePosixPath(name).suffix
    return name.removesuffix(suffix), suffix


def _said(disposition: str) -> str:
    """The name in a Content-Disposition: the extended one, else the quoted, else the bare."""
    if extended := _EXTENDED.search(disposition):
        try:
            return unquote(extended[2], encoding=extended[1] or "utf-8", errors="replace")
        except LookupError:  # no such charset
            return unquote(extended[2], errors="replace")
    if quoted := _QUOTED.search(disposition):
        return re.sub(r"\\(.)", r"\1", quoted[1])
    bare = _BARE.search(disposition)
    return bare[1] if bare else ""


def _end_of_path(url: str) -> str:
    try:
        return unquote(urlsplit(url).path).rpartition("/")[2]
    except ValueError:
        return ""
