"""Uploaded files as a canvas sees them: images as data URIs, everything else as one block of text (engine 3.6).

Files are read in child processes with limits of memory and time, but for those whose work is in proportion to their
size (texts, images) or that are small (`SMALL_PAGE`).
"""

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from canvas.errors import NodeFailure
from components.text.extraction import spreadsheets
from components.text.extraction.charsets import decoded
from components.text.extraction.file_kinds import (
    REMEDIES,
    FileUnreadable,
    Kind,
    check_size,
    image_type,
    kind_of,
    reading,
    too_large,
    unreadable,
)
from components.text.extraction.page_pictures import count_pages, pages_as_images
from components.text.extraction.page_text import SMALL_PAGE, text_of_page
from components.text.extraction.pdf import WITHOUT_TEXT, pdf_parts
from components.text.extraction.word import word_parts
from providers.isolation.limited_process import ResourceLimitExceeded, in_limited_process, in_limited_process_blocking
from providers.isolation.untrusted_threads import in_untrusted_thread

T = TypeVar("T")

MOST_CHARACTERS = 2_000_000  # of a file's text; more than any model reads
CUT = f"\n[The rest of the file is left out: a file reads as {MOST_CHARACTERS:,} characters at most.]"


@dataclass(frozen=True, slots=True)
class UnreadFile:
    """A file that is still to be read."""

    name: str
    mime_type: str
    data: bytes

    async def text(self) -> str:
        """What `file_text` gives, without harm to this process."""
        return await self._read(file_text)

    async def whole(self, most: int) -> str:
        """What `whole_text` gives, without harm to this process."""
        return await self._read(whole_text, most)

    async def count_pages(self) -> int:
        """Return how many pages a picture or a PDF has."""
        return await self._in_child(count_pages)

    async def pages_as_images(self, first: int, count: int) -> Sequence[str]:
        """Return pages of a picture or a PDF as data URIs, `count` of them from `first` on."""
        return await self._in_child(pages_as_images, first, count)

    @property
    def kind(self) -> Kind:
        return kind_of(self.name, self.mime_type, self.data)

    def text_blocking(self) -> str:
        """The same as `text`, for a thread that may wait."""
        if self._is_harmless():
            return file_text(self.name, self.mime_type, self.data)
        try:
            return in_limited_process_blocking(file_text, self.name, self.mime_type, self.data)
        except ResourceLimitExceeded as limit:
            raise self._too_costly(limit) from limit

    async def _read(self, read: Callable[..., str], *more: Any) -> str:
        if self._is_harmless():
            return await in_untrusted_thread(read, self.name, self.mime_type, self.data, *more)
        return await self._in_child(read, *more)

    async def _in_child(self, work: Callable[..., T], *more: Any) -> T:
        try:
            return await in_limited_process(work, self.name, self.mime_type, self.data, *more)
        except ResourceLimitExceeded as limit:
            raise self._too_costly(limit) from limit

    def _is_harmless(self) -> bool:
        match self.kind:
            case Kind.TEXT | Kind.IMAGE:
                return True
            case Kind.HTML:
                return len(self.data) <= SMALL_PAGE
            case _:
                return False

    def _too_costly(self, limit: ResourceLimitExceeded) -> NodeFailure:
        if limit.retryable:
            return limit
        kind = self.kind
        why = f"cannot be read within its limits. {limit.message}"
        return unreadable(self.name, kind, why, "Split it, or save it as text, and upload that.")


def block(name: str, text: str) -> str:
    """A file's text under its name."""
    return f"\n -----------------\nFile: {name}\nContent as following: \n{text}"


def image(mime_type: str, data: bytes) -> str:
    """An image as a data URI."""
    return f"data:{mime_type};base64,{base64.b64encode(data).decode()}"


def file_text(name: str, mime_type: str, data: bytes) -> str:
    """What a file reads as. Computes for long on some files: `UnreadFile.text` does so where nobody waits for it.

    Raises FileUnreadable for a file that is damaged, locked, too large or of a kind without text, and NodeFailure
    where the library for its kind is not installed.
    """
    kind = kind_of(name, mime_type, data)
    check_size(name, kind, data)
    if kind is Kind.IMAGE:
        return image(image_type(name, mime_type, data), data)
    text = _shortened(_parts(kind, name, data))
    return block(name, WITHOUT_TEXT if kind is Kind.PDF and not text else text)


def whole_text(name: str, mime_type: str, data: bytes, most: int) -> str:
    """All of a file's text, without its name; "" for a scanned PDF. Computes for long on some: see `UnreadFile.whole`.

    Raises what `file_text` does; FileTooLarge also for a text of more than `most` characters, which is never cut.
    """
    kind = kind_of(name, mime_type, data)
    check_size(name, kind, data)
    kept, room = list[str](), most
    for part in _parts(kind, name, data):
        room -= len(part)
        if room < 0:
            raise too_large(name, kind, f"has more than {most:,} characters in it")
        kept.append(_whole(part))
    return "".join(kept)


def _parts(kind: Kind, name: str, data: bytes) -> Iterator[str]:
    """A file's text in pieces, so that no more of it is worked out than is shown."""
    match kind:
        case Kind.TEXT:
            yield decoded(data, may_declare=data[:5] == b"<?xml")
        case Kind.HTML:
            yield _page_text(name, decoded(data, may_declare=True))
        case Kind.PDF:
            yield from pdf_parts(name, data)
        case Kind.WORD:
            yield from word_parts(name, data)
        case Kind.EXCEL:
            yield from spreadsheets.text_parts(name, data)
        case _:
            raise unreadable(name, kind, "cannot be read as text", REMEDIES[kind])


def _page_text(name: str, html: str) -> str:
    try:
        with reading(name, Kind.HTML):
            return text_of_page(html)
    except FileUnreadable:
        raise
    except NodeFailure as failure:
        raise NodeFailure(f'The file "{name}" ({Kind.HTML}): {failure.message}', file=name) from failure


def _shortened(parts: Iterable[str]) -> str:
    kept: list[str] = []
    room = MOST_CHARACTERS
    for part in parts:
        kept.append(_whole(part[:room]))
        room -= len(part)
        if room < 0:
            kept.append(CUT)
            break
    return "".join(kept)


def _whole(text: str) -> str:
    """Text that can be stored: no NUL, and no half of a surrogate pair, which damaged PDFs are full of."""
    text = text.replace("\x00", "")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
