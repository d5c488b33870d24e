"""Initial values of a document: defaults of globals by name, and a reset of values by their type."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from canvas.document.document import Document, Entry

SYS_DEFAULTS: Mapping[str, Any] = {
    "sys.query": "",
    "sys.user_id": "",
    "sys.conversation_turns": 0,
    "sys.files": (),
    "sys.history": (),
    "sys.date": "",  # set when a run begins
}


def complete_globals(stored: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored globals, with every missing `sys.*` and an `env.*` for every declared variable added."""
    missing_sys = {name: _copy_default(default) for name, default in SYS_DEFAULTS.items() if name not in stored}
    missing_env = {
        f"env.{name}": declared_value(variable) for name, variable in variables.items() if f"env.{name}" not in stored
    }
    return {**stored, **missing_sys, **missing_env}


def initial_globals(document: Document) -> dict[str, Any]:
    """Return the globals of a new conversation: `sys.*` empty by type, `env.*` as declared, others unchanged."""
    every = complete_globals(document.globals, document.variables)
    return {name: _initial_value(name, value, document.variables) for name, value in every.items()}


def reset_by_type(document: Document) -> Document:
    """Return the document after a full reset: without values of nodes and history, with the globals of a new run."""
    entries = {entry.id: _without_values(entry) for entry in document.entries.values()}
    components = {node_id: _raw_without_values(entry) for node_id, entry in document.raw["components"].items()}
    emptied: dict[str, Any] = {"path": [], "history": [], "retrieval": [], "memory": []}
    state = initial_globals(document)
    raw = {**document.raw, **emptied, "components": components, "globals": dict(state)}
    return replace(document, entries=entries, raw=raw, globals=state, history=(), retrieval=(), memory=())


def declared_value(variable: Any) -> Any:
    """Return the initial value of a conversation variable: as declared, or the empty value of its declared type."""
    if not isinstance(variable, Mapping):
        return ""
    if (value := variable.get("value")) is not None:
        return value
    match str(variable.get("type") or "").lower():
        case "number":
            return 0
        case "boolean":
            return False
        case "object":
            return {}
        case kind:
            return [] if kind.startswith("array") else ""


def _initial_value(name: str, value: Any, variables: Mapping[str, Any]) -> Any:
    if name.startswith("env."):
        return declared_value(variables.get(name.removeprefix("env.")))
    return _empty_value(value) if name.startswith("sys.") else value


def _empty_value(value: Any) -> Any:
    match value:
        case str():
            return ""
        case bool():
            return False
        case int() | float():
            return 0
        case list() | tuple():
            return []
        case Mapping():
            return {}
        case _:
            return None


def _copy_default(default: Any) -> Any:
    return list(default) if isinstance(default, tuple) else default


def _without_values(entry: Entry) -> Entry:
    return replace(entry, params=_params_without_values(entry.params))


def _raw_without_values(entry: Any) -> Any:
    obj = entry["obj"]
    return {**entry, "obj": {**obj, "params": _params_without_values(obj["params"])}}


def _params_without_values(params: Mapping[str, Any]) -> dict[str, Any]:
    emptied = dict(params)
    for key in ("inputs", "outputs"):
        fields = emptied.get(key)
        if isinstance(fields, Mapping):
            emptied[key] = {name: _without_value(field) for name, field in fields.items()}
    return emptied


def _without_value(field: Any) -> Any:
    return {**field, "value": None} if isinstance(field, Mapping) and "value" in field else field
