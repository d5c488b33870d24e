"""Bound values: references of a statement are passed as values, which the database never parses as SQL
(`bind_references`, docs/tools.md).

    marked = mark_references("SELECT * FROM t WHERE name LIKE '%{begin@name}%'", {"begin@name": "O'Hara"})
    marked.bind(marked.text, "mysql")   ->  BoundStatement(("SELECT * FROM t WHERE name LIKE ", ""), ("%O'Hara%",))

Each reference is replaced by a marker, a word that the text does not contain, before the text is split into statements
and checked. A marker that is a word by itself becomes its value, a list several values; a quoted text with markers
becomes one value as a whole. Anywhere else (in a name, in a part of a word) a value cannot be bound, and the statement
is not sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canvas.errors import ToolError
from components.text.splitting import replace_words
from components.text.templates import templates
from components.text.templates.templates import json_text, value_text
from components.tools.sql import read_only_rules
from providers.interfaces import BoundStatement

MAX_VALUES = 1000  # of one statement; databases accept from 2,100 to 32,767


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text with markers, the value of each marker, and the author's reference that it replaces."""

    text: str
    values_by_marker: Mapping[str, Any] = field(default_factory=dict[str, Any])
    references_by_marker: Mapping[str, str] = field(default_factory=dict[str, str])

    def bind(self, statement: str, db_type: str) -> BoundStatement:
        """Return one statement with its bound values.

        Raises ToolError for a reference where a value cannot be bound, and for too many values.
        """
        from sqlglot import TokenType

        parts, values, position = [""], list[Any](), 0
        for token in read_only_rules.raw_tokens(statement, db_type) or ():
            as_it_is = statement[token.start : token.end + 1]
            if not any(mark in as_it_is for mark in self.values_by_marker):
                continue
            if as_it_is in self.values_by_marker:
                new = _values_to_bind(self.values_by_marker[as_it_is])
            elif token.token_type == TokenType.STRING:
                new = [self._fill_values(token.text)]
            else:
                written = self.restore_references(as_it_is)
                raise ToolError(f"No value can be bound in {written}. Use a reference as a whole value or in quotes.")
            parts[-1] += statement[position : token.start]
            parts += [", "] * (len(new) - 1) + [""]
            values += new
            position = token.end + 1
        if len(values) > MAX_VALUES:
            raise ToolError(f"A statement can have {MAX_VALUES:,} values at most.")
        parts[-1] += statement[position:]
        return BoundStatement(tuple(parts), tuple(values))

    def restore_references(self, text: str) -> str:
        """Return a text about the statement with the author's references in place of the markers."""
        return self._replace_markers(text, self.references_by_marker)

    def _fill_values(self, text: str) -> str:
        return self._replace_markers(text, {mark: value_text(value) for mark, value in self.values_by_marker.items()})

    def _replace_markers(self, text: str, by_mark: Mapping[str, str]) -> str:
        """Replace all markers in one pass, because a replacement may look like a marker."""
        return replace_words(text, by_mark)


def mark_references(text: str, values: Mapping[str, Any]) -> MarkedText:
    """Return a text with a marker for each reference in `values`; other references stay as written."""
    name = "easel_value"
    while name in text:
        name += "_"
    marks: dict[str, Any] = {}
    written: dict[str, str] = {}
    parts: list[str] = []
    for part in templates.split_references(text):
        if isinstance(part, str):
            parts.append(part)
            continue
        as_it_is = text[part.start : part.end]
        if part.expression not in values:
            parts.append(as_it_is)
            continue
        mark = f"{name}_{len(marks)}_"
        marks[mark], written[mark] = values[part.expression], as_it_is
        parts.append(mark)
    return MarkedText("".join(parts), marks, written)


def _values_to_bind(value: Any) -> Sequence[Any]:
    """Return the values to bind: the value itself, JSON for an object, the items of a list, NULL for an empty list."""
    if not isinstance(value, list):
        return [json_text(value) if isinstance(value, dict) else value]
    items: list[Any] = [json_text(item) if isinstance(item, dict | list) else item for item in value]
    return items or [None]
