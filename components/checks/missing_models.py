"""Warnings about models that a canvas names and its tenant does not have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canvas.document.document import Document, Entry
from canvas.errors import ModelError
from canvas.validation.findings import Finding, warning
from components.nodes.agent.answering import explain_missing_tools
from providers.models.chat.catalogue import resolve
from providers.models.types.chat import ModelSpec
from providers.models.vendors.accounts import VendorAccount

AGENT = "agent"


def find_missing(document: Document, accounts: Sequence[VendorAccount]) -> Iterator[Finding]:
    """Yield a warning for every field that names a model which these accounts do not have, in Agents' tools as well.

    Also yield one for every Agent with tools whose model is declared to support no tool calls.
    The built-in models are always available. A model that has not been chosen is a different finding.
    """
    for entry in document.entries.values():
        for field, llm_id in _iter_models("", entry.params):
            try:
                resolve(llm_id, accounts)
            except ModelError as error:
                yield warning(entry, field, "unknown_model", error.message.rstrip("."))
        if entry.component.lower() == AGENT:
            yield from _without_tools(entry, "", entry.params, accounts)


def _without_tools(
    entry: Entry, field: str, params: Mapping[str, Any], accounts: Sequence[VendorAccount]
) -> Iterator[Finding]:
    """Yield a warning for an Agent whose model will not be offered its tools, and for each such sub-agent."""
    tools: Any = params.get("tools") or []
    servers, llm_id = params.get("mcp"), params.get("llm_id")
    offers_tools = bool(tools or servers) and params.get("tool_mode") != "prompt"
    spec = _find_model(llm_id, accounts) if offers_tools and isinstance(llm_id, str) else None
    if spec is not None and not spec.is_tools:
        yield warning(entry, field + ("tools" if tools else "mcp"), "tools_not_offered", explain_missing_tools(spec))
    listed: list[Any] = tools if isinstance(tools, list) else []
    for position, tool in enumerate(listed):
        inner = tool.get("params") if isinstance(tool, Mapping) else None
        if isinstance(inner, Mapping) and str(tool.get("component_name")).lower() == AGENT:
            yield from _without_tools(entry, f"{field}tools[{position}].params.", inner, accounts)


def _find_model(llm_id: str, accounts: Sequence[VendorAccount]) -> ModelSpec | None:
    """Return the model, or None if these accounts do not have it."""
    try:
        return resolve(llm_id, accounts)
    except ModelError:
        return None


def _iter_models(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield (field, id) of every model inside params, whose depth `parse` has limited."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{field}.{key}" if field else str(key)
            if key == "llm_id" and isinstance(item, str) and item:
                yield inner, item
            else:
                yield from _iter_models(inner, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _iter_models(f"{field}[{position}]", item)
