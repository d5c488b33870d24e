"""Differences between JSON values, texts and canvas documents, as data for people: bounded, and marked where cut.

A change has a path (`prompts[0].content`), a kind (`changed`, `only_a`, `only_b`), the value of both sides, and for
texts a unified diff. Differences of documents are those of what runs: nodes, parameters, edges and variables, not the
drawing. Secrets are shown as they are, so the caller masks them before.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from canvas.document.document import Document, Entry

CHANGED, ONLY_A, ONLY_B = "changed", "only_a", "only_b"
MAX_PREVIEW = 16 * 1024  # characters of a value that is shown
MAX_TOTAL = 1024 * 1024  # characters of all values of a reply
MIN_PREVIEW = 200  # characters that are shown of each value even if the total is reached
MAX_CHANGES = 1000  # of two documents
MAX_DIFF_LINES = 1000  # of each text; comparing takes up to the square of it
MIN_DIFF_LENGTH = 80  # characters; shorter texts of one line are readable side by side
MISSING: Any = object()
"""In place of a value that one side does not have."""

_PLAIN_NAME = re.compile(r"[^\W\d][\w-]*(?::\w+)?")


@dataclass(slots=True)
class Room:
    """The characters that values of one reply may still take."""

    left: int = MAX_TOTAL

    def take(self, length: int) -> int:
        """Return how many of these characters may be shown, and count them."""
        shown = min(length, MAX_PREVIEW, max(self.left, MIN_PREVIEW))
        self.left -= shown
        return shown


@dataclass(slots=True)
class _Changes:
    """Changes found so far, up to MAX_CHANGES."""

    room: Room
    count: int = 0
    cut: bool = False
    found: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def is_equal(a: Any, b: Any) -> bool:
    """Return whether two JSON values are the same; unlike in Python, true is not 1. The order of keys is ignored."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(is_equal(a[name], b[name]) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(is_equal, a, b))
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def text_of(value: Any) -> str:
    """Return a value as a text to read: a text itself, other values as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def preview(value: Any, room: Room) -> dict[str, Any]:
    """Return `{value, chars, cut}`: the value, or the beginning of its text if it is too long to be shown."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = room.take(len(text))
    is_cut = shown < len(text)
    return {"value": text[:shown] if is_cut else value, "chars": len(text), "cut": is_cut}


def text_diff(a: str, b: str, room: Room) -> dict[str, Any]:
    """Return `{diff, diff_cut}`: a unified diff of the beginnings of two texts.

    `diff_cut`: one of the texts, or the diff, is longer than what is compared or shown.
    """
    (lines_a, is_cut_a), (lines_b, is_cut_b) = _compared_lines(a), _compared_lines(b)
    diff = "\n".join(difflib.unified_diff(lines_a, lines_b, "A", "B", lineterm=""))
    shown = room.take(len(diff))
    return {"diff": diff[:shown], "diff_cut": shown < len(diff) or is_cut_a or is_cut_b}


def _compared_lines(text: str) -> tuple[list[str], bool]:
    """Return the lines of a text that are compared, and whether there are more."""
    lines = text[:MAX_PREVIEW].split("\n")
    return lines[:MAX_DIFF_LINES], len(text) > MAX_PREVIEW or len(lines) > MAX_DIFF_LINES


def change_of(path: str, a: Any, b: Any, room: Room) -> dict[str, Any]:
    """Return the change of one value, with a diff if one of both is a longer text. MISSING stands for no value."""
    kind = ONLY_B if a is MISSING else ONLY_A if b is MISSING else CHANGED
    sides = {name: preview(value, room) for name, value in (("a", a), ("b", b)) if value is not MISSING}
    change: dict[str, Any] = {"path": path, "kind": kind, **{name: sides.get(name) for name in ("a", "b")}}
    is_text = isinstance(a, str) and isinstance(b, str)
    if kind == CHANGED and is_text and any("\n" in text or len(text) > MIN_DIFF_LENGTH for text in (a, b)):
        change |= text_diff(a, b, room)
    return change


def find_changes(path: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, value of A and value of B of everything in which two JSON values differ; MISSING if one has none.

    Lists are compared position by position.
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for name in dict.fromkeys([*a, *b]):
            yield from find_changes(_member(path, str(name)), a.get(name, MISSING), b.get(name, MISSING))
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
        for position in range(max(len(a), len(b))):
            yield from find_changes(f"{path}[{position}]", _item(a, position), _item(b, position))
    elif not is_equal(a, b):
        yield path, a, b


def _member(path: str, name: str) -> str:
    if _PLAIN_NAME.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{json.dumps(name, ensure_ascii=False)}]"


def _item(values: Sequence[Any], position: int) -> Any:
    return values[position] if position < len(values) else MISSING


def document_differences(a: Document, b: Document) -> dict[str, Any]:
    """Return `{same, changed, only_a, only_b, edges, variables, cut}` of what runs in two documents.

    `changed`: `[{node_id, name, component, changes}]` of nodes in both; `only_a` and `only_b`: nodes of one; `edges`:
    `{only_a, only_b}` as `[{from, to}]`; `variables`: changes of globals and environment variables by name. `same`:
    all of these are empty. `cut`: there are more than MAX_CHANGES.
    """
    changes = _Changes(Room())
    changed = [
        {**_node(b.entries[node]), "changes": found}
        for node, entry in a.entries.items()
        if node in b.entries and (found := _node_changes(entry, b.entries[node], changes))
    ]
    variables = _collect(changes, find_changes("", _variables(a), _variables(b)))
    edges_a, edges_b = _edges(a), _edges(b)
    only_a = [_node(entry) for node, entry in a.entries.items() if node not in b.entries]
    only_b = [_node(entry) for node, entry in b.entries.items() if node not in a.entries]
    edges = {
        "only_a": _limit([_edge(each) for each in edges_a if each not in edges_b], changes),
        "only_b": _limit([_edge(each) for each in edges_b if each not in edges_a], changes),
    }
    return {
        "same": not (changed or variables or only_a or only_b or edges["only_a"] or edges["only_b"]),
        "changed": changed,
        "only_a": _limit(only_a, changes),
        "only_b": _limit(only_b, changes),
        "edges": edges,
        "variables": variables,
        "cut": changes.cut,
    }


def _limit(found: list[dict[str, Any]], changes: _Changes) -> list[dict[str, Any]]:
    changes.cut = changes.cut or len(found) > MAX_CHANGES
    return found[:MAX_CHANGES]


def _node_changes(a: Entry, b: Entry, changes: _Changes) -> list[dict[str, Any]]:
    described_a = {"component": a.component, "name": a.name, "parent": a.parent}
    described_b = {"component": b.component, "name": b.name, "parent": b.parent}
    return [
        *_collect(changes, find_changes("", described_a, described_b)),
        *_collect(changes, find_changes("params", a.params, b.params)),
    ]


def _collect(changes: _Changes, found: Iterator[tuple[str, Any, Any]]) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    for path, a, b in found:
        if changes.count == MAX_CHANGES:
            changes.cut = True
            break
        changes.count += 1
        shown.append(change_of(path, a, b, changes.room))
    return shown


def _variables(document: Document) -> dict[str, Any]:
    return {"globals": dict(document.globals), "variables": dict(document.variables)}


def _edges(document: Document) -> dict[tuple[str, str], None]:
    return dict.fromkeys((entry.id, target) for entry in document.entries.values() for target in entry.downstream)


def _edge(edge: tuple[str, str]) -> dict[str, Any]:
    return {"from": edge[0], "to": edge[1]}


def _node(entry: Entry) -> dict[str, Any]:
    return {"node_id": entry.id, "name": entry.name, "component": entry.component}
