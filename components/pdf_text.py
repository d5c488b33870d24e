"""The text of a PDF, page by page. Pictures of pages have none: we do not recognise letters in images."""

import time
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from components.file_kinds import Kind, lacking, reading, unreadable

if TYPE_CHECKING:
    from pypdf import PdfReader

MOST_PAGES = 1000
MOST_SECONDS = 60.0  # a page can be built to take very long; the process that reads it is ended after 120 s
WITHOUT_TEXT = "[This PDF has no text in it. It may be a scan: upload its pages as images.]"


def pdf_parts(name: str, data: bytes) -> Iterator[str]:
    """The pages that have text, a blank line between them. Raises FileUnreadable."""
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise lacking("docs", "PDF files") from error
    with reading(name, Kind.PDF):
        pdf = PdfReader(BytesIO(data))
        if pdf.is_encrypted and not pdf.decrypt(""):
            raise unreadable(name, Kind.PDF, "is locked by a password", "Save it without one, and upload that.")
        count, started, has_text = len(pdf.pages), time.monotonic(), False
        for number in range(min(count, MOST_PAGES)):
            text = _page_text(pdf, number)
            if text:
                yield f"\n\n{text}" if has_text else text
                has_text = True
            if time.monotonic() - started > MOST_SECONDS:
                yield f"\n\n[The {count - number - 1} pages after page {number + 1} took too long to read.]"
                return
    if count > MOST_PAGES:
        yield f"\n\n[Only the first {MOST_PAGES} of {count} pages were read.]"
    elif not has_text:
        yield WITHOUT_TEXT


def _page_text(pdf: "PdfReader", number: int) -> str:
    """A page's text; a page that cannot be read does not cost the others."""
    try:
        return pdf.pages[number].extract_text().strip()
    except Exception:  # noqa: BLE001 (a damaged page raises anything)
        return f"[Page {number + 1} cannot be read.]"
