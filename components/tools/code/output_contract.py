"""The output contract of a code node: the name and type of its one own output (docs/tools.md).

    contract = contract_of({"result": {"type": "Array<Number>"}})
    contract.find_mismatch([1, "x"])   ->  "CodeExec contract mismatch at [1]: expected type Number, got String"
    type_of([1, "x"])                  ->  "Array<Any>"
    content_text({"a": 1})             ->  '{\\n  "a": 1\\n}'

Types are those of JSON: a boolean is not a number, and null has the types Null and Any only.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from canvas.errors import ToolError
from components.text.python_text import read_literal
from providers.models.text.sanitizer import clean

ANY = "Any"
RESERVED = frozenset(
    {
        "content", "actual_type", "attachments", "_ERROR", "_ARTIFACTS", "_ATTACHMENT_CONTENT", "raw_result",
        "_created_time", "_elapsed_time",
    }
)  # fmt: skip
"""Outputs that every code node has; an author's own output must have another name."""

MAX_DEPTH = 100  # levels of a value, and of Array<Array<...>>
MAX_INTEGER = 10**4300 - 1  # Python does not convert longer numbers to text

_TYPES: Mapping[str, str] = {name.lower(): name for name in ("String", "Number", "Boolean", "Object", "Null", ANY)}
_ARRAY = re.compile(r"array\s*<(.*)>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class OutputContract:
    """The name and type of a node's own output: `array_depth` levels of arrays around `base_type`."""

    name: str
    base_type: str
    array_depth: int = 0

    @property
    def type_name(self) -> str:
        """The type as it is written: `Array<Number>`."""
        return "Array<" * self.array_depth + self.base_type + ">" * self.array_depth

    @property
    def is_unrestricted(self) -> bool:
        """Whether every value fulfils the contract."""
        return self.base_type == ANY and self.array_depth == 0

    def find_mismatch(self, value: Any) -> str | None:
        """Return what is wrong with a value; None if it fulfils the contract."""
        return _mismatch(value, self.base_type, self.array_depth, "")


def contract_of(outputs: Any) -> OutputContract:
    """Return the contract of declared outputs. Raises ToolError unless exactly one of them is the node's own."""
    declared = outputs if isinstance(outputs, Mapping) else {}
    own = [str(name) for name in declared if name not in RESERVED]
    if len(own) != 1:
        raise ToolError(f"CodeExec contract must contain exactly one business output, got {len(own)}")
    name = own[0]
    if not name.strip():
        raise ToolError("CodeExec business output name must not be empty")
    if name.strip() in RESERVED:
        raise ToolError(f"CodeExec reserved output name is not allowed: {name.strip()}")
    if "." in name:
        raise ToolError(f"CodeExec business output name must not contain '.': {name}")
    schema = declared[name]
    of, items = _parse_type(schema.get("type") if isinstance(schema, Mapping) else None)
    return OutputContract(name, of, items)


def type_of(value: Any) -> str:
    """Return the type of a JSON value; an empty array, or one with items of several types, is Array<Any>."""
    match value:
        case None:
            return "Null"
        case bool():
            return "Boolean"
        case int() | float():
            return "Number"
        case str():
            return "String"
        case Mapping():
            return "Object"
        case _:
            kinds = {type_of(item) for item in value}
            return f"Array<{kinds.pop() if len(kinds) == 1 else ANY}>"


def content_text(value: Any) -> str:
    """Return a value as the node's `content`: text as it is, objects and arrays as indented JSON, others as `str`."""
    if value is None:
        return ""
    if isinstance(value, Mapping | list):
        return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    return str(value)


def parse_printed(stdout: str) -> Any:
    """Parse the output of a program without a result: as JSON, else as a Python literal, else as text."""
    text = clean(stdout).strip()
    if not text:
        return ""
    try:
        return to_json_value(json.loads(text))
    except (ValueError, RecursionError):
        return read_literal(text)


def to_json_value(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Return a value as it can be stored: null for NaN and infinity, cleaned texts.

    Raises ToolError for a value that JSON cannot represent.
    """
    if levels == 0:
        raise ToolError(f"The result is nested more than {MAX_DEPTH} levels deep.")
    match value:
        case None | bool():
            return value
        case str():
            return clean(value)
        case int():
            if abs(value) > MAX_INTEGER:
                raise ToolError("The result has a number of more than 4,300 digits.")
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {clean(str(name)): to_json_value(member, levels - 1) for name, member in value.items()}
        case list() | tuple():
            return [to_json_value(item, levels - 1) for item in value]
        case _:
            raise ToolError(f"The result contains a value of type {type(value).__name__}, which JSON does not have.")


def _parse_type(written: Any) -> tuple[str, int]:
    """Return a type's plain type and the levels of arrays around it. Raises ToolError for an unknown type."""
    inner, levels = str(written or "").strip(), 0
    while (found := _ARRAY.fullmatch(inner)) and levels < MAX_DEPTH:
        inner, levels = found[1].strip(), levels + 1
    if not inner and not levels:
        return ANY, 0
    if inner.lower() not in _TYPES:
        raise ToolError(f"Unsupported expected type: {written}")
    return _TYPES[inner.lower()], levels


def _mismatch(value: Any, of: str, items: int, path: str) -> str | None:
    if items and isinstance(value, list):
        found = (_mismatch(item, of, items - 1, f"{path}[{number}]") for number, item in enumerate(value))
        return next((text for text in found if text), None)
    got = type_of(value)
    if not items and of in (ANY, got):
        return None
    expected = "Array<" * items + of + ">" * items
    return f"CodeExec contract mismatch at {path or 'value'}: expected type {expected}, got {got}"
