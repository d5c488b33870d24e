"""render() makes documents of every format."""

import sys
from typing import Any

import pytest

from canvas.errors import NodeFailure
from components.documents import EXTENSIONS, MIME_TYPES, render, rendering

FIRST_BYTES = {
    "pdf": b"%PDF",
    "docx": b"PK",
    "txt": b"T\n",
    "markdown": b"# T",
    "html": b"<!DOCTYPE html>",
    "xlsx": b"PK",
}


@pytest.mark.parametrize("output_format", list(MIME_TYPES))
def test_every_format_can_be_rendered(output_format: str):
    assert render("# T", output_format).startswith(FIRST_BYTES[output_format])
    assert MIME_TYPES[output_format]
    assert EXTENSIONS[output_format] == ("md" if output_format == "markdown" else output_format)


def test_text_beyond_the_limits_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rendering, "MAX_TEXT_CHARS", 10)
    monkeypatch.setattr(rendering, "MAX_BRACKETS", 3)

    for text in ("a" * 11, "[[[["):
        with pytest.raises(NodeFailure, match="several"):
            render(text, "txt")


def test_error_of_a_library_fails_the_node(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: Any) -> bytes:
        raise ZeroDivisionError("inside")

    monkeypatch.setattr(rendering, "_RENDERERS", {"pdf": broken})

    with pytest.raises(NodeFailure, match="pdf could not be made: ZeroDivisionError: inside"):
        render("a", "pdf")


@pytest.mark.parametrize(
    ("output_format", "library"), [("pdf", "fpdf"), ("docx", "docx"), ("xlsx", "openpyxl"), ("html", "markdown_it")]
)
def test_error_for_a_missing_library_names_the_extra(output_format: str, library: str, monkeypatch: pytest.MonkeyPatch):
    rendering.parse_blocks("forget")
    monkeypatch.setitem(sys.modules, library, None)
    from components.documents import blocks

    blocks.markdown_parser.cache_clear()

    with pytest.raises(NodeFailure, match=r"pip install easel\[docs\]"):
        render("a", output_format)
