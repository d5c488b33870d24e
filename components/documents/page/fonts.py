"""Fonts of a PDF: the typeface that draws each character.

The typefaces are files in `typefaces/`, so that every machine prints the same: DejaVu Sans for Latin, Greek, Cyrillic
and symbols, Droid Sans Fallback for Chinese, Japanese and Korean. A face is loaded when a character first needs it, and
a document contains only the characters that it uses. A character that no face has, a colour emoji for example, is drawn
as a box. Hebrew and Arabic letters are drawn unjoined, in their stored order.
"""

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.documents.blocks import Span

if TYPE_CHECKING:
    from fpdf import FPDF

MISSING = "□"

_FOLDER = Path(__file__).parent / "typefaces"
_FILES = {
    ("text", ""): "DejaVuSans.ttf",
    ("text", "B"): "DejaVuSans-Bold.ttf",
    ("text", "I"): "DejaVuSans-Oblique.ttf",
    ("code", ""): "DejaVuSansMono.ttf",
    ("wide", ""): "DroidSansFallback.ttf",
}
_INVISIBLE = ("Cf", "Mn", "Me")  # joiners, variation selectors, accents: not drawn if no face has them
_SKIN_TONES = range(0x1F3FB, 0x1F400)


@dataclass(frozen=True, slots=True)
class Face:
    """A typeface as fpdf2 names it; a `heavy` one is drawn with an outline, because it has no bold style."""

    family: str
    style: str = ""
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class Glyph:
    """A character to draw. `width` is in thousandths of the font size; a `wide` one is as wide as it is high."""

    char: str
    face: Face
    width: float
    wide: bool


class Fonts:
    """The typefaces of one document."""

    def __init__(self, pdf: "FPDF") -> None:
        self._pdf = pdf
        self._glyphs: dict[tuple[str, bool, bool, bool], Glyph | None] = {}

    def glyph(self, char: str, span: Span) -> Glyph | None:
        """Return the glyph for a character of a span; None for an invisible character."""
        key = (char, span.bold, span.italic, span.code)
        if key not in self._glyphs:
            self._glyphs[key] = self._find_glyph(char, span)
        return self._glyphs[key]

    def _find_glyph(self, char: str, span: Span) -> Glyph | None:
        for face in _candidates(span):
            if (width := self._width(face, char)) is not None:
                return Glyph(char, face, width, unicodedata.east_asian_width(char) in "WF")
        if unicodedata.category(char) in _INVISIBLE or ord(char) in _SKIN_TONES:
            return None
        return self._find_glyph(MISSING, span)

    def _width(self, face: Face, char: str) -> float | None:
        """Return the width of a character in a face, None if the face does not have it."""
        key = face.family + face.style
        if key not in self._pdf.fonts:
            self._pdf.add_font(face.family, face.style, _FOLDER / _FILES[face.family, face.style])  # pyright: ignore[reportArgumentType] - any style may be given as text
        font: Any = self._pdf.fonts[key]
        return font.cw[ord(char)] if ord(char) in font.cmap else None


def _candidates(span: Span) -> list[Face]:
    """Return the faces to try for a span, best first."""
    own = Face("code") if span.code else Face("text", "B" if span.bold else "I" if span.italic else "")
    return [own, Face("text"), Face("wide", heavy=span.bold)]
