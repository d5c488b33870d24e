"""Rows of replies in columns, as objects."""

from typing import Any

STRING_COLUMNS = ("node_id", "component", "scope", "status", "outcome", "worker", "code")


def rows_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a reply as objects, with texts in place of their numbers."""
    return [
        {
            name: reply["strings"][value] if name in STRING_COLUMNS and value is not None else value
            for name, value in zip(reply["columns"], row, strict=True)
        }
        for row in reply["rows"]
    ]
