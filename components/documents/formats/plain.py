"""Plain text: Markdown without its markup."""

import unicodedata
from collections.abc import Iterator, Sequence
from typing import assert_never

from components.documents.blocks import (
    Block,
    CodeBlock,
    HeadingBlock,
    ListBlock,
    ParagraphBlock,
    QuoteBlock,
    RuleBlock,
    TableBlock,
    plain_text,
)
from components.documents.page.layout import Layout

_RULE = "-" * 40
_MAX_COLUMN_WIDTH = 40  # characters; the columns of a table are padded up to this width
_GAP = "  "


def render_plain(blocks: Sequence[Block], layout: Layout) -> bytes:
    """Return the blocks as UTF-8 text, after the timestamp."""
    stamp = f"{layout.timestamp}\n\n" if layout.timestamp else ""
    text = "\n".join(_lines(blocks))
    return f"{stamp}{text}\n".encode() if stamp or text else b""


def _lines(blocks: Sequence[Block]) -> Iterator[str]:
    """Yield the lines of the blocks, with an empty line between blocks, but not after tight paragraphs."""
    previous: Block | None = None
    for block in blocks:
        if previous is not None and not _is_tight(previous):
            yield ""
        yield from _block(block)
        previous = block


def _block(block: Block) -> Iterator[str]:
    match block:
        case HeadingBlock(_, content) | ParagraphBlock(content):
            yield from plain_text(content).split("\n")
        case CodeBlock(text):
            yield from (f"    {line}".rstrip() for line in text.split("\n"))
        case RuleBlock():
            yield _RULE
        case QuoteBlock(blocks):
            yield from (f"> {line}".rstrip() for line in _lines(blocks))
        case ListBlock():
            yield from _listing(block)
        case TableBlock():
            yield from _table(block)
        case _:
            assert_never(block)


def _listing(listing: ListBlock) -> Iterator[str]:
    for position, item in enumerate(listing.items):
        mark = "-" if listing.start is None else listing.mark(position)
        indent = " " * (len(mark) + 1)
        for number, line in enumerate(_lines(item) if item else ("",)):
            yield f"{indent if number else mark + ' '}{line}".rstrip()
        if position + 1 < len(listing.items) and item and not _is_tight(item[0]):
            yield ""


def _table(table: TableBlock) -> Iterator[str]:
    rows = [[" ".join(plain_text(cell).split()) for cell in row] for row in (table.header, *table.rows)]
    widths = [
        min(_MAX_COLUMN_WIDTH, max(_display_width(row[column]) for row in rows)) for column in range(len(table.header))
    ]
    for number, row in enumerate(rows):
        yield _GAP.join(_pad(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if number == 0:
            yield _GAP.join("-" * max(1, width) for width in widths)


def _is_tight(block: Block) -> bool:
    return isinstance(block, ParagraphBlock) and block.tight


def _pad(text: str, width: int) -> str:
    return text + " " * max(0, width - _display_width(text))


def _display_width(text: str) -> int:
    """Return the display width of a text; Chinese, Japanese and Korean characters count twice."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
