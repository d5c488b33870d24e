"""Line breaking: a paragraph split into lines that fit a width.

Lines break at spaces and beside Chinese, Japanese and Korean characters, but never before a closing mark or after an
opening mark. A word that is wider than a line is split anywhere.
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
class TextRun:
    """Adjacent characters of one style. `width` is as in Glyph."""

    text: str
    face: Face
    span: Span
    width: float


def to_cells(spans: Iterable[Span], glyph_of: GlyphOf) -> list[Cell]:
    """Return the characters of a paragraph as glyphs; line feeds stay, tabs and unusual spaces become spaces."""
    cells: list[Cell] = []
    for span in spans:
        for char in span.text:
            if char == "\n":
                cells.append((_LINE_FEED, span))
            elif glyph := glyph_of(" " if char.isspace() and char not in "\u00a0\u202f\u3000" else char, span):
                cells.append((glyph, span))
    return cells


def break_lines(cells: Sequence[Cell], width: float, *, verbatim: bool = False) -> list[list[TextRun]]:
    """Break a paragraph into lines of at most `width` (in thousandths of the font size) where possible.

    Verbatim text keeps its spaces and is broken exactly at the width.
    """
    lines: list[list[TextRun]] = []
    start, used, cut = 0, 0.0, 0  # this line's start, its width so far, its last possible break (0: none yet)
    for position, (glyph, _) in enumerate(cells):
        if glyph is _LINE_FEED:
            lines.append(_runs(cells[start:position], verbatim))
            start, used, cut = position + 1, 0.0, 0
            continue
        if position > start and not verbatim and _can_break(cells[position - 1][0], glyph):
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
    """Return the width of a text that is broken only at its line feeds."""
    widest = used = 0.0
    for glyph, _ in cells:
        used = 0.0 if glyph is _LINE_FEED else used + glyph.width
        widest = max(widest, used)
    return widest


def cut_to_width(cells: Sequence[Cell], width: float, glyph_of: GlyphOf) -> list[TextRun]:
    """Return the text as one line; an end that does not fit is replaced by an ellipsis."""
    if natural_width(cells) <= width:
        return _runs(cells, verbatim=False)
    dots = to_cells([Span("…")], glyph_of)
    left = width - natural_width(dots)
    count = 0
    while count < len(cells) and (left := left - cells[count][0].width) >= 0:
        count += 1
    return _runs([*cells[:count], *dots], verbatim=False)


_LINE_FEED = Glyph("\n", Face("text"), 0.0, False)


def _can_break(before: Glyph, after: Glyph) -> bool:
    if before.char == " ":
        return after.char != " "
    if after.char == " " or before.char in _NEVER_LAST or after.char in _NEVER_FIRST:
        return False
    return before.wide or after.wide


def _runs(cells: Sequence[Cell], verbatim: bool) -> list[TextRun]:
    """Join adjacent characters of one style; spaces at the ends of a line are removed unless it is verbatim."""
    start, end = 0, len(cells)
    if not verbatim:
        while end > start and cells[end - 1][0].char == " ":
            end -= 1
        while start < end and cells[start][0].char == " ":
            start += 1
    runs: list[TextRun] = []
    while start < end:
        (glyph, span), stop = cells[start], start
        while stop < end and cells[stop][0].face == glyph.face and cells[stop][1] is span:
            stop += 1
        group = cells[start:stop]
        text = "".join(part.char for part, _ in group)
        runs.append(TextRun(text, glyph.face, span, sum(part.width for part, _ in group)))
        start = stop
    return runs
