"""The tokenizer: the words of a text, as they are stored and searched for.

Text with blanks is split into words, which are stemmed. Text without (Chinese, Japanese, Thai and related scripts, and
Korean, whose words have attached endings) becomes its pairs of adjacent letters and its single letters, so that a
query's pairs match wherever a passage has them.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any

from components.text.extraction.file_kinds import library_missing

MAX_QUERY_WORDS = 64  # words of a query; further ones add little
MAX_WORD_LENGTH = 200  # characters of a word that count; PostgreSQL accepts 2,046 bytes

_UNBROKEN = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3040-\u30ff\u31f0-\u31ff"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
)
_RUN = re.compile(f"(?P<unbroken>[{_UNBROKEN}]+)|(?P<word>(?:(?![{_UNBROKEN}])\\w)+)")
_STOP_WORDS = frozenset(  # stop words, removed from queries and not from passages
    """
    a an the and or but if of at by for with about to from in on is are was were be been being am do does did has have
    had i you he she it we they me him her us them my your his its our their this that these those what which who whom
    whose when where why how can could will would shall should may might must not no there here as so than then please
    tell
    """.split()  # noqa: SIM905 (a list of a hundred strings reads worse)
)


def passage_words(text: str, language: str) -> set[str]:
    """Return all words of a passage."""
    found = set[str]()
    for run, is_unbroken in _runs(text):
        if is_unbroken:
            found.update(run)
            found.update(run[at : at + 2] for at in range(len(run) - 1))
        else:
            found.add(_stem(run, language))
    return found


def query_words(question: str, language: str) -> list[str]:
    """Return a query's words, without stop words unless there are only those.

    Their number and order are the same for every language, so two of them may have the same stem.
    """
    words, stop_words = dict[str, str](), dict[str, str]()
    for run, is_unbroken in _runs(question):
        if is_unbroken:
            pairs = [run[at : at + 2] for at in range(len(run) - 1)] or [run]
            words.update((pair, pair) for pair in pairs)
        else:
            (stop_words if run in _STOP_WORDS else words)[run] = _stem(run, language)
    return list((words or stop_words).values())[:MAX_QUERY_WORDS]


def highlight(text: str, words: Collection[str], language: str) -> str:
    """Return the text with `<em>` around the words that are in `words`; "" if it has none."""
    spans = list[tuple[int, int]]()
    for found in _RUN.finditer(text):
        for start, end in _matching_spans(found.group(), found.lastgroup == "unbroken", words, language):
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


def _matching_spans(run: str, is_unbroken: bool, words: Collection[str], language: str) -> list[tuple[int, int]]:
    """Return the spans of a run, a word or letters without blanks, that match a wanted word."""
    if not is_unbroken:
        return [(0, len(run))] if not passage_words(run, language).isdisjoint(words) else []
    for size in (2, 1):  # a query has single letters only if they stand alone
        parts = ((at, run[at : at + size]) for at in range(len(run) - size + 1))
        if found := [(at, at + size) for at, part in parts if _normalize(part) in words]:
            return found
    return []


def _runs(text: str) -> Iterator[tuple[str, bool]]:
    """Yield words, and runs of letters of scripts without blanks (True)."""
    for found in _RUN.finditer(_normalize(text)):
        yield found.group(), found.lastgroup == "unbroken"


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


@lru_cache(maxsize=100_000)
def _stem(word: str, language: str) -> str:
    word = word[:MAX_WORD_LENGTH]
    if word.isdigit():
        return word
    return str(_stemmer(language.strip().lower()).stemWord(word))


@lru_cache(maxsize=64)
def _stemmer(language: str) -> Any:
    """Return the stemmer of a language; the English one for a language without a stemmer."""
    try:
        import snowballstemmer
    except ImportError as error:
        raise library_missing("knowledge", "Knowledge bases") from error
    return snowballstemmer.stemmer(language if language in snowballstemmer.algorithms() else "english")
