"""Kinds of uploaded files, and the errors of files that cannot be read.

The kind follows from a reliable MIME type, else from the extension, else from the first bytes. Browsers call a .csv an
Excel file and a .docx an archive, so MIME types that are often wrong are ignored.
"""

import zipfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from io import BytesIO

from canvas.errors import NodeFailure

MAX_FILE_BYTES = 64 * 1024 * 1024  # of a file, as for an upload
MAX_MEMBERS = 10_000  # files in an archive
MAX_UNPACKED_BYTES = 512 * 1024 * 1024  # bytes of all files in an archive together, images included
_MEMBER = b"PK\x01\x02"  # the first bytes of each entry in an archive's directory
_SNIFFED_BYTES = 8192  # bytes that are searched for NUL, to tell text from binary files


class Kind(StrEnum):
    """A kind of file. The value is its name in error messages."""

    IMAGE = "image"
    TEXT = "text"
    HTML = "HTML page"
    PDF = "PDF"
    WORD = "Word document (.docx)"
    EXCEL = "Excel workbook (.xlsx)"
    SLIDES = "presentation"
    OLD_OFFICE = "Office file in an old format"
    OTHER_DOCUMENT = "document in another format"
    MEDIA = "audio or video file"
    ARCHIVE = "archive"
    UNKNOWN = "file of an unknown kind"


REMEDIES: Mapping[Kind, str] = {
    Kind.IMAGE: "Upload its text, or use a model with vision.",
    Kind.SLIDES: "Save it as PDF, and upload that.",
    Kind.OLD_OFFICE: "Save it as .docx, .xlsx or PDF, and upload that.",
    Kind.OTHER_DOCUMENT: "Save it as .docx or PDF, and upload that.",
    Kind.MEDIA: "Upload a transcript.",
    Kind.ARCHIVE: "Unpack it, and upload the files.",
    Kind.UNKNOWN: "Upload text, HTML, PDF, .docx, .xlsx or an image.",
}
"""What the user can do with files of kinds that cannot be read, or not always."""

_BY_MIME: Mapping[str, Kind] = {
    "application/json": Kind.TEXT,
    "application/xml": Kind.TEXT,
    "application/yaml": Kind.TEXT,
    "application/x-yaml": Kind.TEXT,
    "application/toml": Kind.TEXT,
    "application/sql": Kind.TEXT,
    "application/javascript": Kind.TEXT,
    "application/x-sh": Kind.TEXT,
    "application/x-ndjson": Kind.TEXT,
    "text/html": Kind.HTML,
    "application/xhtml+xml": Kind.HTML,
    "application/pdf": Kind.PDF,
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": Kind.WORD,
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": Kind.EXCEL,
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": Kind.SLIDES,
    "text/rtf": Kind.OTHER_DOCUMENT,
    "application/rtf": Kind.OTHER_DOCUMENT,
    "application/epub+zip": Kind.OTHER_DOCUMENT,
    "application/vnd.oasis.opendocument.text": Kind.OTHER_DOCUMENT,
    "application/vnd.oasis.opendocument.spreadsheet": Kind.OTHER_DOCUMENT,
    "application/vnd.oasis.opendocument.presentation": Kind.SLIDES,
}
_EXTENSIONS: Mapping[Kind, str] = {
    Kind.TEXT: "txt text md markdown rst csv tsv json jsonl ndjson xml yaml yml toml ini cfg conf log sql srt vtt tex "
    "py js mjs ts tsx jsx java kt c h cc cpp hpp cs go rs rb php pl lua r swift scala sh bat ps1 css scss vue",
    Kind.HTML: "html htm xhtml",
    Kind.PDF: "pdf",
    Kind.WORD: "docx",
    Kind.EXCEL: "xlsx xlsm xltx",
    Kind.SLIDES: "ppt pptx pptm odp key",
    Kind.OLD_OFFICE: "doc dot xls xlt",
    Kind.OTHER_DOCUMENT: "rtf odt ods epub mobi pages numbers xlsb",
    Kind.MEDIA: "mp3 wav m4a ogg flac aac mp4 mov avi mkv webm",
    Kind.ARCHIVE: "zip gz tgz tar 7z rar bz2 xz",
}
_BY_EXTENSION: Mapping[str, Kind] = {end: kind for kind, ends in _EXTENSIONS.items() for end in ends.split()}
_IMAGE_EXTENSIONS: Mapping[str, str] = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "bmp": "image/bmp", "tif": "image/tiff", "tiff": "image/tiff", "svg": "image/svg+xml",
}  # fmt: skip
_IMAGE_BEGINNINGS: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF87a": "image/gif", b"GIF89a": "image/gif",
}  # fmt: skip
_BEGINNINGS: Mapping[bytes, Kind] = {
    b"%PDF-": Kind.PDF,
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": Kind.OLD_OFFICE,
    b"{\\rtf": Kind.OTHER_DOCUMENT,
    b"\x1f\x8b": Kind.ARCHIVE,
    b"7z\xbc\xaf": Kind.ARCHIVE,
    b"Rar!": Kind.ARCHIVE,
    b"ID3": Kind.MEDIA,
    b"OggS": Kind.MEDIA,
}
_MEMBERS: Mapping[str, Kind] = {"word/": Kind.WORD, "xl/": Kind.EXCEL, "ppt/": Kind.SLIDES}


class FileUnreadable(NodeFailure):
    """Raised for a file that is damaged, locked, too large, or of a kind whose text cannot be extracted."""

    code = "file_unreadable"


class FileTooLarge(FileUnreadable):
    """Raised for a file whose contents exceed a limit."""

    code = "file_too_large"


class LibraryMissing(NodeFailure):
    """Raised when an optional library that a file needs is not installed."""

    code = "library_missing"


def kind_of(name: str, mime_type: str, data: bytes) -> Kind:
    """Return the kind of a file. A file of no other kind that looks like text is text."""
    if image_type(name, mime_type, data):
        return Kind.IMAGE
    mime = _without_parameters(mime_type)
    if mime in _BY_MIME:
        return _BY_MIME[mime]
    if mime.startswith(("audio/", "video/")):
        return Kind.MEDIA
    if mime.startswith("text/") or mime.endswith(("+json", "+xml")):
        return Kind.TEXT
    return _BY_EXTENSION.get(extension_of(name)) or _sniff_kind(data)


def has_readable_extension(name: str) -> bool:
    """Return whether files with this extension can be read, as text or as a picture."""
    extension = extension_of(name)
    kind = _BY_EXTENSION.get(extension)
    return extension in _IMAGE_EXTENSIONS or kind not in (None, Kind.MEDIA, Kind.ARCHIVE)


def image_type(name: str, mime_type: str, data: bytes) -> str:
    """Return the MIME type of an image, "" for any other file."""
    if "image" in mime_type:
        return mime_type
    mime, extension = _without_parameters(mime_type), extension_of(name)
    if mime in _BY_MIME or mime.startswith("text/") or extension in _BY_EXTENSION:
        return ""
    if extension in _IMAGE_EXTENSIONS:
        return _IMAGE_EXTENSIONS[extension]
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((found for begin, found in _IMAGE_BEGINNINGS.items() if data.startswith(begin)), "")


def unreadable(name: str, kind: Kind, why: str, remedy: str) -> FileUnreadable:
    """Build the error for a file: its name, its kind, what is wrong with it, and what to do."""
    return FileUnreadable(f'The file "{name}" ({kind}) {why}. {remedy}', file=name)


def too_large(name: str, kind: Kind, why: str) -> FileTooLarge:
    """Build the error for a file whose contents exceed a limit."""
    return FileTooLarge(unreadable(name, kind, why, "Split it, and upload the parts.").message, file=name)


def check_size(name: str, kind: Kind, data: bytes) -> None:
    """Raise FileTooLarge for a file that is larger than an upload may be."""
    if len(data) > MAX_FILE_BYTES:
        raise too_large(name, kind, f"is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")


def library_missing(extra: str, what: str) -> LibraryMissing:
    """Build the error for a missing optional library: which files need it, and which extra installs it."""
    return LibraryMissing(f'{what} need the extra "{extra}" on every worker: pip install easel[{extra}]')


@contextmanager
def wrap_parser_errors(name: str, kind: Kind) -> Generator[None]:
    """Convert any error of a library inside the block to FileUnreadable."""
    try:
        yield
    except NodeFailure:
        raise
    except Exception as error:  # parsers may raise anything for a damaged file
        why = f"is damaged, or not a valid {kind} ({type(error).__name__})"
        raise unreadable(name, kind, why, "Open it where it was made, save it again, and upload that.") from error


def check_unpacked(name: str, kind: Kind, data: bytes, max_xml: int) -> None:
    """Raise FileTooLarge for an Office file that would unpack to more than the limits, or to more XML than `max_xml`.

    The sizes that an archive declares can be trusted, because reading stops there. Its files are counted before it is
    opened, because a directory of a million files takes a second and some hundred MB to read.
    """
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        raise unreadable(name, kind, "is locked by a password, or in an old format", REMEDIES[Kind.OLD_OFFICE])
    if data.count(_MEMBER) > MAX_MEMBERS:
        raise too_large(name, kind, "unpacks to more than can be read")
    with wrap_parser_errors(name, kind), zipfile.ZipFile(BytesIO(data)) as archive:
        members = archive.infolist()
        unpacked = sum(member.file_size for member in members)
        xml = sum(member.file_size for member in members if member.filename.lower().endswith((".xml", ".rels")))
    if len(members) > MAX_MEMBERS or unpacked > MAX_UNPACKED_BYTES or xml > max_xml:
        raise too_large(name, kind, "unpacks to more than can be read")


def _without_parameters(mime_type: str) -> str:
    return mime_type.partition(";")[0].strip().lower()


def extension_of(name: str) -> str:
    """Return the extension of a file name in lower case, "" if it has none."""
    return name.lower().rpartition(".")[2] if "." in name else ""


def _sniff_kind(data: bytes) -> Kind:
    for begin, kind in _BEGINNINGS.items():
        if data.startswith(begin):
            return kind
    if data.startswith(b"PK\x03\x04"):
        return _sniff_archive(data)
    start = data[:_SNIFFED_BYTES]
    if start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith((b"<!doctype html", b"<html")):
        return Kind.HTML
    is_wide = start.startswith((b"\xff\xfe", b"\xfe\xff"))  # UTF-16 and UTF-32
    return Kind.TEXT if is_wide or b"\x00" not in start else Kind.UNKNOWN


def _sniff_archive(data: bytes) -> Kind:
    if data.count(_MEMBER) > MAX_MEMBERS:
        return Kind.ARCHIVE
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return Kind.ARCHIVE
    return next(
        (kind for begin, kind in _MEMBERS.items() if any(name.startswith(begin) for name in names)), Kind.ARCHIVE
    )
