"""A Markdown text as a file, in any of the formats we make."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from canvas.errors import NodeFailure
from components.documents.blocks import blocks_of
from components.documents.cleaning import printable
from components.documents.formats.html import html, normalised
from components.documents.formats.pdf import pdf
from components.documents.formats.plain import plain
from components.documents.formats.sheets import sheets
from components.documents.formats.word import word
from components.documents.page.layout import BARE, Layout
from providers.isolation.limited_process import in_limited_process
from providers.isolation.untrusted_threads import in_untrusted_thread

Render: TypeAlias = Callable[[str, Layout], bytes]

LONGEST = 2_000_000  # characters: some 800 printed pages, a minute of work
MOST_BRACKETS = 200_000  # brackets without a partner cost a Markdown reader the square of their number

SMALL = 16 * 1024  # characters: less than 0.1 s of work in a format without pictures and fonts
_LIGHT = frozenset({"txt", "markdown", "html"})

_RENDERERS: Mapping[str, Render] = {
    "pdf": lambda text, layout: pdf(blocks_of(text), layout),
    "docx": lambda text, layout: word(blocks_of(text), layout),
    "txt": lambda text, layout: plain(blocks_of(text), layout),
    "markdown": normalised,
    "html": html,
    "xlsx": lambda text, _: sheets(text),
}
MIME_TYPES: Mapping[str, str] = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "txt": "text/plain",
    "markdown": "text/markdown",
    "html": "text/html",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
EXTENSIONS: Mapping[str, str] = {name: "md" if name == "markdown" else name for name in MIME_TYPES}


async def make_document(text: str, output_format: str, layout: Layout = BARE) -> bytes:
    """The same as `render`, in a process with limits of memory and time, but for what is light and small."""
    if output_format in _LIGHT and len(text) <= SMALL:
        return await in_untrusted_thread(render, text, output_format, layout)
    return await in_limited_process(render_laid_out, text, output_format, asdict(layout))


def render_laid_out(text: str, output_format: str, layout: Mapping[str, Any]) -> bytes:
    """`render` with the fields of a layout."""
    return render(text, output_format, Layout(**layout))


def render(text: str, output_format: str, layout: Layout = BARE) -> bytes:
    """The file that shows a Markdown text. It computes for a while: see `make_document`.

    Takes the formats of MIME_TYPES. Raises NodeFailure for a text that is too long or too intricate, and where a
    library of the extra `docs` is missing.
    """
    if len(text) > LONGEST:
        raise NodeFailure(f"The text has {len(text)} characters. A document takes up to {LONGEST}; make several of it.")
    if text.count("[") > MOST_BRACKETS:
        raise NodeFailure(f"The text has more than {MOST_BRACKETS} opening brackets. Make several documents of it.")
    try:
        return _RENDERERS[output_format](printable(text), layout)
    except NodeFailure:
        raise
    except Exception as error:  # a boundary: five libraries end here, each of which raises what it likes
        raise NodeFailure(f"The {output_format} could not be made: {type(error).__name__}: {error}") from error
