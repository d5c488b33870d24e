"""The outputs that a node may have: those its author declared, those its component sets, those named in its params."""

from collections.abc import Mapping
from typing import Any

from canvas.document.document import Entry
from canvas.validation.reference_scan import rows
from components import registry
from components.nodes.flow import form_fields


def outputs_of(entry: Entry) -> frozenset[str] | None:
    """Return the names of the outputs that a node may have; None if it may have any, or its component is unknown."""
    params = entry.params
    usual = registry.possible_outputs(entry.component)
    if usual is None or (entry.component == "Begin" and params.get("mode") == "Webhook"):
        return None
    declared = params.get("outputs")
    names = (
        usual
        | set(map(str, declared if isinstance(declared, Mapping) else ()))
        | _authored_outputs(entry.component, params)
    )
    return names | {"result"} if params.get("exception_default_value") else names


def _authored_outputs(component: str, params: Mapping[str, Any]) -> set[str]:
    """Return the outputs that are named after the author's form fields, loop variables or groups."""
    match component:
        case "Begin" | "UserFillUp":
            return set(form_fields.fields_of(params.get("inputs")))
        case "Loop":
            return {str(row.get("variable")) for _, row in rows(params.get("loop_variables"))}
        case "VariableAggregator":
            return {str(row.get("group_name")) for _, row in rows(params.get("groups"))}
        case _:
            return set()
