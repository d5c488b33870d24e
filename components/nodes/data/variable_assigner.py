"""VariableAssigner: change variables, and outputs of other nodes.

DSL: `variables[] {variable, operator, parameter}`. Rows run in order, and each sees the assignments of earlier rows. A
row that cannot be carried out fails the node, but earlier assignments stay: `AssignmentFailed` carries them. An
operator that does not fit its values writes an `ERROR:` text into the variable instead; the output `errors` lists these
texts as well.
"""

import math
from collections.abc import Mapping
from typing import Any

from canvas.document import references
from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.base import Params, component
from components.context import NodeContext
from components.text.templates import templates

WITHOUT_PARAMETER = ("clear", "remove_first", "remove_last")
NOT_LIST = "ERROR:VARIABLE_NOT_LIST"
PARAMETER_NOT_LIST = "ERROR:PARAMETER_NOT_LIST"
OTHER_ELEMENT_TYPE = "ERROR:PARAMETER_NOT_LIST_ELEMENT_TYPE"
NOT_NUMBER = "ERROR:VARIABLE_NOT_NUMBER or PARAMETER_NOT_NUMBER"
DIVIDE_BY_ZERO = "ERROR:DIVIDE_BY_ZERO"
MAX_INTEGER_BITS = 4096  # bits; Python refuses to print much longer integers


class VariableAssignerParams(Params):
    later_outputs = ("errors",)

    variables: Any = ()


class AssignmentFailed(NodeFailure):
    """Raised when a row cannot be carried out. `assignments` are those of the earlier rows, as in `Finished.assign`."""

    code = "assignment_failed"

    def __init__(self, message: str, assignments: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.assignments = assignments


@component("VariableAssigner", VariableAssignerParams, effect="pure", assigns=True)
def variable_assigner(params: VariableAssignerParams, ctx: NodeContext) -> Finished:
    assignment = _Assignment(ctx)
    for row in params.variables if isinstance(params.variables, list) else ():
        try:
            assignment.apply(row if isinstance(row, Mapping) else {})
        except NodeFailure as failure:
            raise AssignmentFailed(failure.message, assignment.assignments) from failure
    has_errors = assignment.errors or ctx.previous_output("errors")
    return Finished(outputs={"errors": assignment.errors} if has_errors else {}, assign=assignment.assignments)


class _Assignment:
    """The assignments of the rows so far, by the name of the whole variable or output."""

    def __init__(self, ctx: NodeContext) -> None:
        self.assignments: dict[str, Any] = {}
        self.errors: list[str] = []
        self._ctx = ctx

    def apply(self, row: Mapping[str, Any]) -> None:
        variable, operator, parameter = row.get("variable"), row.get("operator"), row.get("parameter")
        if not variable or not operator or (parameter is None and operator not in WITHOUT_PARAMETER):
            raise NodeFailure("Variable is not complete.")
        ref = references.parse_reference(str(variable))
        if ref.is_alias:
            raise NodeFailure(f"'{variable}' belongs to the Iteration and can't be assigned.")
        value = self._apply_operator(self.lookup(str(variable)), str(operator), parameter)
        if isinstance(value, str) and value.startswith("ERROR:") and operator not in ("overwrite", "set"):
            self.errors.append(value)
        self.assignments[_root_name(ref)] = references.assign_path(self._root(ref), ref.path, value)

    def lookup(self, expression: str) -> Any:
        """Return a reference's value after the assignments so far. Raises UnresolvedReference like `ctx.lookup`."""
        ref = references.parse_reference(expression)
        if _root_name(ref) in self.assignments:
            return references.get_path(self.assignments[_root_name(ref)], ref.path)
        return self._ctx.lookup(expression)

    def _root(self, ref: references.Ref) -> Any:
        return self.lookup(_root_name(ref)) if ref.path else None

    def _apply_operator(self, value: Any, operator: str, parameter: Any) -> Any:
        match operator:
            case "overwrite":
                return self.lookup(str(parameter))
            case "clear":
                return _clear(value)
            case "set":
                fill = isinstance(parameter, str) and (value is None or isinstance(value, str))
                return templates.format_text(parameter, self.lookup) if fill else parameter
            case "append":
                return _append(value, self.lookup(str(parameter)))
            case "extend":
                return _extend(value, self.lookup(str(parameter)))
            case "remove_first" | "remove_last":
                remaining = slice(1, None) if operator == "remove_first" else slice(None, -1)
                return value[remaining] if isinstance(value, list) else NOT_LIST
            case "+=" | "-=" | "*=" | "/=":
                return _calculate(value, operator, parameter)
            case _:
                return None


def _root_name(ref: references.Ref) -> str:
    return ref.root if ref.node is None else f"{ref.node}@{ref.root}"


def _clear(value: Any) -> Any:
    return type(value)() if isinstance(value, list | str | dict | bool | int | float) else None


def _append(value: Any, element: Any) -> Any:
    items = [] if value is None else value
    if not isinstance(items, list):
        return NOT_LIST
    if items and not isinstance(element, type(items[0])):
        return OTHER_ELEMENT_TYPE
    return [*items, element]


def _extend(value: Any, more: Any) -> Any:
    items = [] if value is None else value
    if not isinstance(items, list):
        return NOT_LIST
    if not isinstance(more, list):
        return PARAMETER_NOT_LIST
    if items and more and not isinstance(more[0], type(items[0])):
        return OTHER_ELEMENT_TYPE
    return [*items, *more]


def _calculate(value: Any, operator: str, parameter: Any) -> Any:
    if not _is_number(value) or not _is_number(parameter):
        return NOT_NUMBER
    if operator == "/=" and parameter == 0:
        return DIVIDE_BY_ZERO
    try:
        match operator:
            case "+=":
                result = value + parameter
            case "-=":
                result = value - parameter
            case "*=":
                result = value * parameter
            case _:
                result = value / parameter
    except OverflowError as error:
        raise NodeFailure(f"The result of '{operator}' is too large.") from error
    if isinstance(result, float):
        return result if math.isfinite(result) else None  # JSON has no infinity
    if result.bit_length() > MAX_INTEGER_BITS:
        raise NodeFailure(f"The result of '{operator}' is too large.")
    return result


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
