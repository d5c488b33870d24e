"""Loop, LoopItem and ExitLoop: repeat a body until a condition holds.

DSL of Loop: `loop_variables[] {variable, type, input_mode, value}`, `loop_termination_condition[] {variable, operator,
input_mode, value}`, `logical_operator`, `maximum_loop_count`. Loop sets its variables as outputs and opens the body.
LoopItem decides before each iteration whether it runs. So the body never runs if the conditions already hold, if `and`
joins no conditions, or if the maximum is 0. ExitLoop, inside the body, ends the Loop around it; elsewhere it
does nothing.
"""

import math
from collections.abc import Mapping
from typing import Any

from canvas.errors import NodeFailure
from canvas.outcome import ContainerExited, ContainerOpened, Finished, NextIteration
from components.base import Params, component
from components.context import NodeContext
from components.text.comparison import loop_holds


class LoopParams(Params):
    later_outputs = ()

    loop_variables: Any = ()
    loop_termination_condition: Any = ()
    logical_operator: Any = "and"
    maximum_loop_count: Any = 0


class LoopItemParams(Params):
    later_outputs = ()


class ExitLoopParams(Params):
    later_outputs = ()


@component("Loop", LoopParams, effect="pure")
def loop(params: LoopParams, ctx: NodeContext) -> ContainerOpened:
    return ContainerOpened(
        count=None, outputs=dict(_initial(row, ctx) for row in _rows(params.loop_variables) if _is_used(row))
    )


@component("LoopItem", LoopItemParams, effect="pure")
def loop_item(params: LoopItemParams, ctx: NodeContext) -> NextIteration | ContainerExited:
    parent = LoopParams.model_validate(dict(ctx.parent_params()))
    if ctx.scope_item >= _maximum(parent.maximum_loop_count) or _is_over(parent, ctx):
        return ContainerExited(container=ctx.container_outputs())
    return NextIteration()


@component("ExitLoop", ExitLoopParams, effect="pure")
def exit_loop(params: ExitLoopParams, ctx: NodeContext) -> ContainerExited | Finished:
    parent = ctx.node_components().get(ctx.parent_id or "")
    return ContainerExited(container=ctx.container_outputs()) if parent == "Loop" else Finished()


def _is_used(row: Mapping[str, Any]) -> bool:
    """Return whether a row has a variable name; the editor also stores rows without one, which have no meaning."""
    return bool(row.get("variable"))


def _initial(row: Mapping[str, Any], ctx: NodeContext) -> tuple[str, Any]:
    """Return a loop variable's name and its initial value."""
    mode, value = row.get("input_mode"), row.get("value")
    if (
        not row.get("type")
        or mode not in ("constant", "variable")
        or value is None
        or (mode == "variable" and not value)
    ):
        raise NodeFailure("Loop Variable is not complete.", variable=str(row["variable"]))
    return str(row["variable"]), ctx.lookup(str(value)) if mode == "variable" else value


def _maximum(count: Any) -> float:
    """Return the maximum number of iterations; an empty parameter means 0."""
    if count is None or count == "":
        return 0
    try:
        maximum = float(count)
    except (TypeError, ValueError, OverflowError) as error:
        raise NodeFailure(f"The maximum loop count {count!r} is not a number.") from error
    if not math.isfinite(maximum):
        raise NodeFailure(f"The maximum loop count {count!r} is not a finite number.")
    return maximum


def _is_over(parent: LoopParams, ctx: NodeContext) -> bool:
    """Return whether the termination conditions hold: all of them under `and`, any of them under `or`."""
    operator = parent.logical_operator or "and"
    if operator not in ("and", "or"):
        raise NodeFailure(f"Invalid logical operator {operator!r}, it should be 'and' or 'or'.")
    verdicts = [_holds(condition, parent, ctx) for condition in _rows(parent.loop_termination_condition)]
    return all(verdicts) if operator == "and" else any(verdicts)


def _holds(condition: Mapping[str, Any], parent: LoopParams, ctx: NodeContext) -> bool:
    variable, operator, operand = condition.get("variable"), condition.get("operator"), condition.get("value")
    if not variable or not operator:
        raise NodeFailure("Loop condition is incomplete.")
    match condition.get("input_mode") or "constant":
        case "constant":
            pass
        case "variable":
            operand = _lookup(str(operand or ""), parent, ctx)
        case mode:
            raise NodeFailure(f"Invalid input mode {mode!r}, it should be 'constant' or 'variable'.")
    return loop_holds(_lookup(str(variable), parent, ctx), operator, operand)


def _lookup(expression: str, parent: LoopParams, ctx: NodeContext) -> Any:
    """Return a reference's value; a bare name is a variable of this Loop, unless a global has that name."""
    name = expression.strip("{} ")
    names = {str(row["variable"]) for row in _rows(parent.loop_variables) if _is_used(row)}
    if name in names and not ctx.exists(name):
        return ctx.lookup(f"{ctx.parent_id}@{name}")
    return ctx.lookup(expression)


def _rows(rows: Any) -> list[Mapping[str, Any]]:
    return [row if isinstance(row, Mapping) else {} for row in rows] if isinstance(rows, list) else []
