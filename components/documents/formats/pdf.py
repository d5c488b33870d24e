"""PDF: blocks laid out on pages, line by line."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import assert_never

from components.documents.blocks import (
    Alignment,
    Block,
    CodeBlock,
    HeadingBlock,
    Inlines,
    ListBlock,
    ParagraphBlock,
    QuoteBlock,
    RuleBlock,
    Span,
    TableBlock,
)
from components.documents.page.layout import HEADING_GROWTH, Layout
from components.documents.page.lines import Cell, TextRun, break_lines, natural_width
from components.documents.page.pdf_pages import BOTTOM, MARGIN, TOP, WIDTH, PdfPages, to_millimetres
from components.documents.page.pictures import EmbeddedImage

_LEADING = 1.45 * 25.4 / 72  # line height in millimetres for a point of font size
_STEP = 7.0  # millimetres by which a list or quote is indented
_MAX_INDENTS = 12  # indents; deeper blocks are not indented further
_PIXEL = 25.4 / 96  # millimetres
_MIN_TABLE_SIZE = 4.0  # points; the font size in a very wide table
_PADDING = 1.2  # millimetres; of a table's cells
_SHIFTS: Mapping[Alignment, float] = {"left": 0.0, "center": 0.5, "right": 1.0}  # share of free space before a line


def render_pdf(blocks: Sequence[Block], layout: Layout) -> bytes:
    """Return the blocks as a PDF document."""
    writer = _PdfWriter(layout)
    writer.blocks(blocks)
    return writer.paper.output()


class _PdfWriter:
    """Writes blocks to pages. The state is the indent, the bars of open quotes, and the list mark of the next line."""

    def __init__(self, layout: Layout) -> None:
        self.paper = PdfPages(layout)
        self._size = float(layout.font_size)
        self._depth = 0
        self._bars: list[float] = []
        self._mark = ""

    @property
    def _left_edge(self) -> float:
        return MARGIN + min(self._depth, _MAX_INDENTS) * _STEP

    @property
    def _width(self) -> float:
        return MARGIN + WIDTH - self._left_edge

    def blocks(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            self._block(block)

    def _block(self, block: Block) -> None:
        match block:
            case HeadingBlock(level, content):
                self._heading(level, content)
            case ParagraphBlock(content, tight):
                self._content(content, self._size)
                self._gap(0.1 if tight else 0.5)
            case CodeBlock(text):
                self._code(text)
            case RuleBlock():
                self._rule()
            case QuoteBlock(blocks):
                with self._indent():
                    self._bars.append(self._left_edge - _STEP * 0.6)
                    self.blocks(blocks)
                    self._bars.pop()
                self._gap(0.3)
            case ListBlock():
                self._listing(block)
            case TableBlock():
                self._table(block)
            case _:
                assert_never(block)

    def _heading(self, level: int, content: Inlines) -> None:
        size = self._size + HEADING_GROWTH.get(level, 0)
        self._gap(0.4)
        self.paper.ensure_space(size * _LEADING + 2 * self._size * _LEADING)  # keep the heading with the text after it
        self._content([replace(part, bold=True) if isinstance(part, Span) else part for part in content], size)
        self._gap(0.3)

    def _content(self, content: Sequence[Span | EmbeddedImage], size: float) -> None:
        spans: list[Span] = []
        for part in content:
            if isinstance(part, Span):
                spans.append(part)
                continue
            self._text(spans, size)
            self._picture(part)
            spans = []
        self._text(spans, size)

    def _text(self, spans: Sequence[Span], size: float) -> None:
        if not spans:
            return
        for runs in break_lines(self.paper.cells(spans), self._width / to_millimetres(1, size)):
            self._line(runs, size)

    def _line(self, runs: Sequence[TextRun], size: float, shade: int | None = None) -> None:
        """Draw one line with its list mark, its quote bars, and a shaded background."""
        height = size * _LEADING
        self.paper.ensure_space(height)
        self._draw_bars(height)
        if shade is not None:
            self.paper.fill_rectangle(self._left_edge, self._width, height, shade)
        self._draw_mark(size)
        self.paper.draw_text(runs, self._left_edge, size, grey=bool(self._bars))
        self.paper.y += height

    def _draw_bars(self, height: float) -> None:
        for x in self._bars:
            before = self.paper.y
            self.paper.fill_rectangle(x, 0.8, height, 200)
            self.paper.y = before

    def _draw_mark(self, size: float) -> None:
        if not self._mark:
            return
        runs = break_lines(self.paper.cells([Span(self._mark)]), float("inf"))[0]
        width = sum(to_millimetres(run.width, size) for run in runs)
        self.paper.draw_text(runs, self._left_edge - width - 2.0, size)
        self._mark = ""

    def _gap(self, lines: float) -> None:
        """Leave vertical space of so many lines, but not at the top of a page."""
        if self.paper.y > TOP:
            height = self._size * _LEADING * lines
            self._draw_bars(min(height, max(0.0, BOTTOM - self.paper.y)))
            self.paper.y += height

    def _picture(self, picture: EmbeddedImage) -> None:
        width, height = max(1, picture.width) * _PIXEL, max(1, picture.height) * _PIXEL
        scale = min(1.0, self._width / width, (BOTTOM - TOP) * 0.8 / height)
        self.paper.ensure_space(height * scale)
        self._draw_mark(self._size)
        self.paper.draw_image(picture, self._left_edge, width * scale, height * scale)
        self.paper.y += height * scale
        self._gap(0.3)

    def _code(self, text: str) -> None:
        size = self._size * 0.85
        cells = self.paper.cells([Span(text.replace("\t", "    "), code=True)])
        for runs in break_lines(cells, self._width / to_millimetres(1, size), verbatim=True):
            self._line(runs, size, shade=242)
        self._gap(0.5)

    def _rule(self) -> None:
        self._gap(0.3)
        self.paper.ensure_space(1.0)
        self.paper.fill_rectangle(self._left_edge, self._width, 0.3, 180)
        self._gap(0.6)

    def _listing(self, listing: ListBlock) -> None:
        for position, item in enumerate(listing.items):
            with self._indent():
                self._mark = listing.mark(position)
                self.blocks(item)
                if self._mark:
                    self._line((), self._size)  # an empty item still shows its mark
        self._gap(0.3 if self._depth == 0 else 0.0)

    @contextmanager
    def _indent(self) -> Generator[None]:
        self._depth += 1
        yield
        self._depth -= 1

    def _table(self, table: TableBlock) -> None:
        columns = len(table.header)
        size = max(_MIN_TABLE_SIZE, self._size * min(1.0, 7 / columns))
        header = [self._cells(cell, bold=True) for cell in table.header]
        rows = [[self._cells(cell) for cell in row] for row in table.rows]
        widths = _widths([header, *rows], size, self._width)
        shifts = [_SHIFTS[table.alignment(column)] for column in range(columns)]
        self._row(header, widths, shifts, size, shade=230)
        for row in rows:
            if self.paper.ensure_space(size * _LEADING):
                self._row(header, widths, shifts, size, shade=230)
            self._row(row, widths, shifts, size)
        self._gap(0.6)

    def _cells(self, content: Inlines, bold: bool = False) -> list[Cell]:
        """Return the glyphs of a table's cell; an image in it is replaced by its description."""
        spans = [part if isinstance(part, Span) else Span(part.description) for part in content]
        return self.paper.cells([replace(span, bold=span.bold or bold) for span in spans])

    def _row(
        self,
        row: Sequence[Sequence[Cell]],
        widths: Sequence[float],
        shifts: Sequence[float],
        size: float,
        shade: int | None = None,
    ) -> None:
        lines = [
            break_lines(cell, (width - 2 * _PADDING) / to_millimetres(1, size))
            for cell, width in zip(row, widths, strict=True)
        ]
        self._draw_mark(self._size)
        for number in range(max(map(len, lines), default=0)):
            self.paper.ensure_space(size * _LEADING)
            self._draw_bars(size * _LEADING)
            if shade is not None:
                self.paper.fill_rectangle(self._left_edge, sum(widths), size * _LEADING, shade)
            x = self._left_edge
            for cell, width, shift in zip(lines, widths, shifts, strict=True):
                if number < len(cell):
                    free = width - 2 * _PADDING - sum(to_millimetres(run.width, size) for run in cell[number])
                    self.paper.draw_text(cell[number], x + _PADDING + max(0.0, free) * shift, size)
                x += width
            self.paper.y += size * _LEADING
        self.paper.fill_rectangle(self._left_edge, sum(widths), 0.2, 180)
        self.paper.y += 0.8


def _widths(rows: Sequence[Sequence[Sequence[Cell]]], size: float, width: float) -> list[float]:
    """Return the widths of a table's columns: the widths of their texts, but the widest columns share what is left."""
    natural = [
        to_millimetres(max(natural_width(row[column]) for row in rows), size) + 2 * _PADDING + 0.1
        for column in range(len(rows[0]))
    ]
    widths = [0.0] * len(natural)
    left = width
    for rank, column in enumerate(sorted(range(len(natural)), key=natural.__getitem__)):
        widths[column] = min(natural[column], left / (len(natural) - rank))
        left -= widths[column]
    return widths
