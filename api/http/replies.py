"""Replies: RAGFlow's envelopes (http-api 1.3), and values in the spelling of its wire."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi.responses import Response

from store.primitives.json_codec import encode
from store.runs.external_ids import uuid_of


def json_reply(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON reply."""
    return Response(encode(body), status, dict(headers or {}), "application/json")


def success(data: Any, **more: Any) -> Response:
    """Envelope J: always three keys; `more` are further ones."""
    return json_reply({"code": 0, "message": "success", "data": data, **more})


def result(data: Any, **more: Any) -> Response:
    """Envelope R: `data` is left out where there is none; `more` are further keys."""
    return json_reply({"code": 0, **more} if data is None else {"code": 0, "data": data, **more})


def milliseconds(moment: datetime | None) -> int | None:
    """A moment as RAGFlow's `*_time` fields have it."""
    return round(moment.timestamp() * 1000) if moment else None


def date(moment: datetime | None) -> str | None:
    """A moment as RAGFlow's `*_date` fields have it."""
    return moment.astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT") if moment else None


def iso(moment: datetime | None) -> str | None:
    """A moment on our own routes."""
    return moment.isoformat() if moment else None


NOBODYS = UUID(int=0)  # the id of nothing


def id_or_nobodys(text: Any) -> UUID:
    """The id that a client has written; where that is none, one that finds nothing."""
    return id_of(text) or NOBODYS


def id_of(text: Any) -> UUID | None:
    """The id that a client has written, with or without hyphens; None for what is none."""
    return uuid_of(text) if isinstance(text, str) else None
