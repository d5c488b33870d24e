"""The inputs of a node that runs alone: its form as RAGFlow shows it, and the places where given values go.

A form has the node's own fields (`query` of a Categorize or a tool, `items` of an Iteration or Loop, the arguments of a
CodeExec) and a line for each reference that it reads (`Agent:0@content`, `sys.query`, a variable). A value of an own
field replaces the parameter; it is given as an output of a placeholder, so that braces in it stay text. A value of a
reference becomes that variable, or that output of a node that does not run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from canvas.document import references
from canvas.document.document import Document, Entry
from canvas.document.references import Ref
from canvas.document.single_node import (
    NodeInputs,
    input_node_id,
    nodes_alone,
    outside_references,
    require_runnable_alone,
)
from canvas.errors import InvalidRequest
from canvas.validation import reference_scan
from components import tools
from components.nodes.flow import form_fields
from components.tools.framework.parameters import may_have_references

FILES = "sys.files"

_FORMS = frozenset({"Begin", "UserFillUp"})
_FIELDS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "Browser": {
        "prompts": {"type": "text", "name": "Prompts"},
        "upload_sources": {"type": "line", "name": "Upload sources"},
    },
    "Categorize": {"query": {"type": "line", "name": "Query"}},
    "DocGenerator": {"content": {"type": "text", "name": "Content"}},
    "Iteration": {"items": {"type": "json", "name": "Items"}},
    "Loop": {"items": {"type": "json", "name": "Items"}},
}
_PARAMETERS = {"items": "items_ref", "line": "split_ref"}  # where a field has another name than its parameter
_WITHOUT_EFFECT = {"Switch": "urls", "VariableAggregator": "variables", "VariableAssigner": "items"}
"""Fields that RAGFlow shows and does not use."""


def input_form(document: Document, node_id: str) -> dict[str, Any]:
    """Return the input form of a node, {name: {type, name, ...}}: its own fields, then the references it reads."""
    entry = document.entries[node_id]
    fields: dict[str, Any] = {name: dict(field) for name, field in _shown_fields(entry).items()}
    if entry.component in _FORMS:
        return form_fields.fields_of(entry.params.get("inputs"))
    for expression, field in _reference_fields(document, entry):
        fields.setdefault(expression, field)
    for node, output in outside_references(document, node_id) if len(nodes_alone(document, node_id)) > 1 else ():
        name = f"{node}@{output}"
        if name not in fields and not _is_replaced(document, entry, node, output):
            fields[name] = {"type": "line", "name": _title(document, Ref(node, output))}
    return fields


def place_inputs(document: Document, node_id: str, given: Mapping[str, Any]) -> NodeInputs:
    """Return where the given values go, by name of the form or as any reference.

    Raises InvalidRequest for a name that the node does not read, for an empty form, and for a node that cannot run
    alone.
    """
    entry = document.entries[node_id]
    require_runnable_alone(entry)
    placed = _Placed(document, entry)
    for name, value in given.items():
        placed.add(name, value)
    return placed.inputs(list(given))


class _Placed:
    """The given values, each in its place."""

    def __init__(self, document: Document, entry: Entry) -> None:
        self.document, self.entry = document, entry
        self.form = form_fields.fields_of(entry.params.get("inputs")) if entry.component in _FORMS else {}
        self.own_fields = _own_fields(entry)
        self.reads = {read.ref.expression for read in reference_scan.references_of(entry)}
        self.inside = set(nodes_alone(document, entry.id))
        self.input_node = input_node_id(document)
        self.globals: dict[str, Any] = {}
        self.outputs: dict[str, dict[str, Any]] = {}
        self.params: dict[str, Any] = {}
        self.answers: dict[str, Any] = {}
        self.files: list[Mapping[str, Any]] | None = None
        self.warnings: list[str] = []

    def add(self, name: str, value: Any) -> None:
        """Put one value in its place."""
        ref = references.parse(name)
        if name in self.form or (self.entry.component == "Begin" and ref is None):
            field = self.form.get(name)
            self.answers[name] = {**(field if isinstance(field, Mapping) else {}), "value": value}
        elif name in self.own_fields:
            self._replace_parameter(name, value)
        elif name == _WITHOUT_EFFECT.get(self.entry.component):
            self.warnings.append(f"`{name}` has no effect: a {self.entry.component} reads variables and outputs.")
        elif ref is None and name not in self.reads:
            raise self._unknown_input(name)
        else:
            self._set_value(name, ref or references.parse_reference(name), value)

    def inputs(self, names: Sequence[str]) -> NodeInputs:
        """Return all of them, with a warning for each output that is read and not given."""
        if self.form and self.entry.component == "UserFillUp" and not self.answers:
            raise InvalidRequest(
                f"{self.entry.id} asks a person for {', '.join(self.form)}. Give at least one of them.", field="params"
            )
        whole = replace(self.entry, params={**self.entry.params, **self.params})
        document = replace(self.document, entries={**self.document.entries, self.entry.id: whole})
        for node, output in outside_references(document, self.entry.id):
            if output not in self.outputs.get(node, {}):
                self.warnings.append(f"`{node}@{output}` is not given, so it is empty.")
        return NodeInputs(
            globals=self.globals,
            outputs=self.outputs,
            params=self.params,
            answers=self.answers if self.entry.component in _FORMS else None,
            files=self.files,
            names=names,
            warnings=self.warnings,
        )

    def _replace_parameter(self, name: str, value: Any) -> None:
        component, params = self.entry.component, self.entry.params
        if component == "Loop":
            self.params["loop_variables"] = _with_initial_values(self.entry, value)
        elif component == "CodeExec" and name in _arguments_of(params):
            arguments = self.params.get("arguments") or dict(params["arguments"])
            self.params["arguments"] = {**arguments, name: self._as_reference(value)}
        elif tools.find(component) is not None and not _needs_reference(value):
            self.params[name] = value
        else:
            self.params[_PARAMETERS.get(name, name)] = self._as_reference(value)

    def _as_reference(self, value: Any) -> str:
        """Return a reference to a value, which is stored as an output of the placeholder for inputs."""
        values = self.outputs.setdefault(self.input_node, {})
        name = f"value{len(values)}"
        values[name] = value
        return f"{{{self.input_node}@{name}}}"

    def _set_value(self, name: str, ref: Ref, value: Any) -> None:
        if ref.expression == FILES:
            self.files = self._descriptors(value)
        elif ref.node is None:
            self.globals[ref.root] = value
        elif ref.node not in self.document.entries or ref.node in self.inside:
            raise self._unknown_input(name)
        else:
            outputs = self.outputs.setdefault(ref.node, {})
            before = outputs.get(ref.root)
            outputs[ref.root] = references.assign_path(before if isinstance(before, Mapping) else None, ref.path, value)
            if files := _files_in(value):  # a file field keeps its descriptors beside its texts
                outputs[form_fields.FILES] = {**outputs.get(form_fields.FILES, {}), ref.root: files}

    def _descriptors(self, value: Any) -> list[Mapping[str, Any]]:
        files = _files_in(value)
        if value and not files:
            raise InvalidRequest(
                f"`params.{FILES}` must be files as an upload returns them: {{id, name, mime_type, created_by}}.",
                field=f"params.{FILES}",
            )
        return files

    def _unknown_input(self, name: str) -> InvalidRequest:
        known = list(input_form(self.document, self.entry.id))
        listed = f"It has: {', '.join(known[:20])}." if known else "It has none."
        return InvalidRequest(
            f"{self.entry.id} has no input {name[:64]!r}. {listed} Outputs of other nodes are given as NODE@OUTPUT.",
            field=f"params.{name[:64]}",
        )


# -- the fields of a component ----------------------------------------------------------------------------------------


def _own_fields(entry: Entry) -> dict[str, Mapping[str, Any]]:
    """Return all own fields of a node, those of optional arguments included."""
    fields = dict(_FIELDS.get(entry.component, {}))
    if entry.component == "StringTransform" and entry.params.get("method", "split") == "split":
        fields["line"] = {"type": "line", "name": "String"}
    tool = tools.find(entry.component)
    if tool is not None:
        fields |= {
            name: {"type": "json" if argument.type == "array" else "line", "name": _words(name)}
            for name, argument in tool.arguments.items()
        }
        fields |= {name: {"type": "line", "name": name} for name in _arguments_of(entry.params)}
    return fields


def _shown_fields(entry: Entry) -> dict[str, Mapping[str, Any]]:
    """Return the own fields that a form shows: of a tool those that it needs, of a CodeExec those of its program."""
    fields = _own_fields(entry)
    tool = tools.find(entry.component)
    if tool is None:
        return fields
    shown = [name for name, argument in tool.arguments.items() if argument.required]
    if entry.component == "CodeExec":
        shown = list(_arguments_of(entry.params))
    return {name: fields[name] for name in shown}


def _arguments_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = params.get("arguments")
    return arguments if isinstance(arguments, Mapping) else {}


def _words(name: str) -> str:
    return {"q": "Query", "sql": "SQL"}.get(name) or name.replace("_", " ").capitalize()


def _reference_fields(document: Document, entry: Entry) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (expression, field) of each reference of a node that its own fields do not replace."""
    inside = set(nodes_alone(document, entry.id))
    for read in reference_scan.references_of(entry):
        is_replaced = _root_of(read.field) in _replaced_parameters(entry)
        is_own = read.ref.node in inside or (read.ref.is_alias and entry.parent is None)
        if not read.is_target and not is_replaced and not is_own:
            yield read.ref.expression, {"type": _type_of(entry, read.field), "name": _title(document, read.ref)}


def _is_replaced(document: Document, entry: Entry, node: str, output: str) -> bool:
    """Whether only parameters that own fields replace read an output."""
    others = {name: value for name, value in entry.params.items() if name not in _replaced_parameters(entry)}
    bare = replace(document, entries={**document.entries, entry.id: replace(entry, params=others)})
    return (node, output) not in set(outside_references(bare, entry.id))


def _replaced_parameters(entry: Entry) -> set[str]:
    replaced = {_PARAMETERS.get(name, name) for name in _shown_fields(entry)}
    return replaced | ({"arguments"} if entry.component == "CodeExec" else set[str]())


def _root_of(field: str) -> str:
    return field.partition(".")[0].partition("[")[0]


def _type_of(entry: Entry, field: str) -> str:
    if entry.component != "ExcelProcessor":
        return "line"
    return {"input_files": "file", "transform_data": "object"}.get(_root_of(field), "line")


def _title(document: Document, ref: Ref) -> str:
    """Return the name of a reference for people: `the search@content`, with the display name of the node."""
    entry = document.entries.get(ref.node) if ref.node is not None else None
    rest = ref.expression.partition("@")[2]
    return f"{entry.name or entry.id}@{rest}" if entry is not None else ref.expression


def _with_initial_values(entry: Entry, value: Any) -> list[Any]:
    """Return the loop variables of a Loop with given initial values. Raises InvalidRequest for an unknown variable."""
    rows = entry.params.get("loop_variables")
    known = [dict(row) for _, row in reference_scan.rows(rows)]
    names = [str(row.get("variable")) for row in known if row.get("variable")]
    if not value:
        return known
    if not isinstance(value, Mapping) or not value.keys() <= set(names):
        raise InvalidRequest(
            f"`params.items` of a Loop must be an object of its variables: {', '.join(names) or 'it has none'}.",
            field="params.items",
        )
    return [
        {**row, "input_mode": "constant", "value": value[row["variable"]]} if row.get("variable") in value else row
        for row in known
    ]


def _needs_reference(value: Any) -> bool:
    """Whether a value as a parameter could be read as a reference."""
    return isinstance(value, list | Mapping) or may_have_references(value)


def _files_in(value: Any) -> list[Mapping[str, Any]]:
    """Return the descriptors of a value that is a file or a list of files; [] for any other value."""
    listed: list[Any] = value if isinstance(value, list) else [value]
    is_file = [isinstance(each, Mapping) and "id" in each and "mime_type" in each for each in listed]
    return listed if all(is_file) else []
