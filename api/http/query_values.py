"""Values of query parameters that several routes have: comma lists, numbers, positions of pages, times."""

import re
from datetime import UTC, datetime
from uuid import UUID

from api.http.replies import parse_id
from canvas.errors import InvalidRequest

YEARS = range(2000, 9000)  # whose times have ids
_UNQUOTED_OFFSET = re.compile(r"(T.*) (\d\d:?\d\d)$")  # in a query, + is a blank unless it is quoted


def split_list(field: str, written: str, most: int) -> list[str]:
    """Return the entries of a comma list, without blank ones. Raises InvalidRequest for more than `most`."""
    entries = [entry.strip() for entry in written.split(",") if entry.strip()]
    if len(entries) > most:
        raise InvalidRequest(f"`{field}` may have {most} entries at most.", field=field)
    return entries


def parse_list(field: str, written: str | None, most: int) -> list[str] | None:
    """Return the entries of a comma list; None if it was not sent. Raises InvalidRequest for none or too many."""
    if written is None:
        return None
    entries = split_list(field, written, most)
    if not entries:
        raise InvalidRequest(f"`{field}` must have 1 to {most} entries, separated by commas.", field=field)
    return entries


def parse_number(field: str, written: str, most: int) -> int:
    """Return a number from 1 to `most`, in ASCII digits. Raises InvalidRequest."""
    if not (written.isascii() and written.isdigit() and len(written) < 10 and 1 <= int(written) <= most):
        raise InvalidRequest(f"`{field}` is {written[:64]!r}. Use a number from 1 to {most}.", field=field)
    return int(written)


def parse_position(field: str, written: str) -> UUID | None:
    """Return the id after or before which a page begins; None for an empty text. Raises InvalidRequest."""
    if not written:
        return None
    parsed = parse_id(written)
    if parsed is None:
        raise InvalidRequest(f"`{field}` is {written[:64]!r}. Use the `next` of a page.", field=field)
    return parsed


def parse_time(field: str, written: str) -> datetime:
    """Return a time in ISO 8601, in UTC if it names no zone. Raises InvalidRequest."""
    try:
        moment = datetime.fromisoformat(_UNQUOTED_OFFSET.sub(r"\1+\2", written.strip()))
    except ValueError:
        moment = None
    if moment is None or moment.year not in YEARS:
        raise InvalidRequest(f"`{field}` is {written[:64]!r}. Use an ISO time such as 2026-01-31T08:00Z.", field=field)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
