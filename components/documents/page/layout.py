"""The layout of a document: header, footer, watermark, page numbers, timestamp, font size."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """What a document's pages show beside the text. Formats without pages show only the timestamp, before the text.

    `timestamp` is the whole line ("Generated: 2026-08-01 12:00:00"). `font_size` is the size of the body, in points.
    """

    header: str = ""
    footer: str = ""
    watermark: str = ""
    page_numbers: bool = False
    timestamp: str | None = None
    font_size: float = 12


BARE = Layout()
HEADING_GROWTH = {1: 6, 2: 4, 3: 2}  # points by which a heading is larger than the body, by level
