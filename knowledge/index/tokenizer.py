"""The words of a text, as numbers that two texts share where they speak of the same.

What is written with blanks is cut into words, which are brought to their stems. What is not (Chinese, Japanese, Thai
and their neighbours, and Korean, whose words carry their endings) becomes its pairs of neighbouring letters, and its
single letters: a question's pairs are found wherever a passage has them side by side. A number is 32 bits of a hash: of
a million different words one in four thousand shares its number with another.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any
from zlib import crc32

from components.text.extraction.file_kinds import lacking

MOST_ASKED = 64  # words of a question; further ones tell little, and each is a bit of a number

_UNBROKEN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
)
_RUN = re.compile(f"(?P<unbroken>[{_UNBROKEN}]+)|(?P<word>(?:(?![{_UNBROKEN}])\\w)+)")
_SILENT = frozenset(  # of a question alone: passages keep them
    """
    a an the and or but if of at by for with about to from in on is are was were be been being am do does did has have
    had i you he she it we they me him her us them my your his its our their this that these those what which who whom
    whose when where why how can could will would shall should may might must not no there here as so than then please
    tell
    """.split()  # noqa: SIM905 (a list of a hundred strings reads worse)
)


def words_of(text: str, language: str) -> set[int]:
    """The numbers of all words in a passage."""
    found = set[int]()
    for run, is_unbroken in _runs(text):
        if is_unbroken:
            found.update(map(_number, run))
            found.update(_number(run[at : at + 2]) for at in range(len(run) - 1))
        else:
            found.add(_stemmed(run, language))
    return found


def asked(question: str, language: str) -> list[int]:
    """The numbers of a question's words, each word once, without those that every question has.

    In every language they are as many, and in the same order.
    """
    told, silent = dict[str, int](), dict[str, int]()
    for run, is_unbroken in _runs(question):
        if is_unbroken:
            pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
            told.update((pair, _number(pair)) for pair in pairs)
        else:
            (silent if run in _SILENT else told)[run] = _stemmed(run, language)
    return list((told or silent).values())[:MOST_ASKED]


def marked(text: str, wanted: Collection[int], language: str) -> str:
    """The text with `<em>` around the words whose numbers are wanted; "" where it has none of them."""
    spans = list[tuple[int, int]]()
    for found in _RUN.finditer(text):
        for start, end in _hits(found.group(), found.lastgroup == "unbroken", wanted, language):
            first, last = found.start() + start, found.start() + end
            if spans and spans[-1][1] >= first:  # pairs of letters overlap
                spans[-1] = spans[-1][0], last
            else:
                spans.append((first, last))
    parts, at = list[str](), 0
    for first, last in spans:
        parts += [text[at:first], "<em>", text[first:last], "</em>"]
        at = last
    return "".join([*parts, text[at:]]) if spans else ""


def _hits(run: str, is_unbroken: bool, wanted: Collection[int], language: str) -> list[tuple[int, int]]:
    """Where in a word, or in a run of letters that no blank divides, something wanted stands."""
    if not is_unbroken:
        return [(0, len(run))] if not words_of(run, language).isdisjoint(wanted) else []
    for size in (2, 1):  # single letters are asked for alone
        parts = ((at, run[at : at + size]) for at in range(len(run) - size + 1))
        if found := [(at, at + size) for at, part in parts if _number(_plain(part)) in wanted]:
            return found
    return []


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Words, and runs of letters that no blank divides."""
    for found in _RUN.finditer(_plain(text)):
        yield found.group(), found.lastgroup == "unbroken"


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


@lru_cache(maxsize=100_000)
def _stemmed(word: str, language: str) -> int:
    if word.isdigit():
        return _number(word)
    return _number(str(_stemmer(language.strip().lower()).stemWord(word)))


@lru_cache(maxsize=64)
def _stemmer(language: str) -> Any:
    """The stemmer of a language; English words turn up in texts of every other one."""
    try:
        import snowballstemmer
    except ImportError as error:
        raise lacking("knowledge", "Knowledge bases") from error
    return snowballstemmer.stemmer(language if language in snowballstemmer.algorithms() else "english")


def _number(word: str) -> int:
    return crc32(word.encode("utf-8", "replace"))
