"""HTML and Markdown: the formats that keep Markdown's own structure."""

from components.documents.blocks import markdown
from components.documents.layout import Layout


def html(text: str, layout: Layout) -> bytes:
    """An HTML fragment in UTF-8. HTML in the text is shown as text, and links that run scripts are none."""
    return markdown().render(_stamped(text, layout)).encode()


def normalised(text: str, layout: Layout) -> bytes:
    """The Markdown itself in UTF-8: no blanks at line ends but the two that break a line, one line feed at the end."""
    kept = "\n".join(map(_trimmed, _stamped(text, layout).split("\n"))).strip("\n")
    return f"{kept}\n".encode() if kept else b""


def _trimmed(line: str) -> str:
    words = line.rstrip(" \t")
    return f"{words}  " if words and line.startswith("  ", len(words)) else words


def _stamped(text: str, layout: Layout) -> str:
    return f"{layout.timestamp}\n\n{text}" if layout.timestamp else text
