"""Keys, tokens and passwords of a tool's parameters, kept out of everything that comes out of it (tools 1.8)."""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from components.templates import json_text

REDACTED = "[REDACTED]"
SHORTEST = 4  # characters; anything shorter would take ordinary words out of texts


def of(params: object, names: Iterable[str]) -> tuple[str, ...]:
    """The secrets among some parameters, in every spelling that a URL or JSON gives them, longest first."""
    values = (getattr(params, name, None) for name in names)
    spelled = {
        spelling
        for value in values
        if isinstance(value, str) and len(value) >= SHORTEST
        for spelling in (value, quote(value, safe=""), quote_plus(value), json_text(value)[1:-1])
    }
    return tuple(sorted(spelled, key=lambda spelling: (-len(spelling), spelling)))


def removed(value: Any, hidden: tuple[str, ...]) -> Any:
    """A JSON value without the secrets, in texts and in the names of members."""
    if not hidden:
        return value
    if isinstance(value, str):
        for secret in hidden:
            value = value.replace(secret, REDACTED)
        return value
    if isinstance(value, Mapping):
        return {removed(name, hidden): removed(member, hidden) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [removed(item, hidden) for item in value]
    return value
