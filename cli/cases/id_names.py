"""Ids in a case are names, since a replay has ids of its own: `<easel:run>`, `<easel:step:LLM:0//0>`.

So two recordings of the same run are equal, and a text that contains an id is compared like any other.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote
from uuid import UUID

_ID = re.compile(r"(?<![0-9a-fA-F])[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}(?![0-9a-fA-F])")
_NAME = re.compile(r"<easel:([^<>]*?)(~?)>")
_HYPHENS = "~"  # ends the name of an id that was written with hyphens


@dataclass(frozen=True, slots=True)
class IdNames:
    """The names of ids, both ways."""

    by_id: dict[UUID, str] = field(default_factory=dict[UUID, str])
    by_name: dict[str, UUID] = field(default_factory=dict[str, UUID])

    def add(self, name: str, known: UUID) -> None:
        """Name an id. The first name of an id counts."""
        if known not in self.by_id:
            self.by_id[known] = name
            self.by_name[name] = known

    def with_names(self, value: Any) -> Any:
        """Return a JSON value with names in place of known ids, also within texts and as keys."""
        return change_texts(value, lambda text: _ID.sub(self._name, text))

    def with_ids(self, value: Any) -> Any:
        """Return a JSON value with ids in place of their names. A name without an id stays."""
        return change_texts(value, lambda text: _NAME.sub(self._id, text))

    def _name(self, match: re.Match[str]) -> str:
        name = self.by_id.get(UUID(match[0]))
        return match[0] if name is None else f"<easel:{name}{_HYPHENS if match[1] else ''}>"

    def _id(self, match: re.Match[str]) -> str:
        found = self.by_name.get(match[1])
        if found is None:
            return match[0]
        return str(found) if match[2] else found.hex


def step_name(node_id: str, scope: str, ordinal: int) -> str:
    """Return the name of an activation's id. It contains neither angle brackets nor a tilde."""
    return f"step:{quote(node_id, safe=':')}/{quote(scope, safe=':#.')}/{ordinal}".replace(_HYPHENS, "%7E")


def file_name(step: str, place: str, name: str) -> str:
    """Return the name of the id of a file that a step has produced."""
    return f"file:{step}/{quote(place, safe=':')}/{quote(name, safe='.')}".replace(_HYPHENS, "%7E")


def change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value with every text changed, keys included."""
    match value:
        case str():
            return change(value)
        case Mapping():
            return {change(str(name)): change_texts(member, change) for name, member in value.items()}
        case list() | tuple():
            return [change_texts(item, change) for item in value]
        case _:
            return value
