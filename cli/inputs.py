"""What a person gives a run: `--query`, `--input name=value` and `--inputs JSON`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from uuid import UUID

from canvas.errors import InvalidRequest
from canvas.storable import copied


def inputs_of(pairs: Sequence[str], written: str | None) -> dict[str, Any] | None:
    """The inputs of one turn by field, or None if there are none; a pair wins over the same field of the JSON.

    Raises InvalidRequest for a pair without a name and for a text that is no JSON object.
    """
    inputs = dict(_object(written)) if written is not None else {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"--input {pair!r} is no pair. Write it as name=value.")
        inputs[name.strip()] = value
    return dict(copied(inputs)) or None


def query_of(query: str | None) -> str:
    """The question of one turn. Raises InvalidRequest for a text that cannot be stored."""
    return str(copied({"--query": query or ""})["--query"])


def id_of(text: str, what: str) -> UUID:
    """An id, with hyphens or without. Raises InvalidRequest for anything else."""
    try:
        return UUID(text)
    except ValueError:
        raise InvalidRequest(f"{text!r} is not the id of a {what}.") from None


def _object(written: str) -> Mapping[str, Any]:
    try:
        value = json.loads(written, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"--inputs is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest('--inputs must be a JSON object, for example {"name": "Ada"}.')
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
