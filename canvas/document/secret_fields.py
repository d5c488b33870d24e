"""Secrets in a document: parameters that components declare as secret, in entries, tools of Agents, and the drawing.

A value that is a reference as a whole (`{env.key}`, `Bearer {env.key}`) is not a secret. In a parameter, a reference
may be written without braces (`env.key`) if the document has what it names; in a header it may not, since headers are
filled in like texts. This module finds secrets; the `change` function of its caller encrypts, decrypts or masks them.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from canvas.document import defaults, references

HARMLESS_HEADERS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "user-agent",
    }
)
"""Names of HTTP headers, in lower case, whose values are not secret. Every other header may contain a secret."""

_SCHEME = re.compile(r"(?:api-?key|basic|bearer|digest|key|negotiate|oauth|token)[ \t]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SecretDeclaration:
    """A component's secret parameters: secrets by dotted name, and parameters that are HTTP headers."""

    component: str
    fields: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SecretPosition:
    """The position of a secret. `field` is a dotted name; for a tool of an Agent it is the tool's own field."""

    node: str
    name: str
    component: str
    field: str

    def __str__(self) -> str:
        node = f'Node "{self.name}" ({self.node})' if self.name else f"Node {self.node}"
        return f'{node}, "{self.field}" of {self.component}'


Declarations = Callable[[str], SecretDeclaration | None]
"""Returns the declared secrets of a component by its name; None for an unknown component."""

Change = Callable[[SecretPosition, Any], Any]
"""Returns the new value of a secret from its position and its value."""


@dataclass(frozen=True, slots=True)
class _ChangePass:
    """One pass over the secrets of a document: the declarations, the change, and the names that the document has."""

    declared: Declarations
    change: Change
    nodes: frozenset[str] = frozenset()
    globals: frozenset[str] = frozenset()

    def is_reference(self, value: Any) -> bool:
        """Whether a value as a whole is a reference to a node or global of the document."""
        ref = references.parse(value) if isinstance(value, str) else None
        return ref is not None and (ref.root in self.globals if ref.node is None else ref.node in self.nodes)


def change_secrets(document: Mapping[str, Any], declared: Declarations, change: Change) -> dict[str, Any]:
    """Return a copy of the document with every secret changed."""
    found = dict(document)
    through = _ChangePass(declared, change, frozenset(_object(document, "components")), _globals(document))
    graph, components = found.get("graph"), found.get("components")
    nodes = graph.get("nodes") if isinstance(graph, Mapping) else None
    names = _names(nodes)
    if isinstance(components, Mapping):
        found["components"] = {
            node: _entry(str(node), names.get(node, ""), entry, through) for node, entry in components.items()
        }
    if isinstance(graph, Mapping) and isinstance(nodes, list):
        found["graph"] = {**graph, "nodes": [_change_drawn_node(node, through) for node in nodes]}
    return found


def change_secrets_in_params(
    place: SecretPosition, params: Mapping[str, Any], declared: Declarations, change: Change
) -> Mapping[str, Any]:
    """Return the parameters of one node or tool with every secret changed; the `field` of `place` is empty.

    Since the document is not known, a reference without braces is changed like a secret.
    """
    return _params(place, params, _ChangePass(declared, change))


def _params(place: SecretPosition, params: Mapping[str, Any], through: _ChangePass) -> Mapping[str, Any]:
    found = dict(params)
    known = through.declared(place.component)
    if known is not None:
        at = replace(place, component=known.component)
        for field in known.fields:
            _change_field(found, field.split("."), replace(at, field=field), through)
        for field in known.headers:
            if field in found:
                found[field] = _headers(replace(at, field=field), found[field], through.change)
    if isinstance(tools := found.get("tools"), list):
        found["tools"] = [_tool(place, tool, through) for tool in tools]
    return found


def _object(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, Mapping) else {}


def _globals(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the globals that a run of the document has."""
    return frozenset(defaults.complete_globals(_object(document, "globals"), _object(document, "variables")))


def _names(nodes: Any) -> dict[str, str]:
    """Return display names by node id."""
    names: dict[str, str] = {}
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, Mapping) and isinstance(node.get("id"), str) and isinstance(node.get("data"), Mapping):
            names[node["id"]] = str(node["data"].get("name") or "")
    return names


def _entry(node: str, name: str, entry: Any, through: _ChangePass) -> Any:
    """Change the secrets of an entry of `components`, nested or flat."""
    if not isinstance(entry, Mapping):
        return entry
    if isinstance(entry.get("obj"), Mapping):
        return {**entry, "obj": _with_params(node, name, entry["obj"], through)}
    return _with_params(node, name, entry, through)


def _with_params(node: str, name: str, obj: Mapping[str, Any], through: _ChangePass) -> Any:
    component = obj.get("component_name") or obj.get("name")
    if not isinstance(component, str) or not isinstance(obj.get("params"), Mapping):
        return obj
    return {**obj, "params": _params(SecretPosition(node, name, component, ""), obj["params"], through)}


def _change_drawn_node(node: Any, through: _ChangePass) -> Any:
    """Change the secrets of a node of the drawing, whose form repeats the parameters."""
    if not isinstance(node, Mapping) or not isinstance(data := node.get("data"), Mapping):
        return node
    form, label = data.get("form"), data.get("label")
    if not isinstance(form, Mapping) or not isinstance(label, str):
        return node
    place = SecretPosition(str(node.get("id", "")), str(data.get("name") or ""), label, "")
    return {**node, "data": {**data, "form": _params(place, form, through)}}


def _tool(place: SecretPosition, tool: Any, through: _ChangePass) -> Any:
    """Change the secrets of a tool of an Agent; a sub-agent has tools itself."""
    if not isinstance(tool, Mapping) or not isinstance(tool.get("component_name"), str):
        return tool
    if not isinstance(tool.get("params"), Mapping):
        return tool
    inner = replace(place, component=tool["component_name"])
    return {**tool, "params": _params(inner, tool["params"], through)}


def _change_field(params: dict[str, Any], steps: list[str], place: SecretPosition, through: _ChangePass) -> None:
    """Change the value that the steps lead to; the objects on the path are copied."""
    *outer, last = steps
    for step in outer:
        if not isinstance(params.get(step), Mapping):
            return
        params[step] = params = dict(params[step])
    value = params.get(last)
    if is_secret(value) and not through.is_reference(value):
        params[last] = through.change(place, value)


def _headers(place: SecretPosition, written: Any, change: Change) -> Any:
    """Change the values of all headers that are not known to be harmless. Headers are an object or its JSON text."""
    if isinstance(written, str):
        try:
            parsed = json.loads(written)
        except (ValueError, RecursionError):
            return written
        found = _headers(place, parsed, change) if isinstance(parsed, Mapping) else parsed
        return written if found == parsed else json.dumps(found, ensure_ascii=False)
    if not isinstance(written, Mapping):
        return written
    return {
        name: change(replace(place, field=f"{place.field}.{name.lower()}"), value)
        if isinstance(name, str) and name.strip().lower() not in HARMLESS_HEADERS and is_secret(value)
        else value
        for name, value in written.items()
    }


def is_secret(value: Any) -> bool:
    """Whether a value is a secret: it is not empty, and not a reference as a whole.

    A reference is in braces, possibly after the name of an authentication scheme. A text without braces that only looks
    like a reference (`env.prod123`) may be a password; and a text with more than a reference has plain parts.
    """
    if isinstance(value, str):
        text = value.strip()
        return bool(text) and not _is_reference(_without_scheme(text))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_reference(text: str) -> bool:
    return any(found.start == 0 and found.end == len(text) for found in references.find(text, with_aliases=True))


def _without_scheme(text: str) -> str:
    scheme = _SCHEME.match(text)
    return text[scheme.end() :] if scheme is not None else text
