"""The registry of components, one line each. Tools are listed in components/tools.

Names are matched without regard to case. A canvas's parameters are validated here against the component's Params when
the canvas is loaded, so that a worker never meets invalid ones.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from canvas.document.component_names import canonical
from canvas.document.document import Document, Entry
from canvas.document.secret_fields import SecretDeclaration
from components import tools
from components.base import Component
from components.nodes.agent.agent import agent
from components.nodes.agent.browser import browser
from components.nodes.agent.deep_research import deep_research
from components.nodes.data.data_operations import data_operations
from components.nodes.data.doc_generator import doc_generator
from components.nodes.data.excel_processor import excel_processor
from components.nodes.data.invoke import invoke
from components.nodes.data.list_operations import list_operations
from components.nodes.data.string_transform import string_transform
from components.nodes.data.variable_aggregator import variable_aggregator
from components.nodes.data.variable_assigner import variable_assigner
from components.nodes.flow.answer import answer
from components.nodes.flow.begin import begin
from components.nodes.flow.categorize import categorize
from components.nodes.flow.iteration import iteration, iteration_item
from components.nodes.flow.loop import exit_loop, loop, loop_item
from components.nodes.flow.message import message
from components.nodes.flow.switch import switch
from components.nodes.flow.user_fill_up import user_fill_up
from components.nodes.llm.llm import llm
from components.tools.framework.base import Tool
from components.tools.framework.tool_node import tool_component

_BUILTIN_COMPONENTS: tuple[Component[Any], ...] = (
    agent,
    answer,
    begin,
    browser,
    categorize,
    data_operations,
    deep_research,
    doc_generator,
    excel_processor,
    exit_loop,
    invoke,
    iteration,
    iteration_item,
    list_operations,
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

_TOOL_NODES = {tool.name: tool_component(tool) for tool in tools.TOOLS.values()}
_TOOLS: Mapping[str, Component[Any]] = {name: _TOOL_NODES[tool.name] for name, tool in tools.TOOLS.items()}

_by_name: dict[str, Component[Any]] = {
    **_TOOLS,
    **{listed.name.lower(): listed for listed in _BUILTIN_COMPONENTS},
    **_ALIASES,
}
COMPONENTS: Mapping[str, Component[Any]] = MappingProxyType(_by_name)


def find(name: str) -> Component[Any] | None:
    """Return the component of this name, in any case; None if there is none."""
    return COMPONENTS.get(name.lower())


def secret_fields(name: str) -> SecretDeclaration | None:
    """Return which parameters of a component are secrets; None for an unknown component."""
    found = find(canonical(name))
    return (
        SecretDeclaration(found.name, found.params.secrets, found.params.secret_headers) if found is not None else None
    )


def register_tool(tool: Tool[Any]) -> None:
    """Register a plugin's tool, as a node and as a tool of Agents (components/plugins.py).

    Raises ValueError if its name or its function's name is in use, in any case.
    """
    in_use = [name for name in (tool.name, tool.function) if canonical(name).lower() in _by_name]
    if in_use:
        raise ValueError(f"the name {in_use[0]} is already in use. Choose another one.")
    tools.add(tool)
    _by_name[tool.name.lower()] = _by_name[tool.function.lower()] = tool_component(tool)


def check(document: Document) -> list[tuple[str, str | None, str]]:
    """Return every error in the components of a document and their parameters: (node id, field, message)."""
    return [finding for entry in document.entries.values() for finding in _check_entry(entry)]


def default_outputs(entry: Entry) -> tuple[str, ...]:
    """Return the output names a node has before it runs: those its canvas declares, else its component's."""
    declared = entry.params.get("outputs")
    if "outputs" in entry.params:
        return tuple(declared) if isinstance(declared, Mapping) else ()
    found = find(entry.component)
    return found.params.default_outputs if found else ()


def possible_outputs(component: str) -> frozenset[str] | None:
    """Return the outputs that a component sets by itself, whatever the author declares; None if it may set any."""
    tool = tools.find(component)
    if tool is not None:
        return frozenset((*tool.outputs, tool.main_output)) if tool.outputs else None
    found = find(component)
    if found is None or found.params.later_outputs is None:
        return None
    return frozenset((*found.params.default_outputs, *found.params.later_outputs))


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
    return entry.id, field, f"{entry.name or entry.id}: {reason}"
