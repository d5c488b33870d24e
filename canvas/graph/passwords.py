"""Masks of what people have typed into password fields of forms, for everything that shows values of a run.

The run itself works with the passwords. A field of the type `password` is shown as the mask, whatever was typed into
it. Elsewhere (a prompt that quotes it, an output made of it) the text of a password is replaced where it occurs, if it
has at least MIN_QUOTED_CHARS characters: a shorter one may be a part of any word.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MASK = "••••"
MIN_QUOTED_CHARS = 4


@dataclass(frozen=True, slots=True)
class PasswordMask:
    """Masks the passwords of one run; false without password fields. `fields`: their names by node."""

    fields: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    passwords: tuple[str, ...] = field(default=(), repr=False)  # as they may be quoted, the longest first

    @classmethod
    def of(cls, fields: Mapping[str, frozenset[str]], entered: Iterable[Any]) -> "PasswordMask":
        """Return the mask of what was entered: texts, numbers, or answers `{"value": …}`."""
        texts = {text for value in entered for text in _texts_in(value) if len(text) >= MIN_QUOTED_CHARS}
        spelled = {spelling for text in texts for spelling in spellings(text)}
        return cls(fields, tuple(sorted(spelled, key=lambda text: (-len(text), text))))

    def __bool__(self) -> bool:
        return bool(self.fields)

    def join(self, other: "PasswordMask") -> "PasswordMask":
        """Return the mask of the passwords of two runs, whose versions may have different fields."""
        nodes = dict.fromkeys([*self.fields, *other.fields])
        fields = {node: self.fields.get(node, frozenset()) | other.fields.get(node, frozenset()) for node in nodes}
        passwords = sorted({*self.passwords, *other.passwords}, key=lambda text: (-len(text), text))
        return PasswordMask(fields, tuple(passwords))

    def text(self, text: str) -> str:
        """Return a text with the mask in place of the passwords in it."""
        for password in self.passwords:
            if password in text:
                text = text.replace(password, MASK)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value with the mask in place of the passwords in its texts, and of numbers that are one."""
        if not self.passwords:
            return value
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.text(str(name)): self.value(member) for name, member in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
            case int() | float() if not isinstance(value, bool) and str(value) in self.passwords:
                return MASK
            case _:
                return value

    def node_values(self, node_id: str | None, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs or outputs of a node: its own password fields masked, and passwords in other values."""
        own = self.fields.get(node_id or "", frozenset())
        return {name: _hidden(value) if name in own else self.value(value) for name, value in values.items()}

    def answers(self, answers: Any) -> Any:
        """Return what a request or an answer to a form gives by field, with the password fields of any form masked."""
        if not isinstance(answers, Mapping) or not self:
            return answers
        names = frozenset[str]().union(*self.fields.values())
        return {name: _hidden(answer) if name in names else self.value(answer) for name, answer in answers.items()}


NO_PASSWORDS = PasswordMask()


def spellings(text: str) -> set[str]:
    """Return a text as it may be written: itself, and within JSON text, with escapes or without, once or twice."""
    spelled = {text}
    for _ in range(2):
        spelled |= {json.dumps(each, ensure_ascii=ascii_only)[1:-1] for each in spelled for ascii_only in (True, False)}
    return spelled


def _hidden(value: Any) -> Any:
    """Return the mask of a password; an answer keeps its shape, and a field that was not filled in shows that."""
    if isinstance(value, Mapping):
        return {name: _hidden(member) if name == "value" else member for name, member in value.items()}
    return value if value is None or value == "" else MASK


def _texts_in(value: Any) -> Iterable[str]:
    match value:
        case str():
            yield value
        case bool() | None:
            return
        case int() | float():
            yield str(value)
        case Mapping() if "value" in value or "type" in value:
            yield from _texts_in(value.get("value"))
        case Mapping():
            for member in value.values():
                yield from _texts_in(member)
        case list() | tuple():
            for item in value:
                yield from _texts_in(item)
        case _:
            return
