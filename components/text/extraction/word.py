"""The text of a Word document: its paragraphs and tables, in their order.

This module reads the document's XML, because python-docx's objects leave out content controls and accepted insertions.
Headers, footers, footnotes and deleted text are not included.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any

from components.text.extraction.file_kinds import Kind, check_unpacked, library_missing, wrap_parser_errors

MAX_XML_BYTES = 64 * 1024 * 1024  # bytes; a document's whole XML is held in memory, where it is several times as large
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_PARAGRAPH = f"{_WORD}p"
# repeats the content for older programs
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SIGNS = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n", f"{_WORD}noBreakHyphen": "-"}


def word_parts(name: str, data: bytes) -> Iterator[str]:
    """Yield a line for each paragraph and each table row, with ` | ` between cells. Raises FileUnreadable."""
    try:
        from docx import Document
    except ImportError as error:
        raise library_missing("docs", "Word documents") from error
    check_unpacked(name, Kind.WORD, data, MAX_XML_BYTES)
    with wrap_parser_errors(name, Kind.WORD):
        for line in _lines(Document(BytesIO(data)).element.body):
            yield f"{line}\n"


def _lines(parent: Any) -> Iterator[str]:
    """Yield the lines of a body, a cell, or a wrapper around paragraphs (content controls, insertions)."""
    for element in parent:
        if element.tag == _PARAGRAPH:
            yield _text(element)
        elif element.tag == f"{_WORD}tbl":
            yield from (_row(row) for row in _inside(element, f"{_WORD}tr"))
        elif isinstance(element.tag, str) and element.tag != _FALLBACK:
            yield from _lines(element)


def _row(row: Any) -> str:
    """Return a table row as one line; the lines of a cell are joined by spaces."""
    cells = (" ".join(line for line in _lines(cell) if line) for cell in _inside(row, f"{_WORD}tc"))
    return " | ".join(cell.replace("\n", " ") for cell in cells)


def _inside(parent: Any, tag: str) -> Iterator[Any]:
    """Yield the nearest elements of a tag, without those of nested tables."""
    for element in parent:
        if element.tag == tag:
            yield element
        elif element.tag != f"{_WORD}tbl" and isinstance(element.tag, str):
            yield from _inside(element, tag)


def _text(element: Any) -> str:
    if element.tag == f"{_WORD}t":
        return element.text or ""
    if element.tag in _SIGNS:
        return _SIGNS[element.tag]
    if element.tag == _FALLBACK or element.tag == f"{_WORD}pPr":
        return ""
    # a paragraph in a text box
    return "".join(f"{_text(part)}\n" if part.tag == _PARAGRAPH else _text(part) for part in element)
