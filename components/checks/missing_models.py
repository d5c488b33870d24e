"""The models that a canvas names, held against the accounts that a tenant has."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from canvas.document.document import Document, Entry
from canvas.errors import ModelError
from canvas.validation.findings import Finding, warning
from components.nodes.agent.answering import without_tools
from providers.models.chat.catalogue import resolve
from providers.models.types.chat import ModelSpec
from providers.models.vendors.accounts import Account

AGENT = "agent"


def missing(document: Document, accounts: Sequence[Account]) -> Iterator[Finding]:
    """A warning for every field that names a model which these accounts do not have, Agents' tools included.

    Likewise for every Agent with tools whose model is declared to call none.
    The stand-ins are always there. A model that has not been chosen at all is another finding.
    """
    for entry in document.entries.values():
        for field, llm_id in _named("", entry.params):
            try:
                resolve(llm_id, accounts)
            except ModelError as lacking:
                yield warning(entry, field, "unknown_model", lacking.message.rstrip("."))
        if entry.component.lower() == AGENT:
            yield from _without_tools(entry, "", entry.params, accounts)


def _without_tools(
    entry: Entry, field: str, params: Mapping[str, Any], accounts: Sequence[Account]
) -> Iterator[Finding]:
    """A warning for an Agent whose model will be offered none of its tools, and for each such sub-agent."""
    tools: Any = params.get("tools") or []
    servers, llm_id = params.get("mcp"), params.get("llm_id")
    wants_tools = bool(tools or servers) and params.get("tool_mode") != "prompt"
    spec = _found(llm_id, accounts) if wants_tools and isinstance(llm_id, str) else None
    if spec is not None and not spec.is_tools:
        yield warning(entry, field + ("tools" if tools else "mcp"), "tools_not_offered", without_tools(spec))
    listed: list[Any] = tools if isinstance(tools, list) else []
    for position, tool in enumerate(listed):
        inner = tool.get("params") if isinstance(tool, Mapping) else None
        if isinstance(inner, Mapping) and str(tool.get("component_name")).lower() == AGENT:
            yield from _without_tools(entry, f"{field}tools[{position}].params.", inner, accounts)


def _found(llm_id: str, accounts: Sequence[Account]) -> ModelSpec | None:
    """The model, if these accounts have it."""
    try:
        return resolve(llm_id, accounts)
    except ModelError:
        return None


def _named(field: str, value: Any) -> Iterator[tuple[str, str]]:
    """(field, id) of every model inside of params; `parse` has bounded their depth."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{field}.{key}" if field else str(key)
            if key == "llm_id" and isinstance(item, str) and item:
                yield inner, item
            else:
                yield from _named(inner, item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _named(f"{field}[{position}]", item)
