"""Cut a text at several delimiters, in a time that grows with the text alone.

The cuts are those of `re.split("first|second|...", text)`: from left to right, and where several delimiters stand at
one place, at the first of them in their order. A regular expression tries each delimiter at each place in one call,
which holds the interpreter's lock to its end. Here an Aho-Corasick automaton reads the text once, from its end to its
beginning: reversed delimiters that end at a place are the delimiters that begin there.
"""

import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from canvas.errors import NodeFailure

MOST_DELIMITERS = 100_000  # characters of all of them; each is a state of the automaton


def split_at(text: str, delimiters: Sequence[str]) -> list[str]:
    """The pieces of a text between delimiters, empty ones too. Empty delimiters cut nothing.

    Raises NodeFailure for more than MOST_DELIMITERS characters of delimiters.
    """
    wanted = list(dict.fromkeys(filter(None, delimiters)))
    size = sum(map(len, wanted))
    if size > MOST_DELIMITERS:
        raise NodeFailure(f"The delimiters have {size:,} characters. Use up to {MOST_DELIMITERS:,}.")
    if not wanted:
        return [text]
    if len(wanted) == 1:
        return text.split(wanted[0])
    if all(len(delimiter) == 1 for delimiter in wanted):
        return re.split(f"[{''.join(map(re.escape, wanted))}]", text)
    pieces: list[str] = []
    end = 0
    for place, length in _places(text, wanted):
        if place >= end:
            pieces.append(text[end:place])
            end = place + length
    return [*pieces, text[end:]]


@dataclass(slots=True)
class _State:
    """The end of what was read, as far as it begins a reversed delimiter."""

    following: "dict[str, _State]" = field(default_factory=lambda: dict[str, _State]())
    shorter: "_State | None" = None  # the longest other state that ends in the same way; None: this is the first state
    number: int | None = None  # of the first delimiter that ends here


def _places(text: str, delimiters: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Each place at which a delimiter begins, from the left, and the length of the first one in their order."""
    first = _automaton(delimiters)
    candidates = re.compile(f"[{''.join(map(re.escape, first.following))}]")
    backwards = text[::-1]
    found: list[tuple[int, int]] = []
    state, read, size = first, 0, len(text)
    while read < size:
        if state is first:
            candidate = candidates.search(backwards, read)
            if candidate is None:
                break
            read = candidate.start()
        letter = backwards[read]
        while letter not in state.following and state.shorter is not None:
            state = state.shorter
        state = state.following.get(letter, first)
        read += 1
        if state.number is not None:
            found.append((size - read, len(delimiters[state.number])))
    return reversed(found)


def _automaton(delimiters: Sequence[str]) -> _State:
    first = _State()
    for number, delimiter in enumerate(delimiters):
        state = first
        for letter in reversed(delimiter):
            state = state.following.setdefault(letter, _State())
        state.number = number
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for letter, following in state.following.items():
            shorter = state.shorter
            while shorter is not None and letter not in shorter.following:
                shorter = shorter.shorter
            following.shorter = first if shorter is None else shorter.following[letter]
            numbers = [each for each in (following.number, following.shorter.number) if each is not None]
            following.number = min(numbers, default=None)
            waiting.append(following)
    return first
