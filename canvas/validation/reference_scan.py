"""References of a node: every reference in its parameters, with the field it is in.

Two kinds of fields contain references. In a text, what is in braces is a reference and the rest is text. A field that
is a reference as a whole (`cpn_id`, `items_ref`) is always looked up. Parameters that only describe the node, store
values of earlier runs, or are code of another language are not scanned.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from canvas.document import component_names, references
from canvas.document.document import Entry
from canvas.document.references import Ref

REFERENCE_OPERATORS = frozenset({"overwrite", "append", "extend"})
"""Operators of a VariableAssigner whose parameter is a reference."""

_NOT_READ = frozenset({"custom_header", "debug_inputs", "description", "inputs", "mcp", "outputs", "prologue", "tools"})
_CODE = frozenset({"code", "script"})  # of a CodeExec: braces there are the language's own


@dataclass(frozen=True, slots=True)
class ReferenceUse:
    """A reference and its field. `is_target`: it is written; `is_whole`: it is the whole field, so it must exist.

    `is_bare`: it is a text without braces in another field, so it is a reference only if its node exists
    (`llama3:8b@Ollama` is a model).
    """

    field: str
    ref: Ref
    is_whole: bool = False
    is_target: bool = False
    is_bare: bool = False


def references_of(entry: Entry) -> Iterator[ReferenceUse]:
    """Yield every reference of a node, aliases included, each with the first field that it is in."""
    seen: set[tuple[str, bool]] = set()
    for read in _all(entry):
        key = (read.ref.expression, read.is_target)
        if key not in seen:
            seen.add(key)
            yield read


def _all(entry: Entry) -> Iterator[ReferenceUse]:
    whole = dict(_whole_fields(entry))
    for field, text in whole.items():
        found = references.find(text, with_aliases=True)
        is_one = references.parse(text) is not None or not found
        refs = [references.parse_reference(text)] if is_one else [it.ref for it in found]
        is_target = entry.component == "VariableAssigner" and field.endswith(".variable")
        for ref in refs:
            yield ReferenceUse(field, ref, is_whole=is_one, is_target=is_target)
    for field, text in texts(entry):
        if field in whole:
            continue
        for it in references.find(text, with_aliases=True):
            if not (it.ref.is_alias and "{%" in text):  # a template may have names of its own
                yield ReferenceUse(field, it.ref)
        bare = references.parse(text)
        if bare and bare.node and ":" in bare.node and not text.startswith("{"):
            yield ReferenceUse(field, bare, is_bare=True)


def texts(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield (field, text) of every text that a node may fill in; `parse` limits the depth."""
    for name, value in entry.params.items():
        if name not in _NOT_READ and not (entry.component == "CodeExec" and name in _CODE):
            yield from _texts(str(name), value)
    tools = entry.params.get("tools")
    for position, tool in enumerate(tools) if isinstance(tools, list) else ():
        params = tool.get("params") if isinstance(tool, Mapping) else None
        if isinstance(params, Mapping):
            component = component_names.canonical(str(tool.get("component_name")))
            for field, text in texts(Entry(entry.id, component, params)):
                yield f"tools[{position}].params.{field}", text


def rows(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a list, with their positions."""
    for position, row in enumerate(value) if isinstance(value, list | tuple) else ():
        if isinstance(row, Mapping):
            yield position, row


def _texts(field: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case str():
            yield field, value
        case Mapping():
            for key, item in value.items():
                yield from _texts(f"{field}.{key}", item)
        case list():
            for position, item in enumerate(value):
                yield from _texts(f"{field}[{position}]", item)
        case _:
            pass


def _whole_fields(entry: Entry) -> Iterator[tuple[str, str]]:
    """Yield (field, text) of every field that is a reference as a whole and is not empty."""
    for field, value in _references(entry):
        if isinstance(value, str) and value.strip():
            yield field, value


def _references(entry: Entry) -> Iterator[tuple[str, Any]]:
    params = entry.params
    match entry.component:
        case "Switch":
            for place, group in rows(params.get("conditions")):
                for number, item in rows(group.get("items")):
                    yield f"conditions[{place}].items[{number}].cpn_id", item.get("cpn_id")
        case "Categorize" | "ListOperations":
            yield "query", params.get("query")
        case "DataOperations":
            yield from _list_items("query", params.get("query"))
        case "StringTransform" if params.get("method", "split") == "split":
            yield "split_ref", params.get("split_ref")
        case "LLM" | "Agent":
            yield "visual_files_var", params.get("visual_files_var")
        case "Invoke":
            for place, row in rows(params.get("variables")):
                yield f"variables[{place}].ref", row.get("ref")
        case "ExcelProcessor":
            yield from _list_items("input_files", params.get("input_files"))
            yield "transform_data", params.get("transform_data")
        case "CodeExec":
            arguments = params.get("arguments")
            for name, value in arguments.items() if isinstance(arguments, Mapping) else ():
                yield f"arguments.{name}", value
        case "Iteration":
            yield "items_ref", params.get("items_ref")
            outputs = params.get("outputs")
            for name, output in outputs.items() if isinstance(outputs, Mapping) else ():
                yield f"outputs.{name}.ref", output.get("ref") if isinstance(output, Mapping) else None
        case "Loop":
            yield from _of_loop(params)
        case "VariableAggregator":
            for place, group in rows(params.get("groups")):
                yield from _list_items(f"groups[{place}].variables", group.get("variables"))
        case "VariableAssigner":
            for place, row in rows(params.get("variables")):
                yield f"variables[{place}].variable", row.get("variable")
                if row.get("operator") in REFERENCE_OPERATORS:
                    yield f"variables[{place}].parameter", row.get("parameter")
        case _:
            pass


def _of_loop(params: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for place, row in rows(params.get("loop_variables")):
        if row.get("input_mode") == "variable" and row.get("variable"):
            yield f"loop_variables[{place}].value", row.get("value")
    for place, row in rows(params.get("loop_termination_condition")):
        yield f"loop_termination_condition[{place}].variable", row.get("variable")
        if row.get("input_mode") == "variable":
            yield f"loop_termination_condition[{place}].value", row.get("value")


def _list_items(field: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (field, value) of the items of a list; for an object, of its `value`."""
    for position, item in enumerate([value] if isinstance(value, str) else value if isinstance(value, list) else ()):
        if isinstance(item, Mapping):
            yield f"{field}[{position}].value", item.get("value")
        else:
            yield f"{field}[{position}]", item
