"""Conditions of Switch and Loop: parsing of condition texts, and other shapes of params converted to the main shape.

A condition text, `{sys.n} > 5 and {begin@x} contains 'a'`, is parsed and never evaluated as code.

The main shape of a Switch is `conditions` and `end_cpn_ids`, that of a Loop `loop_termination_condition`. Other
shapes: a Switch with `cases`, whose conditions are texts or groups of clauses, and `default`; a Loop with `condition`
(the loop continues while it holds) and `max_iterations`; in both, condition objects `{var, op, value}`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from canvas.document import references
from canvas.document.document import Entry
from canvas.errors import InvalidCanvas

Params: TypeAlias = dict[str, Any]

OPERATORS: Mapping[str, str] = {
    "==": "=",
    "eq": "=",
    "equals": "=",
    "!=": "≠",
    "<>": "≠",
    "ne": "≠",
    ">=": "≥",
    "ge": "≥",
    "gte": "≥",
    "<=": "≤",
    "le": "≤",
    "lte": "≤",
    "gt": ">",
    "lt": "<",
}
OPPOSITES: Mapping[str, str] = {
    "=": "≠",
    ">": "≤",
    "<": "≥",
    "contains": "not contains",
    "empty": "not empty",
    "is": "is not",
}
MAX_LENGTH = 4000  # characters; in a longer text, searching for unclosed quotes again and again would take long

_OPPOSITES = {**OPPOSITES, **{right: left for left, right in OPPOSITES.items()}}
_CONNECTIVE = re.compile(
    r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|(?<!\S)(?P<connective>and|or)(?!\S)""", re.IGNORECASE
)
_CLAUSE = re.compile(
    r"\s*+(?P<left>\{[^{}]*+\}|\{\{[^{}]*+\}\}|[^\s{}=!<>]++)\s*+"
    r"(?P<operator>==|!=|>=|<=|>|<|not\s++contains\b|contains\b)\s*+(?P<right>\S.*+)",
    re.IGNORECASE | re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_WORD_LITERALS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}
_BOOLEAN_TEXTS: Mapping[bool, str] = {True: "true", False: "false"}
_NON_NUMERIC_OPERATORS: Mapping[str, str] = {"=": "is", "≠": "is not"}  # in a Loop, for values other than numbers


class BadCondition(ValueError):
    """Raised for a text that is not of the form `left op right`, or that joins clauses by both `and` and `or`."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One comparison. `left` has no braces; `right` is a literal, or the text of a reference with its braces."""

    left: str
    operator: str
    right: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition text: clauses, all of which (`and`) or one of which (`or`) must hold."""

    clauses: tuple[Clause, ...]
    joined_by: str = "and"

    def negate(self) -> "Condition":
        """Return the condition that holds exactly when this one does not."""
        clauses = tuple(replace(clause, operator=_OPPOSITES[clause.operator]) for clause in self.clauses)
        return Condition(clauses, "or" if self.joined_by == "and" else "and")


def switch_params(entry: Entry, params: Params) -> Params:
    """Return the params of a Switch in the main shape. Changes `params` in place."""
    groups = params.get("conditions") or params.get("cases") or params.get("groups")
    if isinstance(groups, list):
        params["conditions"] = [_normalize_group(entry, position, group) for position, group in enumerate(groups)]
    if not params.get("end_cpn_ids") and "default" in params:
        params["end_cpn_ids"] = _as_list(params["default"])
    return params


def loop_params(entry: Entry, params: Params) -> Params:
    """Return the params of a Loop in the main shape. Changes `params` in place.

    `condition` says when the loop continues, so its negation becomes the termination condition.
    """
    rows = params.get("loop_termination_condition")
    if not rows and isinstance(text := params.get("condition"), str) and text.strip():
        termination = _parse_field(entry, "condition", text).negate()
        params["loop_termination_condition"] = [_row_of_clause(entry, params, clause) for clause in termination.clauses]
        params["logical_operator"] = termination.joined_by
    elif isinstance(rows, list):
        params["loop_termination_condition"] = [_normalize_row(entry, params, row) for row in rows]
    if not params.get("maximum_loop_count") and "max_iterations" in params:
        params["maximum_loop_count"] = params["max_iterations"]
    return params


def parse_condition(text: str) -> Condition:
    """Parse a condition text. Raises BadCondition."""
    if len(text) > MAX_LENGTH:
        raise BadCondition(f"is longer than {MAX_LENGTH} characters")
    parts: list[str] = []
    connectives: set[str] = set()
    start = 0
    for match in _CONNECTIVE.finditer(text):
        if connective := match.group("connective"):
            parts.append(text[start : match.start()])
            connectives.add(connective.lower())
            start = match.end()
    parts.append(text[start:])
    if len(connectives) > 1:
        raise BadCondition(f"joins by both `and` and `or`: {text[:200]!r}")
    return Condition(tuple(_parse_clause(part) for part in parts), next(iter(connectives), "and"))


def canonical_operator(name: Any) -> Any:
    """Return the operator of the main shape for an alias; any other value is returned unchanged."""
    return OPERATORS.get(name.strip().lower(), name) if isinstance(name, str) else name


def _normalize_group(entry: Entry, position: int, group: Any) -> Any:
    if not isinstance(group, Mapping):
        return group
    normalized = dict(group)
    if isinstance(text := group.get("condition"), str):
        condition = _parse_field(entry, f"cases[{position}].condition", text)
        normalized["logical_operator"] = condition.joined_by
        normalized["items"] = [_item_of_clause(clause) for clause in condition.clauses]
    elif isinstance(clauses := group.get("clauses"), list):
        normalized["logical_operator"] = group.get("logical_operator") or group.get("op") or "and"
        normalized["items"] = [_normalize_item(clause, "left", "right") for clause in clauses]
    elif isinstance(items := group.get("items"), list):
        normalized["items"] = [_normalize_item(item, "var", "value") for item in items]
    if "to" in group:
        normalized["to"] = _as_list(group["to"])
    return normalized


def _item_of_clause(clause: Clause) -> Params:
    value = clause.right
    operand = "" if value is None else _BOOLEAN_TEXTS[value] if isinstance(value, bool) else str(value)
    return {"cpn_id": clause.left, "operator": clause.operator, "value": operand}


def _normalize_item(item: Any, left: str, right: str) -> Any:
    """Convert `{left, op, right}` to `{cpn_id, operator, value}`; an item in the main shape is returned unchanged."""
    if not isinstance(item, Mapping) or "cpn_id" in item or left not in item:
        return item
    return {
        "cpn_id": _strip_braces(item[left]),
        "operator": canonical_operator(item.get("op", item.get("operator"))),
        "value": "" if item.get(right) is None else item[right],
    }


def _row_of_clause(entry: Entry, params: Params, clause: Clause) -> Params:
    variable = _qualify_name(entry, params, clause.left)
    is_reference = isinstance(clause.right, str) and clause.right.startswith("{") and references.parse(clause.right)
    is_number = isinstance(clause.right, int | float) and not isinstance(clause.right, bool)
    operator = (
        clause.operator if is_number or is_reference else _NON_NUMERIC_OPERATORS.get(clause.operator, clause.operator)
    )
    return {
        "variable": variable,
        "operator": operator,
        "input_mode": "variable" if is_reference else "constant",
        "value": _strip_braces(clause.right) if is_reference else clause.right,
    }


def _normalize_row(entry: Entry, params: Params, row: Any) -> Any:
    """Convert `{var, op, value}` to `{variable, operator, value}`; a row in the main shape is returned unchanged."""
    if not isinstance(row, Mapping) or "variable" in row or not isinstance(row.get("var"), str):
        return row
    operator = canonical_operator(row.get("op", row.get("operator")))
    value = row.get("value")
    if not isinstance(value, int | float) or isinstance(value, bool):
        operator = _NON_NUMERIC_OPERATORS.get(operator, operator)
    rest = {key: row[key] for key in row if key not in ("var", "op")}
    return {**rest, "variable": _qualify_name(entry, params, _strip_braces(row["var"])), "operator": operator}


def _qualify_name(entry: Entry, params: Params, name: str) -> str:
    """Qualify a bare name: a variable that the loop declares, else a conversation variable."""
    if "@" in name or references.parse(name) is not None:
        return name
    variables = params.get("loop_variables")
    rows = [row for row in variables if isinstance(row, Mapping)] if isinstance(variables, list) else []
    return f"{entry.id}@{name}" if any(row.get("variable") == name for row in rows) else f"env.{name}"


def _parse_field(entry: Entry, field: str, text: str) -> Condition:
    try:
        return parse_condition(text)
    except BadCondition as bad:
        message = f'Node "{entry.name}" ({entry.id}): {field} {bad}.'
        raise InvalidCanvas(message, node=entry.id, field=field) from bad


def _strip_braces(value: Any) -> Any:
    return value.strip("{} \t") if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _parse_clause(text: str) -> Clause:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise BadCondition(f"is not of the form `left op right`: {text.strip()[:200]!r}")
    operator = canonical_operator(" ".join(match["operator"].lower().split()))
    clause = Clause(match["left"].strip("{} \t"), operator, _parse_literal(match["right"].strip()))
    if clause.right is not None:
        return clause
    if operator not in ("=", "≠"):
        raise BadCondition(f"orders null, which has no order: {text.strip()[:200]!r}")
    return replace(clause, operator="empty" if operator == "=" else "not empty")


def _parse_literal(text: str) -> bool | int | float | str | None:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return _ESCAPED.sub(r"\1", text[1:-1])
    if text.lower() in _WORD_LITERALS:
        return _WORD_LITERALS[text.lower()]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text
