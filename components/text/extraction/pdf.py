"""The text of a PDF, page by page. Scanned pages have no text: `page_pictures` makes images of them for a model."""

import time
from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from components.text.extraction.file_kinds import Kind, library_missing, unreadable, wrap_parser_errors

if TYPE_CHECKING:
    from pypdf import PdfReader

MAX_PAGES = 1000
MAX_SECONDS = 60.0  # a page can be made to take very long; the process that reads it is killed after 120 s
WITHOUT_TEXT = "[This PDF has no text in it. It may be a scan: upload its pages as images.]"


def pdf_parts(name: str, data: bytes) -> Iterator[str]:
    """Yield the text of the pages, with a blank line between them; nothing for a scan. Raises FileUnreadable."""
    try:
        from pypdf import PdfReader
    except ImportError as error:
        raise library_missing("docs", "PDF files") from error
    with wrap_parser_errors(name, Kind.PDF):
        pdf = PdfReader(BytesIO(data))
        if pdf.is_encrypted and not pdf.decrypt(""):
            raise unreadable(name, Kind.PDF, "is locked by a password", "Save it without one, and upload that.")
        count, started, has_text = len(pdf.pages), time.monotonic(), False
        notes = list[str]()  # notes on damaged pages before the first text; alone they do not count as text
        for number in range(min(count, MAX_PAGES)):
            text, is_damaged = _page_text(pdf, number)
            if is_damaged and not has_text:
                notes.append(text)
            elif text:
                yield f"\n\n{text}" if has_text else "\n\n".join((*notes, text))
                has_text = True
            if time.monotonic() - started > MAX_SECONDS:
                if not has_text:
                    why = f"takes longer than {MAX_SECONDS:g} s to read, and has no text until page {number + 1}"
                    raise unreadable(name, Kind.PDF, why, "Split it, and upload the parts.")
                yield f"\n\n[The {count - number - 1} pages after page {number + 1} took too long to read.]"
                return
    if not has_text:
        if notes:
            why = f"is damaged: no page can be read, and {len(notes)} of {count} raise errors"
            raise unreadable(name, Kind.PDF, why, "Open it where it was made, save it again, and upload that.")
        return
    if count > MAX_PAGES:
        yield f"\n\n[Only the first {MAX_PAGES} of {count} pages were read.]"


def _page_text(pdf: "PdfReader", number: int) -> tuple[str, bool]:
    """Return a page's text and False, or a note and True for a damaged page, which does not affect other pages."""
    try:
        return pdf.pages[number].extract_text().strip(), False
    except Exception:  # noqa: BLE001 (a damaged page raises anything)
        return f"[Page {number + 1} cannot be read.]", True
