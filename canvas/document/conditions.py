"""Conditions as some canvases write them, `{sys.n} > 5 and {begin@x} contains 'a'`: parsed, never evaluated as code."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

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
MAX_LENGTH = 4000  # characters; quotes that never close would otherwise be searched again and again

_OPPOSITES = {**OPPOSITES, **{right: left for left, right in OPPOSITES.items()}}
_JOINT = re.compile(r""""(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|(?<!\S)(?P<joint>and|or)(?!\S)""", re.IGNORECASE)
_CLAUSE = re.compile(
    r"\s*+(?P<left>\{[^{}]*+\}|\{\{[^{}]*+\}\}|[^\s{}=!<>]++)\s*+"
    r"(?P<operator>==|!=|>=|<=|>|<|not\s++contains\b|contains\b)\s*+(?P<right>\S.*+)",
    re.IGNORECASE | re.DOTALL,
)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None, "none": None}


class BadCondition(ValueError):
    """A condition does not read `left op right`, or joins clauses by both `and` and `or`."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One comparison. `left` has no braces; `right` is a literal, or the text of a reference with its braces."""

    left: str
    operator: str
    right: bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Condition:
    clauses: tuple[Clause, ...]
    joined_by: str = "and"

    def negated(self) -> "Condition":
        """The condition that holds exactly when this one does not."""
        clauses = tuple(replace(clause, operator=_OPPOSITES[clause.operator]) for clause in self.clauses)
        return Condition(clauses, "or" if self.joined_by == "and" else "and")


def read(text: str) -> Condition:
    """The condition that a text spells. Raises BadCondition if it spells none."""
    if len(text) > MAX_LENGTH:
        raise BadCondition(f"is longer than {MAX_LENGTH} characters")
    parts: list[str] = []
    joints: set[str] = set()
    start = 0
    for match in _JOINT.finditer(text):
        if joint := match.group("joint"):
            parts.append(text[start : match.start()])
            joints.add(joint.lower())
            start = match.end()
    parts.append(text[start:])
    if len(joints) > 1:
        raise BadCondition(f"joins by both `and` and `or`: {text[:200]!r}")
    return Condition(tuple(_clause(part) for part in parts), next(iter(joints), "and"))


def operator_named(name: Any) -> Any:
    """The operator of the main shape for an alias; anything else as it is."""
    return OPERATORS.get(name.strip().lower(), name) if isinstance(name, str) else name


def _clause(text: str) -> Clause:
    match = _CLAUSE.fullmatch(text)
    if match is None:
        raise BadCondition(f"is not of the form `left op right`: {text.strip()[:200]!r}")
    operator = operator_named(" ".join(match["operator"].lower().split()))
    clause = Clause(match["left"].strip("{} \t"), operator, _literal(match["right"].strip()))
    if clause.right is not None:
        return clause
    if operator not in ("=", "≠"):
        raise BadCondition(f"compares the order of null: {text.strip()[:200]!r}")
    return replace(clause, operator="empty" if operator == "=" else "not empty")


def _literal(text: str) -> bool | int | float | str | None:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return _ESCAPED.sub(r"\1", text[1:-1])
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text
