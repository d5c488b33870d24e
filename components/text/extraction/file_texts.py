"""Uploaded files as values of a canvas: images as data URIs, all other files as one block of text.

Files are read in child processes with limits on memory and time, except texts, images and small web pages
(`SMALL_PAGE`), whose cost is low or in proportion to their size.
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from canvas.errors import NodeFailure
from components.text.extraction import spreadsheets
from components.text.extraction.charsets import decode
from components.text.extraction.file_kinds import (
    REMEDIES,
    FileUnreadable,
    Kind,
    check_size,
    image_type,
    kind_of,
    too_large,
    unreadable,
    wrap_parser_errors,
)
from components.text.extraction.office import office_text
from components.text.extraction.page_pictures import count_pages, pages_as_images
from components.text.extraction.page_text import SMALL_PAGE, extract_page_text
from components.text.extraction.pdf import WITHOUT_TEXT, pdf_parts
from components.text.extraction.word import word_parts
from providers.isolation.limited_process import ResourceLimitExceeded, in_limited_process, in_limited_process_blocking
from providers.isolation.untrusted_threads import in_untrusted_thread

T = TypeVar("T")

MAX_CHARACTERS = 2_000_000  # of a file's text; more than the context window of any model
CUT_NOTE = f"\n[The rest of the file is left out: a file reads as {MAX_CHARACTERS:,} characters at most.]"


@dataclass(frozen=True, slots=True)
class UnparsedFile:
    """A file that has not been parsed yet."""

    name: str
    mime_type: str
    data: bytes

    async def text(self) -> str:
        """Return the result of `file_text`, computed where it cannot harm this process."""
        return await self._read(file_text)

    async def full_text(self, max_chars: int) -> str:
        """Return the result of `full_text`, computed where it cannot harm this process."""
        return await self._read(full_text, max_chars)

    async def count_pages(self) -> int:
        """Return how many pages an image or a PDF has."""
        return await self._in_child(count_pages)

    async def pages_as_images(self, first: int, count: int) -> Sequence[str]:
        """Return `count` pages of an image or a PDF as data URIs, from page `first` on (0 is the first page)."""
        return await self._in_child(pages_as_images, first, count)

    @property
    def kind(self) -> Kind:
        return kind_of(self.name, self.mime_type, self.data)

    def text_blocking(self) -> str:
        """Return the same as `text`, for a thread that may block."""
        if self._is_cheap():
            return file_text(self.name, self.mime_type, self.data)
        try:
            return in_limited_process_blocking(file_text, self.name, self.mime_type, self.data)
        except ResourceLimitExceeded as limit:
            raise self._limit_failure(limit) from limit

    async def _read(self, read: Callable[..., str], *more: Any) -> str:
        if self._is_cheap():
            return await in_untrusted_thread(read, self.name, self.mime_type, self.data, *more)
        return await self._in_child(read, *more)

    async def _in_child(self, work: Callable[..., T], *more: Any) -> T:
        try:
            return await in_limited_process(work, self.name, self.mime_type, self.data, *more)
        except ResourceLimitExceeded as limit:
            raise self._limit_failure(limit) from limit

    def _is_cheap(self) -> bool:
        match self.kind:
            case Kind.TEXT | Kind.IMAGE:
                return True
            case Kind.HTML:
                return len(self.data) <= SMALL_PAGE
            case _:
                return False

    def _limit_failure(self, limit: ResourceLimitExceeded) -> NodeFailure:
        if limit.retryable:
            return limit
        kind = self.kind
        why = f"cannot be read within its limits. {limit.message.rstrip('.')}"
        return unreadable(self.name, kind, why, "Split it, or save it as text, and upload that.")


def text_block(name: str, text: str) -> str:
    """Return a file's text under its name, in upstream's format."""
    return f"\n -----------------\nFile: {name}\nContent as following: \n{text}"


def image_data_uri(mime_type: str, data: bytes) -> str:
    """Return an image as a data URI."""
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def file_text(name: str, mime_type: str, data: bytes) -> str:
    """Return a file as a value of a canvas. Some files take long: `UnparsedFile.text` computes this off the event loop.

    Raises FileUnreadable for a file that is damaged, locked, too large or of a kind without text, and NodeFailure if
    the library for its kind is not installed.
    """
    kind = kind_of(name, mime_type, data)
    check_size(name, kind, data)
    if kind is Kind.IMAGE:
        return image_data_uri(image_type(name, mime_type, data), data)
    text = _join_cut(_parts(kind, name, mime_type, data))
    return text_block(name, WITHOUT_TEXT if kind is Kind.PDF and not text else text)


def full_text(name: str, mime_type: str, data: bytes, max_chars: int) -> str:
    """Return all of a file's text, without its name; "" for a scanned PDF. Some files take long: see
    `UnparsedFile.full_text`.

    Raises the same errors as `file_text`, and FileTooLarge for a text of more than `max_chars` characters.
    """
    kind = kind_of(name, mime_type, data)
    check_size(name, kind, data)
    parts, left = list[str](), max_chars
    for part in _parts(kind, name, mime_type, data):
        left -= len(part)
        if left < 0:
            raise too_large(name, kind, f"has more than {max_chars:,} characters in it")
        parts.append(_storable_text(part))
    return "".join(parts)


def _parts(kind: Kind, name: str, mime_type: str, data: bytes) -> Iterator[str]:
    """Yield a file's text in parts, so that only as much is computed as is used."""
    match kind:
        case Kind.TEXT:
            yield decode(data, may_declare=data[:5] == b"<?xml")
        case Kind.HTML:
            yield _page_text(name, decode(data, may_declare=True))
        case Kind.PDF:
            yield from pdf_parts(name, data)
        case Kind.WORD:
            yield from word_parts(name, data)
        case Kind.EXCEL:
            yield from spreadsheets.text_parts(name, data)
        case Kind.SLIDES | Kind.OLD_OFFICE | Kind.OTHER_DOCUMENT:
            yield office_text(name, mime_type, kind, data)
        case _:
            raise unreadable(name, kind, "cannot be read as text", REMEDIES[kind])


def _page_text(name: str, html: str) -> str:
    try:
        with wrap_parser_errors(name, Kind.HTML):
            return extract_page_text(html)
    except FileUnreadable:
        raise
    except NodeFailure as failure:
        raise NodeFailure(f'The file "{name}" ({Kind.HTML}): {failure.message}', file=name) from failure


def _join_cut(parts: Iterable[str]) -> str:
    texts: list[str] = []
    left = MAX_CHARACTERS
    for part in parts:
        texts.append(_storable_text(part[:left]))
        left -= len(part)
        if left < 0:
            texts.append(CUT_NOTE)
            break
    return "".join(texts)


def _storable_text(text: str) -> str:
    """Return the text without NUL and lone surrogates, which damaged PDFs often contain and which cannot be stored."""
    text = text.replace("\x00", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
