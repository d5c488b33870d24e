"""Switch: send the run down the first branch whose condition holds.

DSL: `conditions[] {logical_operator, items[] {cpn_id, operator, value}, to[]}`, `end_cpn_ids` for "else". References
in operands are not resolved. A condition without a usable item never holds.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from canvas.outcome import Routed
from components.base import Params, component
from components.context import NodeContext
from components.text.comparison import switch_holds


class SwitchParams(Params):
    later_outputs = ("next",)

    conditions: Any = Field(default=(), validate_default=True)
    end_cpn_ids: Any = Field(default=(), validate_default=True)

    @field_validator("conditions")
    @classmethod
    def _every_condition_has_a_target(cls, conditions: Any) -> Any:
        if not conditions or not isinstance(conditions, list):
            raise ValueError(f"[Switch] conditions {conditions!r}: there must be at least one.")
        for condition in conditions:
            if not isinstance(condition, Mapping):
                raise ValueError(f"[Switch] conditions {condition!r}: a condition is an object.")
            if not _targets(condition.get("to")):
                raise ValueError(f"[Switch] 'To' {condition.get('to')!r} of a condition must not be empty.")
            items = condition.get("items") or []
            if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
                raise ValueError(f"[Switch] conditions: items {items!r} must be a list of objects.")
        return conditions

    @field_validator("end_cpn_ids")
    @classmethod
    def _else_leads_somewhere(cls, ids: Any) -> Any:
        if not _targets(ids):
            raise ValueError(f"[Switch] the ELSE/Other destination {ids!r} must not be empty.")
        return ids


@component("Switch", SwitchParams, effect="pure")
def switch(params: SwitchParams, ctx: NodeContext) -> Routed:
    for condition in params.conditions:
        if _matches(condition, ctx):
            return _to(condition["to"], ctx)
    return _to(params.end_cpn_ids, ctx)


def _matches(condition: Mapping[str, Any], ctx: NodeContext) -> bool:
    """Return whether all items hold under `and` or a missing operator; whether any holds under any other operator.

    Under `and` every item is evaluated, so an item that cannot be compared fails the node at any position.
    """
    needs_all = condition.get("logical_operator") in ("and", None)
    verdicts: list[bool] = []
    for item in condition.get("items") or []:
        reference = str(item.get("cpn_id") or "").strip()
        if not reference:
            continue
        left = ctx.lookup(reference)
        ctx.note_input(reference.strip("{} "), left)
        verdicts.append(switch_holds(left, item.get("operator"), item.get("value", "")))
        if verdicts[-1] and not needs_all:
            return True
    return bool(verdicts) and all(verdicts)


def _to(target: Any, ctx: NodeContext) -> Routed:
    ids = _targets(target)
    return Routed(to=ids, outputs={"next": [ctx.display_name(node_id) for node_id in ids], "_next": list(ids)})


def _targets(target: Any) -> tuple[str, ...]:
    """Return the node ids that a target names; other values are ignored."""
    listed = target if isinstance(target, list | tuple) else (target,)
    return tuple(node_id for node_id in listed if isinstance(node_id, str) and node_id)
