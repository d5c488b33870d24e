"""Replies with a file, or the part of it that a client asks for (RFC 9110, section 14)."""

import re
from collections.abc import Mapping

from fastapi import Request
from fastapi.responses import Response

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


def ranged_reply(request: Request, data: bytes, digest: bytes, kind: str, headers: Mapping[str, str]) -> Response:
    """Return a file: 304 if the client has it, 206 with the part that `Range` names, else whole.

    `digest` names the content, as its ETag. A `Range` that names no part of the file is a 416; one with several parts,
    or with an `If-Range` of another content, is not obeyed, which the standard allows.
    """
    etag = f'"{digest.hex()}"'
    shown = {**headers, "ETag": etag, "Accept-Ranges": "bytes"}
    if _names(request.headers.get("if-none-match", ""), etag):
        return Response(None, 304, shown)
    written = request.headers.get("range", "")
    if not written or request.headers.get("if-range", etag) != etag:
        return Response(data, 200, shown, kind)
    found = _RANGE.fullmatch(written.replace(" ", ""))
    if found is None or found[0] == "bytes=-":
        return Response(data, 200, shown, kind)
    part = _part_of(found[1], found[2], len(data))
    if part is None:
        return Response(None, 416, {**shown, "Content-Range": f"bytes */{len(data)}"})
    first, end = part
    return Response(data[first:end], 206, {**shown, "Content-Range": f"bytes {first}-{end - 1}/{len(data)}"}, kind)


def _part_of(first: str, last: str, size: int) -> tuple[int, int] | None:
    """Return where a part begins and ends, the end not included; None if the file has no such part."""
    if not first:  # the last bytes
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    return (start, end) if start < end else None


def _names(header: str, etag: str) -> bool:
    written = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in written or etag in written
