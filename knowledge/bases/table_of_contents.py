"""A document's table of contents, built from the headings in its chunks, and the passages below a heading.

A heading is a line that Markdown marks as one (web pages are stored so), that begins with a number of at least two
parts (`3.2 Notice`), or with a word and a number (`Chapter 4`, `Anhang B`). A single number is not enough: lists have
them, too.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_HEADINGS = 200  # headings that a model gets; of more, the deepest levels are left out

_MAX_LENGTH = 120  # characters; a longer line is a sentence
_MARKDOWN_HEADING = re.compile(r"(#{1,6})[ \t]+(\S.*?)[ \t#]*")
_NUMBERED = re.compile(r"(\d{1,3}(?:\.\d{1,3}){1,4})\.?[ \t]+(?=\S*[^\W\d_])\S.*[^.;:,!?\s]")
_WORD_AND_NUMBER = re.compile(
    r"(?:(?:chapter|part|section|appendix|article|kapitel|teil|abschnitt|anhang|artikel|chapitre|partie|annexe|capítulo|"
    r"capitolo)[ \t]+(?:\d{1,3}|[ivxlc]{1,7}|[a-z])\b.*|第[0-9零一二三四五六七八九十百]{1,5}[章节節条條篇部].*)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SectionHeading:
    """A heading and the position of its chunk.

    `level` 1 is the highest; `begins_chunk`: the chunk begins with the heading.
    """

    position: int
    level: int
    title: str
    begins_chunk: bool = False


def find_headings(chunks: Sequence[tuple[int, str]]) -> list[SectionHeading]:
    """Return the headings of a document's chunks (position, text) in their order, each once.

    A chunk repeats the end of the previous one, with its headings; these are left out.
    """
    found = list[SectionHeading]()
    before = -1, list[tuple[int, str]]()
    for position, text in chunks:
        here = list(_parse_headings(text))
        known = _count_repeated(before[1], here) if position == before[0] + 1 else 0
        begins = bool(here) and not known and text.lstrip(" \t\n#").startswith(here[0][1])
        found += [SectionHeading(position, *each, begins and at == 0) for at, each in enumerate(here[known:])]
        before = position, here
    return found


def limit_headings(headings: Sequence[SectionHeading], limit: int = MAX_HEADINGS) -> list[SectionHeading]:
    """Return at most `limit` headings: whole levels from the highest on; if the highest has more, its first ones."""
    fitting = list[SectionHeading]()
    for level in sorted({each.level for each in headings}):
        wider = [each for each in headings if each.level <= level]
        if len(wider) > limit:
            return fitting or wider[:limit]
        fitting = wider
    return fitting


def section_chunks(headings: Sequence[SectionHeading], heading: SectionHeading, end: int) -> range:
    """Return the chunks of a heading's section; `end` is the document's last chunk."""
    following = headings[headings.index(heading) + 1 :]
    last = next((each.position - each.begins_chunk for each in following if each.level <= heading.level), end)
    return range(heading.position, max(last, heading.position) + 1)


def _parse_headings(text: str) -> Iterator[tuple[int, str]]:
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or len(stripped) > _MAX_LENGTH:
            continue
        if marked := _MARKDOWN_HEADING.fullmatch(stripped):
            yield len(marked[1]), marked[2]
        elif numbered := _NUMBERED.fullmatch(stripped):
            yield numbered[1].count(".") + 1, stripped
        elif _WORD_AND_NUMBER.fullmatch(stripped):
            yield 1, stripped


def _count_repeated(before: Sequence[tuple[int, str]], here: Sequence[tuple[int, str]]) -> int:
    """Return how many headings at the beginning repeat the last ones of the previous chunk."""
    return next((size for size in range(min(len(before), len(here)), 0, -1) if before[-size:] == here[:size]), 0)
