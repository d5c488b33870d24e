"""A Markdown text as a file, in any of the formats we make."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from canvas.errors import NodeFailure
from components.documents.blocks import blocks_of
from components.documents.cleaning import printable
from components.documents.html import html, normalised
from components.documents.layout import BARE, Layout
from components.documents.pdf import pdf
from components.documents.plain import plain
from components.documents.sheets import sheets
from components.documents.word import word

Render: TypeAlias = Callable[[str, Layout], bytes]

LONGEST = 2_000_000  # characters: some 800 printed pages, a minute of work
MOST_BRACKETS = 200_000  # brackets without a partner cost a Markdown reader the square of their number

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


def render(text: str, output_format: str, layout: Layout = BARE) -> bytes:
    """The file that shows a Markdown text. It computes for a while: call it in a thread.

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
