"""Rendering of a Markdown text as a file, in any of the formats of MIME_TYPES."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from canvas.errors import NodeFailure
from components.documents.blocks import parse_blocks
from components.documents.cleaning import strip_unprintable
from components.documents.formats.html import render_html, render_markdown
from components.documents.formats.pdf import render_pdf
from components.documents.formats.plain import render_plain
from components.documents.formats.sheets import render_sheets
from components.documents.formats.word import render_word
from components.documents.page.layout import BARE, Layout
from providers.isolation.limited_process import in_limited_process
from providers.isolation.untrusted_threads import in_untrusted_thread

Render: TypeAlias = Callable[[str, Layout], bytes]

MAX_TEXT_CHARS = 2_000_000  # characters: about 800 printed pages, a minute of work
MAX_BRACKETS = 200_000  # opening brackets; the parser's time grows with the square of unmatched ones

SMALL_TEXT_CHARS = 16 * 1024  # characters: less than 0.1 s of work in a format without images and fonts
_LIGHT = frozenset({"txt", "markdown", "html"})

_RENDERERS: Mapping[str, Render] = {
    "pdf": lambda text, layout: render_pdf(parse_blocks(text), layout),
    "docx": lambda text, layout: render_word(parse_blocks(text), layout),
    "txt": lambda text, layout: render_plain(parse_blocks(text), layout),
    "markdown": render_markdown,
    "html": render_html,
    "xlsx": lambda text, _: render_sheets(text),
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
    """Return the same as `render`. Large texts and heavy formats are rendered in a process with limits."""
    if output_format in _LIGHT and len(text) <= SMALL_TEXT_CHARS:
        return await in_untrusted_thread(render, text, output_format, layout)
    return await in_limited_process(render_with_layout_fields, text, output_format, asdict(layout))


def render_with_layout_fields(text: str, output_format: str, layout: Mapping[str, Any]) -> bytes:
    """Call `render` with a layout given as a dict of its fields, which can be sent to another process."""
    return render(text, output_format, Layout(**layout))


def render(text: str, output_format: str, layout: Layout = BARE) -> bytes:
    """Return a file that shows a Markdown text. This may take long: see `make_document`.

    `output_format` is one of MIME_TYPES. Raises NodeFailure for a text that is too long or too complex, and if the
    extra `docs` is not installed.
    """
    if len(text) > MAX_TEXT_CHARS:
        raise NodeFailure(
            f"The text has {len(text)} characters, but a document holds at most {MAX_TEXT_CHARS}. "
            "Split it into several documents."
        )
    if text.count("[") > MAX_BRACKETS:
        raise NodeFailure(f"The text has more than {MAX_BRACKETS} opening brackets. Split it into several documents.")
    try:
        return _RENDERERS[output_format](strip_unprintable(text), layout)
    except NodeFailure:
        raise
    except Exception as error:  # the boundary to five libraries, which may raise anything
        raise NodeFailure(f"The {output_format} could not be made: {type(error).__name__}: {error}") from error
