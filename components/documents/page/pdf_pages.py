"""Pages of a PDF: their header, footer and watermark, and methods that draw lines of text, images and rectangles.

The format is A4. The header is top left, the footer bottom left, the timestamp bottom centre, the page number bottom
right, and the watermark behind the text. Lengths are in millimetres, font sizes in points.
"""

import io
import logging
from collections.abc import Sequence

from canvas.errors import NodeFailure
from components.documents.blocks import Span
from components.documents.cleaning import one_line
from components.documents.page.fonts import Fonts
from components.documents.page.layout import Layout
from components.documents.page.lines import Cell, TextRun, cut_to_width, natural_width, to_cells
from components.documents.page.pictures import EmbeddedImage

MARGIN = 20.0
TOP, BOTTOM = 22.0, 275.0  # vertical bounds of the text on a page
WIDTH = 170.0  # between the margins
MAX_PAGES = 5000

_MILLIMETRES = 25.4 / 72  # of a point
_SMALL_SIZE = 9.0
_HEADER_LINE, _FOOTER_LINE = 14.0, 285.0
_CENTRE = (105.0, 148.5)
_WATERMARK_SIZE = 64.0
_WATERMARK_LENGTH = 230.0
_BLACK, _GREY, _BLUE = (0, 0, 0), (128, 128, 128), (5, 80, 180)


class PdfPages:
    """The pages of a PDF; `y` is the vertical position of the next line."""

    def __init__(self, layout: Layout) -> None:
        try:
            from fpdf import FPDF
        except ImportError as missing:
            raise NodeFailure('Making a PDF needs the extra "docs": pip install easel[docs].') from missing
        logging.getLogger("fontTools").setLevel(logging.WARNING)  # it logs every table of every font that it reduces
        self._pdf = FPDF(unit="mm", format="A4")
        self._pdf.set_auto_page_break(False)
        self._layout = layout
        self._fonts = Fonts(self._pdf)
        self.y = TOP
        self.begin_page()

    def output(self) -> bytes:
        return bytes(self._pdf.output())

    def cells(self, spans: Sequence[Span]) -> list[Cell]:
        return to_cells(spans, self._fonts.glyph)

    def begin_page(self) -> None:
        """Begin a new page, and move to its top."""
        if self._pdf.page_no() >= MAX_PAGES:
            raise NodeFailure(f"The document would have more than {MAX_PAGES} pages. Split it into several documents.")
        self._pdf.add_page()
        self.y = TOP
        self._watermark()
        self._draw_margins()

    def ensure_space(self, height: float) -> bool:
        """Begin a new page if `height` does not fit on this one; return whether a new page was begun."""
        if self.y + height <= BOTTOM or self.y <= TOP:
            return False
        self.begin_page()
        return True

    def draw_text(self, runs: Sequence[TextRun], x: float, size: float, *, grey: bool = False) -> None:
        """Draw a line of text at the current position, which does not change. Links are blue and clickable."""
        baseline = self.y + size * _MILLIMETRES
        for run in runs:
            width = to_millimetres(run.width, size)
            self._pdf.set_text_color(*(_BLUE if run.span.link else _GREY if grey else _BLACK))
            self._run(run, x, baseline, size)
            if run.span.strike:
                self._pdf.set_draw_color(*_BLACK)
                self._pdf.set_line_width(0.2)
                middle = baseline - size * _MILLIMETRES * 0.27
                self._pdf.line(x, middle, x + width, middle)
            if run.span.link.startswith(("http://", "https://", "mailto:")):
                self._pdf.link(x, self.y, width, size * _MILLIMETRES * 1.2, run.span.link)
            x += width

    def fill_rectangle(self, x: float, width: float, height: float, grey: int) -> None:
        """Fill a rectangle whose top is the current position."""
        self._pdf.set_fill_color(grey)
        self._pdf.rect(x, self.y, width, height, style="F")

    def draw_image(self, picture: EmbeddedImage, x: float, width: float, height: float) -> None:
        self._pdf.image(io.BytesIO(picture.data), x, self.y, width, height)

    def _run(self, run: TextRun, x: float, baseline: float, size: float) -> None:
        self._pdf.set_font(run.face.family, run.face.style, size)
        if run.face.heavy:
            from fpdf.enums import TextMode

            with self._pdf.local_context(text_mode=TextMode.FILL_STROKE, line_width=size * 0.02):
                self._pdf.text(x, baseline, run.text)
        else:
            self._pdf.text(x, baseline, run.text)

    def _draw_margins(self) -> None:
        layout = self._layout
        page = f"Page {self._pdf.page_no()}" if layout.page_numbers else ""
        self._draw_margin_line(layout.header, _HEADER_LINE, WIDTH, 0.0)
        self._draw_margin_line(layout.footer, _FOOTER_LINE, WIDTH * 0.33 if layout.timestamp else WIDTH * 0.8, 0.0)
        self._draw_margin_line(layout.timestamp or "", _FOOTER_LINE, WIDTH * 0.33, 0.5)
        self._draw_margin_line(page, _FOOTER_LINE, WIDTH * 0.2, 1.0)

    def _draw_margin_line(self, text: str, y: float, width: float, shift: float) -> None:
        """Draw a grey line in a margin, cut to `width`: left (shift 0), centred (0.5) or right (1)."""
        cells = self.cells([Span(one_line(text))])
        runs = cut_to_width(cells, width / to_millimetres(1, _SMALL_SIZE), self._fonts.glyph)
        drawn_width = sum(to_millimetres(run.width, _SMALL_SIZE) for run in runs)
        before, self.y = self.y, y
        self.draw_text(runs, MARGIN + (WIDTH - drawn_width) * shift, _SMALL_SIZE, grey=True)
        self.y = before

    def _watermark(self) -> None:
        cells = self.cells([Span(one_line(self._layout.watermark), bold=True)])
        if not cells:
            return
        size = max(12.0, min(_WATERMARK_SIZE, _WATERMARK_LENGTH / to_millimetres(natural_width(cells), 1)))
        runs = cut_to_width(cells, _WATERMARK_LENGTH / to_millimetres(1, size), self._fonts.glyph)
        x = _CENTRE[0] - sum(to_millimetres(run.width, size) for run in runs) / 2
        with self._pdf.local_context(fill_opacity=0.15, stroke_opacity=0.15), self._pdf.rotation(45, *_CENTRE):
            self._pdf.set_text_color(*_GREY)
            self._pdf.set_draw_color(*_GREY)
            for run in runs:
                self._run(run, x, _CENTRE[1], size)
                x += to_millimetres(run.width, size)


def to_millimetres(width: float, size: float) -> float:
    """Return a width in thousandths of a font size as millimetres."""
    return width * size * _MILLIMETRES / 1000
