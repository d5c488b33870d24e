"""Parse the options that give a run its inputs: `--query`, `--input name=value`, `--inputs JSON` and limits."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn
from uuid import UUID

from canvas.budget import parse_limits
from canvas.document.json_checks import copy_storable
from canvas.errors import InvalidCanvas, InvalidRequest
from canvas.graph.uncertain_outcomes import AGAIN, ALL_QUESTIONS, HAPPENED, OUTCOME
from cli.agents.checked_canvas import CheckedCanvas
from settings import UNITS
from store.runs.external_ids import uuid_of


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """A requested turn: with a stored agent by id or title, or with the canvas of a file (`checked_canvas`)."""

    target: str
    checked_canvas: CheckedCanvas | None
    tenant: str
    options: Mapping[str, Any]  # those of the HTTP trigger: query, inputs, session_id, release


def parse_inputs(pairs: Sequence[str] | None, written: str | None) -> dict[str, Any] | None:
    """Return the inputs of one turn by field, or None. A pair overrides the same field of the JSON.

    Raises InvalidRequest for a pair without a name, and for a text that is not a JSON object or cannot be stored.
    """
    inputs = dict(_parse_object(written)) if written is not None else {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InvalidRequest(f"--input {pair!r} is not a pair. Write it as name=value.")
        inputs[name.strip()] = value
    return _check_storable(inputs) or None


def parse_outcomes(happened: Sequence[str] | None, again: Sequence[str] | None) -> dict[str, Any]:
    """Return the answers about uncertain outcomes of nodes as form fields.

    Raises InvalidRequest if a node is in both lists.
    """
    both = set(happened or ()) & set(again or ())
    if both:
        raise InvalidRequest(f"--happened and --again both name {', '.join(sorted(both))}. Use one of them.")
    answers = [*((node, HAPPENED) for node in happened or ()), *((node, AGAIN) for node in again or ())]
    return {f"{ALL_QUESTIONS if node == 'all' else node}{OUTCOME}": answer for node, answer in answers}


def parse_budget(
    tokens: int | None, calls: int | None, seconds: float | None, money: float | None, currency: str | None
) -> dict[str, Any] | None:
    """Return the limits as the HTTP API takes them, or None. Raises InvalidRequest for an invalid limit."""
    amounts = {"tokens": tokens, "calls": calls, "seconds": seconds, "money": money, "currency": currency}
    limits = {name: value for name, value in amounts.items() if value is not None}
    if not limits.keys() - {"currency"}:
        return None
    parse_limits(limits)
    return limits


def build_options(
    query: str | None,
    inputs: Mapping[str, Any] | None,
    *,
    session: str | None,
    release: bool,
    budget: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options of a start under the names of the HTTP API.

    Raises InvalidRequest for a value that cannot be stored.
    """
    options = {
        "query": query or "",
        "inputs": inputs,
        "session_id": str(parse_id(session, "session")) if session else None,
        "release": release,
        **({"budget": budget} if budget is not None else {}),
    }
    return _check_storable(options)


def parse_duration(text: str, option: str) -> timedelta:
    """Return a duration such as `30d` or `12h`. Raises InvalidRequest for any other text."""
    written = re.fullmatch(r"\s*(\d{1,6})\s*([mhd])\s*", text)
    seconds = int(written[1]) * UNITS[written[2]] if written else 0
    if seconds <= 0:
        raise InvalidRequest(
            f"{option} {text!r} is not a duration. Write minutes, hours or days, for example 30d or 12h."
        )
    return timedelta(seconds=seconds)


def parse_id(text: str, what: str) -> UUID:
    """Return an id that is written with or without hyphens. Raises InvalidRequest for any other text."""
    parsed = uuid_of(text)
    if parsed is None:
        raise InvalidRequest(f"{text!r} is not the id of a {what}.")
    return parsed


def _parse_object(written: str) -> Mapping[str, Any]:
    try:
        value = json.loads(written, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"--inputs is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest('--inputs must be a JSON object, for example {"name": "Ada"}.')
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _check_storable(value: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return copy_storable(value)
    except InvalidCanvas as defect:
        reason = defect.message.partition(". ")[2]
        raise InvalidRequest(f"The inputs cannot be stored. {reason}") from defect
