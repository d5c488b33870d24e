"""Comparison of values: the operators of Switch, and those of a Loop's termination conditions.

The two sets look alike, but follow different rules. Switch converts its operand to the kind of the value that it is
compared with, and compares texts without regard to case. A Loop has a set of operators for each type of value and
converts nothing, except a number written as text in an order comparison.
"""

from collections.abc import Callable, Mapping
from typing import Any

from canvas.errors import NodeFailure

OPERATOR_ALIASES = {
    "==": "=", "eq": "=", "!=": "≠", "<>": "≠", "ne": "≠", ">=": "≥", "ge": "≥", "<=": "≤", "le": "≤",
    "gt": ">", "lt": "<",
}  # fmt: skip

TEXT_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "not contains": lambda text, part: part not in text,
    "start with": lambda text, part: text.startswith(part),
    "end with": lambda text, part: text.endswith(part),
}
ORDER_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    "≥": lambda left, right: left >= right,
    "≤": lambda left, right: left <= right,
}


def switch_holds(left: Any, operator: Any, operand: Any) -> bool:
    """Return whether one item of a Switch's condition holds. Raises NodeFailure if the values cannot be compared."""
    operator = _canonical_operator(operator)
    if operator in ("empty", "not empty"):
        return bool(left) == (operator == "not empty")
    incomparable = False
    if _is_number(left, bools=True):
        operand, incomparable = _as_number(left, operand)
    if operator in TEXT_OPERATORS:
        return TEXT_OPERATORS[operator](_text(left).lower(), _text(operand).lower())
    if operator in ("=", "≠"):
        return (not incomparable and left == operand) == (operator == "=")
    if operator in ORDER_OPERATORS:
        if incomparable:
            raise _cannot_order(left, operator, operand)
        return _compare_order(left, operator, operand)
    raise NodeFailure(f"Not supported operator: {operator}", operator=str(operator))


def loop_holds(left: Any, operator: Any, operand: Any) -> bool:
    """Return whether one termination condition of a Loop holds. Raises NodeFailure if the type lacks the operator."""
    match left:
        case None:
            return operator == "empty"
        case str():
            return _text_condition(left, operator, operand)
        case bool():
            verdicts = {"is": left is operand, "is not": left is not operand, "empty": False, "not empty": True}
            return _verdict(verdicts, operator, left)
        case int() | float():
            return _number_condition(left, operator, operand)
        case dict():
            return _verdict({"empty": not left, "not empty": bool(left)}, operator, left)
        case list():
            verdicts = {
                "contains": operand in left, "not contains": operand not in left,
                "is": left == operand, "is not": left != operand,
                "empty": not left, "not empty": bool(left),
            }  # fmt: skip
            return _verdict(verdicts, operator, left)
        case _:
            raise _invalid(operator, left)


def _text_condition(left: str, operator: Any, operand: Any) -> bool:
    if operator in TEXT_OPERATORS:
        if not isinstance(operand, str):
            raise NodeFailure(f"A text can't be compared by '{operator}' with a {_kind(operand)}.")
        return TEXT_OPERATORS[operator](left, operand)
    verdicts = {"is": left == operand, "is not": left != operand, "empty": left == "", "not empty": left != ""}
    return _verdict(verdicts, operator, left)


def _number_condition(left: float, operator: Any, operand: Any) -> bool:
    operator = _canonical_operator(operator)
    if operator in ORDER_OPERATORS:
        number = operand if _is_number(operand, bools=True) else _float(operand) if isinstance(operand, str) else None
        if number is None:
            raise _cannot_order(left, operator, operand)
        return ORDER_OPERATORS[operator](left, number)
    return _verdict({"=": left == operand, "≠": left != operand, "empty": False, "not empty": True}, operator, left)


def _verdict(verdicts: Mapping[str, bool], operator: Any, left: Any) -> bool:
    if not isinstance(operator, str) or operator not in verdicts:
        raise _invalid(operator, left)
    return verdicts[operator]


def _as_number(left: Any, operand: Any) -> tuple[Any, bool]:
    """Return the operand converted to a number for a comparison with one, and whether the conversion failed."""
    number = _float(operand)
    if number is not None:
        return number, False
    if isinstance(left, bool) and isinstance(operand, str) and operand.lower() in ("true", "false"):
        return operand.lower() == "true", False
    return operand, True


def _compare_order(left: Any, operator: str, operand: Any) -> bool:
    """Compare by order: as numbers if both values can be read as numbers, else unconverted (texts alphabetically)."""
    one, other = _float(left), _float(operand)
    try:
        if one is not None and other is not None:
            return ORDER_OPERATORS[operator](one, other)
        return bool(ORDER_OPERATORS[operator](left, operand))
    except TypeError as error:
        raise _cannot_order(left, operator, operand) from error


def _canonical_operator(operator: Any) -> Any:
    return OPERATOR_ALIASES.get(operator, operator) if isinstance(operator, str) else str(operator)


def _is_number(value: Any, *, bools: bool) -> bool:
    return isinstance(value, int | float) and (bools or not isinstance(value, bool))


def _float(value: Any) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def _cannot_order(left: Any, operator: str, operand: Any) -> NodeFailure:
    return NodeFailure(f"'{operator}' does not work between {_kind(left)} and {_kind(operand)}.")


def _invalid(operator: Any, left: Any) -> NodeFailure:
    return NodeFailure(f"Invalid operator: {operator} (for a {_kind(left)})")
