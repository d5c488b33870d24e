"""References of a statement as values beside it (tools 4, `bind_references`): the database never reads them as SQL.

    written = marked("SELECT * FROM t WHERE name LIKE '%{begin@name}%'", {"begin@name": "O'Hara"})
    written.bound(written.text, "mysql")   ->  Bound(("SELECT * FROM t WHERE name LIKE ", ""), ("%O'Hara%",))

A reference becomes a mark, a word that nobody has written, before the text is cut and judged. Where a mark is a word
of the statement, its value goes there, a list as several; a text in quotes that has marks in it becomes one value as a
whole. Anywhere else (in a name, in half a word) no value can stand, and the statement is not sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canvas.errors import ToolError
from components.text.splitting import replaced
from components.text.templates import templates
from components.text.templates.templates import json_text, value_text
from components.tools.sql import read_only_rules
from providers.interfaces import BoundStatement

MOST_VALUES = 1000  # of one statement; some databases take 2,100 or 32,767


@dataclass(frozen=True, slots=True)
class Marked:
    """A text with marks, the value of each, and how the author has written it."""

    text: str
    marks: Mapping[str, Any] = field(default_factory=dict[str, Any])
    written: Mapping[str, str] = field(default_factory=dict[str, str])

    def bound(self, statement: str, db_type: str) -> BoundStatement:
        """One of its statements with its values. Raises ToolError where no value can stand, and for too many."""
        from sqlglot import TokenType

        parts, values, position = [""], list[Any](), 0
        for token in read_only_rules.raw_tokens(statement, db_type) or ():
            as_it_is = statement[token.start : token.end + 1]
            if not any(mark in as_it_is for mark in self.marks):
                continue
            if as_it_is in self.marks:
                new = _several(self.marks[as_it_is])
            elif token.token_type == TokenType.STRING:
                new = [self._filled(token.text)]
            else:
                told = self.as_written(as_it_is)
                raise ToolError(f"No value can be bound in {told}: put a reference where a value stands, or in quotes.")
            parts[-1] += statement[position : token.start]
            parts += [", "] * (len(new) - 1) + [""]
            values += new
            position = token.end + 1
        if len(values) > MOST_VALUES:
            raise ToolError(f"A statement takes {MOST_VALUES:,} values at most.")
        parts[-1] += statement[position:]
        return BoundStatement(tuple(parts), tuple(values))

    def as_written(self, text: str) -> str:
        """A text that is about the statement, with references in place of marks."""
        return self._replaced(text, self.written)

    def _filled(self, text: str) -> str:
        return self._replaced(text, {mark: value_text(value) for mark, value in self.marks.items()})

    def _replaced(self, text: str, by_mark: Mapping[str, str]) -> str:
        """In one pass: what is put in may look like a mark, and is none."""
        return replaced(text, by_mark)


def marked(text: str, values: Mapping[str, Any]) -> Marked:
    """A text with a mark for each reference that has a value; others stay as they are written."""
    name = "easel_value"
    while name in text:
        name += "_"
    marks: dict[str, Any] = {}
    written: dict[str, str] = {}
    parts: list[str] = []
    for piece in templates.pieces(text):
        if isinstance(piece, str):
            parts.append(piece)
            continue
        as_it_is = text[piece.start : piece.end]
        if piece.expression not in values:
            parts.append(as_it_is)
            continue
        mark = f"{name}_{len(marks)}_"
        marks[mark], written[mark] = values[piece.expression], as_it_is
        parts.append(mark)
    return Marked("".join(parts), marks, written)


def _several(value: Any) -> Sequence[Any]:
    """What is bound for a value: itself, JSON for an object, each item of a list; NULL for a list without any."""
    if not isinstance(value, list):
        return [json_text(value) if isinstance(value, dict) else value]
    items: list[Any] = [json_text(item) if isinstance(item, dict | list) else item for item in value]
    return items or [None]
