"""Build replies: RAGFlow's envelopes, and times and ids in its formats."""

import gzip
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import Request
from fastapi.responses import Response

from canvas.ids import CanvasId, SessionId
from store.primitives.json_codec import encode
from store.runs.external_ids import uuid_of

MIN_COMPRESSED_BYTES = 8 * 1024
COMPRESSION_LEVEL = 1  # rows repeat themselves: higher levels take several times as long for a tenth fewer bytes


def json_reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON reply."""
    return Response(encode(body), status, dict(headers or {}), "application/json")


def large_json_reply(request: Request, body: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON reply, compressed if it has more than 8 KiB and the client accepts gzip."""
    content = encode(body).encode()
    given = {**(headers or {}), "Vary": "Accept-Encoding"}
    if len(content) <= MIN_COMPRESSED_BYTES or not accepts_gzip(request):
        return Response(content, 200, given, "application/json")
    packed = gzip.compress(content, COMPRESSION_LEVEL, mtime=0)
    return Response(packed, 200, {**given, "Content-Encoding": "gzip"}, "application/json")


def accepts_gzip(request: Request) -> bool:
    """Return whether the client accepts a compressed reply."""
    for part in request.headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = part.partition(";")
        if coding.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def success(data: Any, **more: Any) -> Response:
    """Return RAGFlow's envelope with code, message and data in every case, and further keys."""
    return json_reply({"code": 0, "message": "success", "data": data, **more})


def result(data: Any, **more: Any) -> Response:
    """Return RAGFlow's envelope with code, `data` unless it is None, and further keys."""
    return json_reply({"code": 0, **more} if data is None else {"code": 0, "data": data, **more})


def date(moment: datetime | None) -> str | None:
    """Return a time in the format of RAGFlow's `*_date` fields."""
    return moment.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT") if moment else None


def root_of(request: Request) -> str:
    """Return the address of the API as the client sees it, without a slash at its end."""
    return str(request.base_url).rstrip("/")


UNUSED_ID = UUID(int=0)  # an id that no row has


def id_or_unused(text: Any) -> UUID:
    """Return the id in a client's text; if it is not an id, return one that no row has."""
    return parse_id(text) or UNUSED_ID


def parse_id(text: Any) -> UUID | None:
    """Return the id in a client's text, with or without hyphens; None if it is not an id."""
    return uuid_of(text) if isinstance(text, str) else None


def parse_canvas_id(text: Any) -> CanvasId | None:
    """Return the id of an agent in a client's text; None if it is not an id."""
    parsed = parse_id(text)
    return CanvasId(parsed) if parsed is not None else None


def parse_session_id(text: Any) -> SessionId | None:
    """Return the id of a session in a client's text; None if it is not an id."""
    parsed = parse_id(text)
    return SessionId(parsed) if parsed is not None else None
