"""HTML and normalised Markdown."""

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from components.documents.blocks import markdown_parser
from components.documents.page.layout import Layout

if TYPE_CHECKING:
    from markdown_it.token import Token

_PAGE = """<!DOCTYPE html>
<html>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; line-height: 1.5; max-width: 50em; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; }}
th, td {{ border: 1px solid #bbb; padding: 0.2em 0.6em; }}
pre {{ background: #f2f2f2; padding: 0.6em; overflow-x: auto; }}
img {{ max-width: 100%; }}
</style>
</head>
<body>
{body}</body>
</html>
"""
UNTITLED = "Document"


def render_html(text: str, layout: Layout) -> bytes:
    """Return a web page in UTF-8. HTML in the text is shown as text, and links that would run scripts stay text.

    The page's title is the first heading of the text.
    """
    reader = markdown_parser()
    tokens = reader.parse(_prepend_timestamp(text, layout))
    if not tokens:
        return b""
    body = reader.renderer.render(tokens, reader.options, {})
    return _PAGE.format(title=escape(_title(tokens)), body=body).encode()


def _title(tokens: "Sequence[Token]") -> str:
    """Return the text of the first heading that is not empty."""
    for opening, content in pairwise(tokens):
        if opening.type == "heading_open":
            words = "".join(part.content for part in content.children or () if part.type in ("text", "code_inline"))
            if words.strip():
                return words.strip()
    return UNTITLED


def render_markdown(text: str, layout: Layout) -> bytes:
    """Return the Markdown in UTF-8, without trailing spaces (except two at a line break) and with one final newline."""
    lines = "\n".join(map(_trim_line, _prepend_timestamp(text, layout).split("\n"))).strip("\n")
    return f"{lines}\n".encode() if lines else b""


def _trim_line(line: str) -> str:
    words = line.rstrip(" \t")
    return f"{words}  " if words and line.startswith("  ", len(words)) else words


def _prepend_timestamp(text: str, layout: Layout) -> str:
    return f"{layout.timestamp}\n\n{text}" if layout.timestamp else text
