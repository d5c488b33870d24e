"""Lines: a paragraph cut where it must be to fit a width.

Breaks fall at blanks and beside Chinese, Japanese and Korean characters, but never before a closing or after an opening
mark. A word that is wider than a line is cut anywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from components.documents.blocks import Span
from components.documents.page.fonts import Face, Glyph

GlyphOf: TypeAlias = Callable[[str, Span], Glyph | None]
Cell: TypeAlias = tuple[Glyph, Span]

_NEVER_FIRST = frozenset("、。，．,.;:!?；：！？）)]}】」』〉》”’…—～·%‰℃ーぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮ々")
_NEVER_LAST = frozenset("（([{【「『〈《“‘$¥￥")


@dataclass(frozen=True, slots=True)
class Run:
    """Characters of one look that stand beside each other. `width` as in Glyph."""

    text: str
    face: Face
    span: Span
    width: float


def cells_of(spans: Iterable[Span], glyph_of: GlyphOf) -> list[Cell]:
    """The characters of a paragraph as they will be drawn; a line feed stays one, tabs and odd blanks are blanks."""
    cells: list[Cell] = []
    for span in spans:
        for char in span.text:
            if char == "\n":
                cells.append((_LINE_FEED, span))
            elif glyph := glyph_of(" " if char.isspace() and char not in "\u00a0\u202f\u3000" else char, span):
                cells.append((glyph, span))
    return cells


def broken(cells: Sequence[Cell], width: float, *, verbatim: bool = False) -> list[list[Run]]:
    """The lines of a paragraph, none wider than `width` (in thousandths of the font size) where that can be.

    Verbatim text keeps its blanks and is cut just where the width ends.
    """
    lines: list[list[Run]] = []
    start, used, cut = 0, 0.0, 0  # where this line begins, how wide it is so far, where it may end (0: nowhere yet)
    for position, (glyph, _) in enumerate(cells):
        if glyph is _LINE_FEED:
            lines.append(_runs(cells[start:position], verbatim))
            start, used, cut = position + 1, 0.0, 0
            continue
        if position > start and not verbatim and _may_part(cells[position - 1][0], glyph):
            cut = position
        used += glyph.width
        while used > width and position > start and (verbatim or glyph.char != " "):
            end = cut or position
            lines.append(_runs(cells[start:end], verbatim))
            start, cut = end, 0
            used = sum(part.width for part, _ in cells[start : position + 1])
    lines.append(_runs(cells[start:], verbatim))
    return lines


def natural_width(cells: Sequence[Cell]) -> float:
    """How wide a text is that is never cut but at its line feeds."""
    widest = used = 0.0
    for glyph, _ in cells:
        used = 0.0 if glyph is _LINE_FEED else used + glyph.width
        widest = max(widest, used)
    return widest


def shortened(cells: Sequence[Cell], width: float, glyph_of: GlyphOf) -> list[Run]:
    """One line of the text; what does not fit gives way to three dots."""
    if natural_width(cells) <= width:
        return _runs(cells, verbatim=False)
    dots = cells_of([Span("…")], glyph_of)
    left = width - natural_width(dots)
    kept = 0
    while kept < len(cells) and (left := left - cells[kept][0].width) >= 0:
        kept += 1
    return _runs([*cells[:kept], *dots], verbatim=False)


_LINE_FEED = Glyph("\n", Face("text"), 0.0, False)


def _may_part(before: Glyph, after: Glyph) -> bool:
    if before.char == " ":
        return after.char != " "
    if after.char == " " or before.char in _NEVER_LAST or after.char in _NEVER_FIRST:
        return False
    return before.wide or after.wide


def _runs(cells: Sequence[Cell], verbatim: bool) -> list[Run]:
    """Neighbours of one look joined; blanks at the ends of a line fall away unless it is verbatim."""
    start, end = 0, len(cells)
    if not verbatim:
        while end > start and cells[end - 1][0].char == " ":
            end -= 1
        while start < end and cells[start][0].char == " ":
            start += 1
    runs: list[Run] = []
    while start < end:
        (glyph, span), stop = cells[start], start
        while stop < end and cells[stop][0].face == glyph.face and cells[stop][1] is span:
            stop += 1
        taken = cells[start:stop]
        text = "".join(part.char for part, _ in taken)
        runs.append(Run(text, glyph.face, span, sum(part.width for part, _ in taken)))
        start = stop
    return runs
