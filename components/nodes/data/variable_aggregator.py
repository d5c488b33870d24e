"""VariableAggregator: output the first of several variables that has a value, so that branches can be joined.

DSL: `groups[] {group_name, variables[] {value}}`; a variable may also be a plain text. Empty values (null, "", 0,
false, [], {}) are skipped. A group without any value leaves its output as it was.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from canvas.errors import UnresolvedReference
from canvas.outcome import Failed, Finished
from components.base import Params, component
from components.context import NodeContext


class VariableAggregatorParams(Params):
    later_outputs = ()

    groups: Any = Field(default=(), validate_default=True)

    @field_validator("groups")
    @classmethod
    def _every_group_is_complete(cls, groups: Any) -> Any:
        if not groups or not isinstance(groups, list):
            raise ValueError(f"[VariableAggregator] groups {groups!r} must be a list that is not empty.")
        for group in groups:
            if not isinstance(group, Mapping):
                raise ValueError(f"[VariableAggregator] groups {group!r}: a group is an object.")
            name, variables = group.get("group_name"), group.get("variables")
            if not name or not isinstance(name, str):
                raise ValueError(f"[VariableAggregator] group_name {name!r} must be a text that is not empty.")
            if not variables or not isinstance(variables, list):
                raise ValueError(f"[VariableAggregator] variables {variables!r} must be a list that is not empty.")
        return groups


@component("VariableAggregator", VariableAggregatorParams, effect="pure")
def variable_aggregator(params: VariableAggregatorParams, ctx: NodeContext) -> Finished | Failed:
    outputs: dict[str, Any] = {}
    for group in params.groups:
        ctx.note_input(f"{group['group_name']}.variables", group["variables"])
        try:
            value = _first_value(group["variables"], ctx)
        except UnresolvedReference as unknown:  # the outputs of earlier groups are kept
            return Failed(error=unknown.message, code=unknown.code, outputs=outputs)
        if value:
            outputs[group["group_name"]] = value
    return Finished(outputs=outputs)


def _first_value(variables: list[Any], ctx: NodeContext) -> Any:
    for variable in variables:
        reference = variable.get("value") if isinstance(variable, Mapping) else variable
        value = ctx.lookup(str(reference or ""))
        if value:
            return value
    return None
