"""Which components there are: a list to read, one line each.

A name on a canvas is found in any case. What a canvas stores for a component is checked against its Params here,
when the canvas is loaded, so that a worker meets no surprise.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from canvas.document import Document, Entry
from components.base import Component
from components.begin import begin
from components.categorize import categorize
from components.iteration import iteration, iteration_item
from components.llm import llm
from components.loop import exit_loop, loop, loop_item
from components.message import message
from components.string_transform import string_transform
from components.switch import switch
from components.user_fill_up import user_fill_up
from components.variable_aggregator import variable_aggregator
from components.variable_assigner import variable_assigner

_LISTED: tuple[Component[Any], ...] = (
    begin,
    categorize,
    exit_loop,
    iteration,
    iteration_item,
    llm,
    loop,
    loop_item,
    message,
    string_transform,
    switch,
    user_fill_up,
    variable_aggregator,
    variable_assigner,
)
_ALIASES: Mapping[str, Component[Any]] = {"generate": llm, "fillup": user_fill_up, "parallel": iteration}

COMPONENTS: Mapping[str, Component[Any]] = MappingProxyType(
    {**{listed.name.lower(): listed for listed in _LISTED}, **_ALIASES}
)


def find(name: str) -> Component[Any] | None:
    """The component of this name, in any case; None if there is none."""
    return COMPONENTS.get(name.lower())


def check(document: Document) -> list[tuple[str, str | None, str]]:
    """Everything wrong with the components of a document and their parameters: (node id, field, message)."""
    return [finding for entry in document.entries.values() for finding in _check_entry(entry)]


def default_outputs(entry: Entry) -> tuple[str, ...]:
    """The outputs a node has before it runs: those its canvas declares, else those of its component."""
    declared = entry.params.get("outputs")
    if "outputs" in entry.params:
        return tuple(declared) if isinstance(declared, Mapping) else ()
    found = find(entry.component)
    return found.params.default_outputs if found else ()


def _check_entry(entry: Entry) -> list[tuple[str, str | None, str]]:
    found = find(entry.component)
    if found is None:
        return [(entry.id, None, f"Can't import {entry.component}")]
    try:
        found.params.model_validate(dict(entry.params))
    except ValidationError as invalid:
        return [_finding(entry, details) for details in invalid.errors(include_url=False, include_input=False)]
    return []


def _finding(entry: Entry, details: ErrorDetails) -> tuple[str, str | None, str]:
    reason = details.get("ctx", {}).get("error", details["msg"])
    field = ".".join(str(step) for step in details["loc"]) or None
    return entry.id, field, f"{entry.name}: {reason}"
