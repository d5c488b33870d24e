"""Split a text at several words, or replace them, in a time that depends only on the length of the text.

The matches are those of a regular expression `first|second|...`: from left to right, and if several words match at a
position, the first one in the given order. A regular expression would try each word at each position in one call, which
holds the interpreter's lock until its end. Here an Aho-Corasick automaton reads the text once, from its end to its
beginning: reversed words that end at a position are the words that begin there.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from canvas.errors import NodeFailure

MAX_DELIMITER_CHARS = 100_000  # characters of all delimiters together; each is a state of the automaton


def split_at(text: str, delimiters: Sequence[str]) -> list[str]:
    """Return the parts of a text between delimiters, including empty parts. Empty delimiters are ignored.

    Raises NodeFailure for more than MAX_DELIMITER_CHARS characters of delimiters.
    """
    distinct = list(dict.fromkeys(filter(None, delimiters)))
    size = sum(map(len, distinct))
    if size > MAX_DELIMITER_CHARS:
        raise NodeFailure(f"The delimiters have {size:,} characters. Use up to {MAX_DELIMITER_CHARS:,}.")
    if not distinct:
        return [text]
    if len(distinct) == 1:
        return text.split(distinct[0])
    if all(len(delimiter) == 1 for delimiter in distinct):
        return re.split(f"[{''.join(map(re.escape, distinct))}]", text)
    parts: list[str] = []
    end = 0
    for start, word in WordSearch(distinct).find_all(text):
        parts.append(text[end:start])
        end = start + len(word)
    return [*parts, text[end:]]


def replace_words(text: str, by_word: Mapping[str, str]) -> str:
    """Replace words in a text by other texts, which are not searched again."""
    parts: list[str] = []
    end = 0
    for start, word in WordSearch(list(filter(None, by_word))).find_all(text):
        parts += [text[end:start], by_word[word]]
        end = start + len(word)
    return "".join([*parts, text[end:]])


@dataclass(slots=True)
class _State:
    """A state of the automaton: the longest end of the text read so far that begins a reversed word."""

    children: "dict[str, _State]" = field(default_factory=lambda: dict[str, _State]())
    suffix_link: "_State | None" = None  # the longest other state with the same end; None in the first state
    number: int | None = None  # the number of the first word that ends here


class WordSearch:
    """A search for several non-empty words in texts."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._root = _build_automaton(words)
        last_letters = "".join(map(re.escape, self._root.children))
        self._candidates = re.compile(f"[{last_letters}]") if last_letters else None

    def find_all(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield (position, word) of each match, from left to right, without overlaps."""
        end = 0
        for start, word in self._find_candidates(text):
            if start >= end:
                yield start, word
                end = start + len(word)

    def _find_candidates(self, text: str) -> Iterator[tuple[int, str]]:
        """Yield each position at which a word begins, with the first such word in the given order."""
        if self._candidates is None:
            return
        first, backwards = self._root, text[::-1]
        found: list[tuple[int, int]] = []
        state, read, size = first, 0, len(text)
        while read < size:
            if state is first:
                candidate = self._candidates.search(backwards, read)
                if candidate is None:
                    break
                read = candidate.start()
            letter = backwards[read]
            while letter not in state.children and state.suffix_link is not None:
                state = state.suffix_link
            state = state.children.get(letter, first)
            read += 1
            if state.number is not None:
                found.append((size - read, state.number))
        for start, number in reversed(found):
            yield start, self._words[number]


def _build_automaton(words: Sequence[str]) -> _State:
    first = _State()
    for number, word in enumerate(words):
        state = first
        for letter in reversed(word):
            state = state.children.setdefault(letter, _State())
        state.number = number if state.number is None else state.number
    waiting = deque([first])
    while waiting:
        state = waiting.popleft()
        for letter, following in state.children.items():
            shorter = state.suffix_link
            while shorter is not None and letter not in shorter.children:
                shorter = shorter.suffix_link
            following.suffix_link = first if shorter is None else shorter.children[letter]
            numbers = [each for each in (following.number, following.suffix_link.number) if each is not None]
            following.number = min(numbers, default=None)
            waiting.append(following)
    return first
