"""Cut a text at several words, or replace them, in a time that grows with the text alone.

The places are those of a regular expression `first|second|...`: from left to right, and where several words stand at
one place, the first of them in their order. A regular expression tries each word at each place in one call, which holds
the interpreter's lock to its end. Here an Aho-Corasick automaton reads the text once, from its end to its beginning:
reversed words that end at a place are the words that begin there.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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
    for place, word in Words(wanted).places(text):
        pieces.append(text[end:place])
        end = place + len(word)
    return [*pieces, text[end:]]


def replaced(text: str, by_word: Mapping[str, str]) -> str:
    """The text with other texts in the places of words. What is put in is not looked through again."""
    pieces: list[str] = []
    end = 0
    for place, word in Words(list(filter(None, by_word))).places(text):
        pieces += [text[end:place], by_word[word]]
        end = place + len(word)
    return "".join([*pieces, text[end:]])


@dataclass(slots=True)
class _State:
    """The end of what was read, as far as it begins a reversed word."""

    following: "dict[str, _State]" = field(default_factory=lambda: dict[str, _State]())
    shorter: "_State | None" = None  # the longest other state that ends in the same way; None: this is the first state
    number: int | None = None  # of the first word that ends here


class Words:
    """Words, none of them empty, that are looked for in texts."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._first = _automaton(words)
        last_letters = "".join(map(re.escape, self._first.following))
        self._candidates = re.compile(f"[{last_letters}]") if last_letters else None

    def places(self, text: str) -> Iterator[tuple[int, str]]:
        """Where words stand, from the left, none within another: (position, word)."""
        end = 0
        for place, word in self._all(text):
            if place >= end:
                yield place, word
                end = place + len(word)

    def _all(self, text: str) -> Iterator[tuple[int, str]]:
        """Each place at which a word begins, and the first word in their order that does."""
        if self._candidates is None:
            return
        first, backwards = self._first, text[::-1]
        found: list[tuple[int, int]] = []
        state, read, size = first, 0, len(text)
        while read < size:
            if state is first:
                candidate = self._candidates.search(backwards, read)
                if candidate is None:
                    break
                read = candidate.start()
            letter = backwards[read]
            while letter not in state.following and state.shorter is not None:
                state = state.shorter
            state = state.following.get(letter, first)
            read += 1
            if state.number is not None:
                found.append((size - read, state.number))
        for place, number in reversed(found):
            yield place, self._words[number]


def _automaton(words: Sequence[str]) -> _State:
    first = _State()
    for number, word in enumerate(words):
        state = first
        for letter in reversed(word):
            state = state.following.setdefault(letter, _State())
        state.number = number if state.number is None else state.number
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
