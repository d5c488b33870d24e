"""Layout: what a document shows besides its text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """The frame of a document's pages. Formats without pages show the timestamp alone, before the text.

    `timestamp` is the whole line ("Generated: 2026-08-01 12:00:00"). `font_size` is that of the body, in points.
    """

    header: str = ""
    footer: str = ""
    watermark: str = ""
    page_numbers: bool = False
    timestamp: str | None = None
    font_size: float = 12


BARE = Layout()
HEADING_GROWTH = {1: 6, 2: 4, 3: 2}  # points that a heading is larger than the body, by level
