"""Other shapes of what Switch and Loop decide by, unfolded into `conditions`, `end_cpn_ids` and termination conditions.

Switch: `cases` with a condition as text, or groups of clauses, and `default`. Loop: `condition`, the one to go on with,
and `max_iterations`. Both: condition objects `{var, op, value}`.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from canvas.document import conditions, references
from canvas.document.conditions import BadCondition, Clause, Condition
from canvas.document.document import Entry
from canvas.errors import InvalidCanvas

Params: TypeAlias = dict[str, Any]

_AS_TEXT: Mapping[bool, str] = {True: "true", False: "false"}
_BY_VALUE: Mapping[str, str] = {"=": "is", "≠": "is not"}  # what a Loop calls equality of anything but numbers


def switch_params(entry: Entry, params: Params) -> Params:
    """A Switch's params in the main shape."""
    groups = params.get("conditions") or params.get("cases") or params.get("groups")
    if isinstance(groups, list):
        params["conditions"] = [_group(entry, position, group) for position, group in enumerate(groups)]
    if not params.get("end_cpn_ids") and "default" in params:
        params["end_cpn_ids"] = _listed(params["default"])
    return params


def loop_params(entry: Entry, params: Params) -> Params:
    """A Loop's params in the main shape. A condition to go on with becomes its opposite, the one to end with."""
    rows = params.get("loop_termination_condition")
    if not rows and isinstance(text := params.get("condition"), str) and text.strip():
        ending = _read(entry, "condition", text).negated()
        params["loop_termination_condition"] = [_ending(entry, params, clause) for clause in ending.clauses]
        params["logical_operator"] = ending.joined_by
    elif isinstance(rows, list):
        params["loop_termination_condition"] = [_row(entry, params, row) for row in rows]
    if not params.get("maximum_loop_count") and "max_iterations" in params:
        params["maximum_loop_count"] = params["max_iterations"]
    return params


def _group(entry: Entry, position: int, group: Any) -> Any:
    if not isinstance(group, Mapping):
        return group
    unfolded = dict(group)
    if isinstance(text := group.get("condition"), str):
        condition = _read(entry, f"cases[{position}].condition", text)
        unfolded["logical_operator"] = condition.joined_by
        unfolded["items"] = [_item(clause) for clause in condition.clauses]
    elif isinstance(clauses := group.get("clauses"), list):
        unfolded["logical_operator"] = group.get("logical_operator") or group.get("op") or "and"
        unfolded["items"] = [_compared(clause, "left", "right") for clause in clauses]
    elif isinstance(items := group.get("items"), list):
        unfolded["items"] = [_compared(item, "var", "value") for item in items]
    if "to" in group:
        unfolded["to"] = _listed(group["to"])
    return unfolded


def _item(clause: Clause) -> Params:
    value = clause.right
    operand = "" if value is None else _AS_TEXT[value] if isinstance(value, bool) else str(value)
    return {"cpn_id": clause.left, "operator": clause.operator, "value": operand}


def _compared(item: Any, left: str, right: str) -> Any:
    """`{left, op, right}` as `{cpn_id, operator, value}`; the main shape stays as it is."""
    if not isinstance(item, Mapping) or "cpn_id" in item or left not in item:
        return item
    return {
        "cpn_id": _bare(item[left]),
        "operator": conditions.operator_named(item.get("op", item.get("operator"))),
        "value": "" if item.get(right) is None else item[right],
    }


def _ending(entry: Entry, params: Params, clause: Clause) -> Params:
    variable = _qualified(entry, params, clause.left)
    refers = isinstance(clause.right, str) and clause.right.startswith("{") and references.parse(clause.right)
    is_number = isinstance(clause.right, int | float) and not isinstance(clause.right, bool)
    operator = clause.operator if is_number or refers else _BY_VALUE.get(clause.operator, clause.operator)
    return {
        "variable": variable,
        "operator": operator,
        "input_mode": "variable" if refers else "constant",
        "value": _bare(clause.right) if refers else clause.right,
    }


def _row(entry: Entry, params: Params, row: Any) -> Any:
    """`{var, op, value}` as `{variable, operator, value}`; the main shape stays as it is."""
    if not isinstance(row, Mapping) or "variable" in row or not isinstance(row.get("var"), str):
        return row
    operator = conditions.operator_named(row.get("op", row.get("operator")))
    value = row.get("value")
    if not isinstance(value, int | float) or isinstance(value, bool):
        operator = _BY_VALUE.get(operator, operator)
    rest = {key: row[key] for key in row if key not in ("var", "op")}
    return {**rest, "variable": _qualified(entry, params, _bare(row["var"])), "operator": operator}


def _qualified(entry: Entry, params: Params, name: str) -> str:
    """A bare name is a variable of the loop if it declares one so called, else a conversation variable."""
    if "@" in name or references.parse(name) is not None:
        return name
    variables = params.get("loop_variables")
    rows = [row for row in variables if isinstance(row, Mapping)] if isinstance(variables, list) else []
    return f"{entry.id}@{name}" if any(row.get("variable") == name for row in rows) else f"env.{name}"


def _read(entry: Entry, field: str, text: str) -> Condition:
    try:
        return conditions.read(text)
    except BadCondition as bad:
        message = f'Node "{entry.name}" ({entry.id}): {field} {bad}.'
        raise InvalidCanvas(message, node=entry.id, field=field) from bad


def _bare(value: Any) -> Any:
    return value.strip("{} \t") if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value
