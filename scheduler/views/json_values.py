"""Ids and times as replies and commands show them."""

from datetime import UTC, datetime
from uuid import UUID

from store.primitives.ids import NO_ID


def hex_of(id_: UUID | None) -> str | None:
    """Return an id in 32 hex digits; None for none, and for an id that a refused start does not have."""
    return id_.hex if id_ is not None and id_ != NO_ID else None


def iso(moment: datetime | None) -> str | None:
    """Return a time in ISO 8601."""
    return moment.isoformat() if moment is not None else None


def iso_of(moment: int | None) -> str | None:
    """Return a time in milliseconds since 1970 in ISO 8601."""
    return iso(datetime.fromtimestamp(moment / 1000, UTC)) if moment is not None else None


def milliseconds(moment: datetime | None) -> int | None:
    """Return a time in milliseconds since 1970."""
    return round(moment.timestamp() * 1000) if moment is not None else None


def elapsed_ms(first: datetime | None, last: datetime | None) -> int | None:
    """Return the milliseconds between two times; None if one of them is missing."""
    return round((last - first).total_seconds() * 1000) if first is not None and last is not None else None
