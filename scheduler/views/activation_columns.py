"""Activations as compact rows: values in the order of COLUMNS, repeated texts as numbers of a table of strings.

The words for statuses and outcomes are those of the glossary; rows of the database have earlier ones.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from canvas.budget import usage_json
from canvas.errors import InvalidRequest
from canvas.state.run_state import ActivationStatus
from store.primitives.outcome_codec import STORED_NAMES
from store.runs.activation_list import MAX_ERROR_LENGTH, ActivationListRow

COLUMNS = (
    "id", "node_id", "component", "scope", "ordinal", "order_key", "status", "outcome", "attempt", "crash_count",
    "created_at", "not_before", "enqueued_at", "started_at", "finished_at", "ended_at", "worker", "effect", "calls",
    "tokens_in", "tokens_out", "cost", "error", "routed_to", "count", "code", "stream", "cancel_requested",
)  # fmt: skip
STRING_COLUMNS = ("node_id", "component", "scope", "status", "outcome", "worker", "code")
"""Columns whose values are numbers of the table of strings, or null."""

OUTCOME_NAMES: Mapping[str, str] = {stored: kind.__name__ for kind, stored in STORED_NAMES.items()}
STATUS_NAMES: Mapping[str, str] = {each.value: each.name.lower() for each in ActivationStatus}
_STORED_STATUSES: Mapping[str, str] = {name: stored for stored, name in STATUS_NAMES.items()}
_NOT_BEGUN = (ActivationStatus.QUEUED, ActivationStatus.READY)
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_IN_ORDER = bytes.maketrans(_BASE64, bytes(sorted(b"-_" + _BASE64[:-2])))


class StringTable:
    """Texts in the order of their first use, each with its number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> list[str]:
        """Return the texts in the order of their numbers."""
        return list(self._numbers)

    def number(self, text: str | None) -> int | None:
        """Return the number of a text; None for None."""
        return None if text is None else self._numbers.setdefault(text, len(self._numbers))


def stored_status(name: str) -> str:
    """Return the status in rows for a status in requests. Raises InvalidRequest."""
    stored = _STORED_STATUSES.get(name)
    if stored is None:
        message = f'"status" has {name[:64]!r}. Use: {", ".join(_STORED_STATUSES)}.'
        raise InvalidRequest(message, field="status")
    return stored


def to_columns(
    rows: Sequence[ActivationListRow], last_finished: Mapping[str, int], strings: StringTable
) -> list[list[Any]]:
    """Return activations as compact rows, adding their texts to the table of strings.

    `last_finished`: when the last activation inside of a container finished, by the container's id.
    """
    return [_compact(row, last_finished.get(row.id), strings.number) for row in rows]


def to_object(row: ActivationListRow, last_finished: int | None) -> dict[str, Any]:
    """Return an activation as an object, with the texts themselves."""
    return dict(zip(COLUMNS, _compact(row, last_finished, _same_text), strict=True))


def _same_text(text: str | None) -> str | None:
    return text


def _compact(row: ActivationListRow, ended_at: int | None, number: Any) -> list[Any]:
    has_begun = row.status not in _NOT_BEGUN
    usage = usage_json(row.usage) if row.usage else {}
    return [
        row.id,
        number(row.node_id),
        number(row.component),
        number(row.scope),
        row.ordinal,
        order_key_text(row.order_key),
        number(STATUS_NAMES[row.status]),
        number(OUTCOME_NAMES.get(row.outcome, row.outcome) if row.outcome else None),
        row.attempt,
        row.crash_count,
        row.created_at,
        row.not_before or None,
        row.enqueued_at,
        row.started_at if has_begun else None,
        row.finished_at if has_begun else None,
        ended_at,
        number(row.worker),
        row.effect,
        usage.get("calls"),
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        usage.get("cost"),
        shorten_error(row.error, MAX_ERROR_LENGTH),
        row.routed_to,
        row.item_count,
        number(row.code),
        row.stream,
        row.cancel_requested,
    ]


def order_key_text(key: bytes) -> str:
    """Return an order key as base64 whose alphabet is in the order of ASCII, so that texts sort like the keys.

    The alphabet is `-`, the digits, upper-case letters, `_`, lower-case letters. The text has no padding.
    """
    return b64encode(key).rstrip(b"=").translate(_IN_ORDER).decode()


def shorten_error(error: str | None, most: int) -> str | None:
    """Return an error of at most so many characters, with an ellipsis if it was cut."""
    return error if error is None or len(error) <= most else f"{error[: most - 1]}…"
