"""The text of documents in other office formats, read by kreuzberg: PowerPoint, OpenDocument texts and sheets, RTF,
EPUB, and the binary formats of old Office programs.

The library reads a whole file at once, in Rust, so it is called in a child process with limits only
(`components/text/extraction/file_texts.py`).
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from components.text.extraction.file_kinds import (
    REMEDIES,
    Kind,
    check_unpacked,
    extension_of,
    library_missing,
    unreadable,
    wrap_parser_errors,
)

MAX_XML_BYTES = 64 * 1024 * 1024  # bytes of a document's XML, which is held in memory

_OPEN_DOCUMENT, _OPEN_XML = "application/vnd.oasis.opendocument.", "application/vnd.openxmlformats-officedocument."
FORMATS: Mapping[str, str] = {
    "pptx": f"{_OPEN_XML}presentationml.presentation",
    "pptm": f"{_OPEN_XML}presentationml.presentation",
    "ppt": "application/vnd.ms-powerpoint",
    "doc": "application/msword",
    "dot": "application/msword",
    "xls": "application/vnd.ms-excel",
    "xlt": "application/vnd.ms-excel",
    "xlsb": "application/vnd.ms-excel.sheet.binary.macroEnabled.12",
    "odt": f"{_OPEN_DOCUMENT}text",
    "ods": f"{_OPEN_DOCUMENT}spreadsheet",
    "rtf": "application/rtf",
    "epub": "application/epub+zip",
}
"""The MIME types of the formats that can be read, by extension."""

_STREAMS: Mapping[str, str] = {"WordDocument": "doc", "Workbook": "xls", "Book": "xls", "PowerPoint Document": "ppt"}
"""What a binary Office file consists of, by the names in its directory."""
_OLE = b"\xd0\xcf\x11\xe0"


def office_text(name: str, mime_type: str, kind: Kind, data: bytes) -> str:
    """Return the text of a document. Raises FileUnreadable, also for a format that cannot be read."""
    kind_of_format = format_of(name, mime_type, data)
    if kind_of_format is None:
        raise unreadable(name, kind, "cannot be read as text", REMEDIES[kind])
    try:
        from kreuzberg import ExtractionConfig, extract_bytes_sync
    except ImportError as error:
        raise library_missing("office", "Presentations, OpenDocument, RTF, EPUB and old Office files") from error
    if data.startswith(b"PK"):
        check_unpacked(name, kind, data, MAX_XML_BYTES)
    with wrap_parser_errors(name, kind), _panics_as_errors():
        config = ExtractionConfig(use_cache=False, disable_ocr=True)  # pyright: ignore[reportCallIssue] (the stub lacks it)
        text = extract_bytes_sync(data, FORMATS[kind_of_format], config).content
    if not text.strip():
        raise unreadable(name, kind, "has no text in it", REMEDIES[kind])
    return text


@contextmanager
def _panics_as_errors() -> Generator[None]:
    """Convert a panic of the library, which is a BaseException of a class that cannot be imported."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"the library failed: {error}") from error


def format_of(name: str, mime_type: str, data: bytes) -> str | None:
    """Return the format of a document as a key of FORMATS: by its MIME type, its name, or its first bytes."""
    given = mime_type.partition(";")[0].strip().lower()
    by_mime = next((end for end, mime in FORMATS.items() if mime == given), "rtf" if given == "text/rtf" else None)
    if by_mime in ("doc", "xls", "ppt") or by_mime is None:  # browsers call many files so
        by_mime = extension_of(name) if extension_of(name) in FORMATS else by_mime
    if data.startswith(_OLE):
        return _format_of_streams(data) or by_mime
    if by_mime is None and data.startswith(b"{\\rtf"):
        return "rtf"
    if by_mime is None and data.startswith(b"PK") and b"ppt/presentation.xml" in data:
        return "pptx"
    return by_mime


def _format_of_streams(data: bytes) -> str | None:
    return next((kind for stream, kind in _STREAMS.items() if stream.encode("utf-16-le") in data), None)
