"""References: `{node@output.path}`, `{sys.x}`, `{env.x}`, and the aliases `{item}`, `{index}`, `{result}`.

Inside a text a reference is written in braces. All balanced pairs of braces around it belong to it, with or without
blanks between them, so `{x}`, `{{ x }}` and `{ {x} }` are the same reference; blanks outside are text. Braces around
anything else (`{{ x | upper }}`, `{a b}`) are not references: they are Jinja or plain text.

A parameter that is a reference as a whole may be written without braces (`parse`). This module knows how references are
written, and how a path leads through a value; the caller knows which nodes and globals exist.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from canvas.errors import NodeFailure

Path: TypeAlias = tuple[str, ...]

ALIASES = ("item", "index", "result")

_BLANKS = " \t"
_GLOBAL = r"(?i:sys|env)\.[A-Za-z0-9_.]++"
_OUTPUT = r"[A-Za-z0-9_:]++@[A-Za-z0-9_.-]++(?:\[-?[0-9]{1,18}+\][A-Za-z0-9_.-]*+)*+"
# Possessive quantifiers: no part of a hostile text is scanned more than a few times.
_REFERENCE = re.compile(rf"\{{[ \t]*+({_OUTPUT}|{_GLOBAL})[ \t]*+\}}")
_EITHER = re.compile(rf"\{{[ \t]*+({_OUTPUT}|{_GLOBAL}|(?i:item|index|result))[ \t]*+\}}")
_BARE_GLOBAL = re.compile(r"(?:sys|env)\.[^\s@]+")
_BARE_OUTPUT = re.compile(r"[^\s@][^\n@]*@[^\s@][^\n@]*")
_INDEX = re.compile(r"-?[0-9]{1,18}")
_BRACKETS = re.compile(r"\[(-?[0-9]{1,18})\]")


@dataclass(frozen=True, slots=True)
class Ref:
    """A parsed reference: an output of a node (`root`) and a path into it, or a global (node None, path ()).

    An alias is a Ref without node whose root is one of ALIASES; `find` returns aliases only with `with_aliases`.
    """

    node: str | None
    root: str
    path: Path = ()

    @property
    def is_alias(self) -> bool:
        """Whether the reference is `{item}`, `{index}` or `{result}`."""
        return self.node is None and self.root in ALIASES

    @property
    def expression(self) -> str:
        """The reference as it is written, without braces."""
        name = ".".join((self.root, *self.path))
        return name if self.node is None else f"{self.node}@{name}"


@dataclass(frozen=True, slots=True)
class ReferenceMatch:
    """A reference in a text: `text[start:end]` with all its braces, `expression` without them."""

    start: int
    end: int
    expression: str
    ref: Ref


@dataclass(frozen=True, slots=True)
class Names:
    """The names that a value refers to: (node id, output name) pairs, globals, and aliases."""

    nodes: frozenset[tuple[str, str]] = frozenset()
    globals: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()


def find(text: str, *, with_aliases: bool = False) -> list[ReferenceMatch]:
    """Return every reference in a text, from left to right, without overlaps; a repeated reference is repeated.

    With aliases, `{item}`, `{index}` and `{result}`, in any case, are Refs without node, in lower case.
    """
    return _find_matches(text, _EITHER if with_aliases else _REFERENCE)


def parse(expression: str) -> Ref | None:
    """Parse a text that is a reference as a whole, with or without braces; return None for any other text.

    The grammar is more lenient than that inside texts: a node id or output name may contain any character but `@` and
    braces. So an e-mail address parses too; a caller checks whether the node or global exists.
    """
    inner = expression.strip("{}" + _BLANKS)
    if not inner or expression[0] in _BLANKS or expression[-1] in _BLANKS or "{" in inner or "}" in inner:
        return None
    if _BARE_OUTPUT.fullmatch(inner) or _BARE_GLOBAL.fullmatch(inner):
        return parse_reference(inner)
    return None


def parse_reference(expression: str) -> Ref:
    """Parse any text as a reference: without `@` it is a global, else the node id ends at the first `@`.

    Globals have no paths: `env.user.name` is one name. An index in brackets is a step of a path: `x[0].y` is `x.0.y`.
    """
    inner = expression.strip("{} \t\r\n")
    node, at, rest = inner.partition("@")
    if not at:
        return _alias_or_global(inner)
    root, *path = _BRACKETS.sub(r".\1", rest).split(".")
    return Ref(node, root, tuple(path))


def get_path(value: Any, path: Iterable[str]) -> Any:
    """Return the value that a path leads to; None if there is none. Never raises.

    Objects are entered by key, lists by whole number (negative ones count from the end), and a text is read as JSON
    before a step into it.
    """
    for step in path:
        if isinstance(value, str):
            value = _parse_json(value)
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list | tuple) and _INDEX.fullmatch(step) and -len(value) <= int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def assign_path(current: Any, path: Iterable[str], value: Any) -> Any:
    """Return the new value of a root after assigning `value` at `path` inside of it; nothing is mutated.

    Missing levels, and levels that are not objects, become objects. Raises NodeFailure if the root itself has a value
    that is not an object.
    """
    steps = tuple(path)
    if not steps:
        return value
    if current and not isinstance(current, Mapping):
        raise NodeFailure(f"Can't assign to '{'.'.join(steps)}' inside a value that is not an object.")
    root: dict[str, Any] = dict(current or {})
    level = root
    for step, _ in pairwise(steps):
        inner = level.get(step)
        level[step] = dict(inner) if isinstance(inner, Mapping) else {}
        level = level[step]
    level[steps[-1]] = value
    return root


def names_in(params: Any) -> Names:
    """Return the names that a JSON value refers to, in texts and as bare whole strings (`Agent:0@content`).

    Keys of objects are not searched. A bare text that only looks like a reference is included, so callers that load
    values beforehand miss none.
    """
    nodes: set[tuple[str, str]] = set()
    globals_: set[str] = set()
    seen_aliases: set[str] = set()
    for text in texts_in(params):
        refs = [found.ref for found in find(text, with_aliases=True)]
        if (whole := parse(text)) is not None:
            refs.append(whole)
        for ref in refs:
            if ref.node is not None:
                nodes.add((ref.node, ref.root))
            elif ref.is_alias:
                seen_aliases.add(ref.root)
            else:
                globals_.add(ref.root)
    return Names(frozenset(nodes), frozenset(globals_), frozenset(seen_aliases))


def texts_in(value: Any) -> Iterator[str]:
    """Yield every string of a JSON value, at any depth; keys of objects are left out."""
    todo = [value]
    while todo:
        match todo.pop():
            case str() as text:
                yield text
            case Mapping() as fields:
                todo.extend(reversed(list(fields.values())))
            case list() | tuple() as items:
                todo.extend(reversed(items))
            case _:
                pass


def _find_matches(text: str, pattern: re.Pattern[str]) -> list[ReferenceMatch]:
    matches: list[ReferenceMatch] = []
    floor = 0
    for match in pattern.finditer(text):
        start, end = _include_braces(text, match.start(), match.end(), floor)
        expression = match.group(1)
        matches.append(ReferenceMatch(start, end, expression, parse_reference(expression)))
        floor = end
    return matches


def _include_braces(text: str, start: int, end: int, floor: int) -> tuple[int, int]:
    """Extend `text[start:end]` by the pairs of braces around it; return the new start and end."""
    while True:
        left, right = start - 1, end
        while left >= floor and text[left] in _BLANKS:
            left -= 1
        while right < len(text) and text[right] in _BLANKS:
            right += 1
        if left < floor or right >= len(text) or text[left] != "{" or text[right] != "}":
            return start, end
        start, end = left, right + 1


def _alias_or_global(name: str) -> Ref:
    lower = name.lower()
    return Ref(None, lower if lower in ALIASES else name)


def _parse_json(text: str) -> Any:
    """Parse a text as JSON; None if it is not valid. NaN and infinities, which are not JSON, become None."""
    try:
        return json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
