"""Markdown parsed into blocks, for the formats with their own layout.

Raw HTML in a text is treated as text. Images come only from `data:` URIs: nothing is fetched for a document, and any
other image is replaced by its description and URL.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, TypeAlias

from canvas.errors import NodeFailure
from components.documents.page.pictures import EmbeddedImage, read_data_uri

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_NESTING = 40  # nested quotes, or half as many nested lists; deeper text is left out (with 100, "[" takes seconds)

MAX_TOKENS = 1_000_000  # three for each paragraph or cell: a minute of work


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text in one style. A line break within a paragraph is a separate span: a line feed."""

    text: str
    bold: bool = False
    italic: bool = False
    strike: bool = False
    code: bool = False
    link: str = ""


Alignment: TypeAlias = Literal["left", "center", "right"]
Inline: TypeAlias = Span | EmbeddedImage
Inlines: TypeAlias = tuple[Inline, ...]


@dataclass(frozen=True, slots=True)
class HeadingBlock:
    level: int
    content: Inlines


@dataclass(frozen=True, slots=True)
class ParagraphBlock:
    """A paragraph; a tight one is an item of a list without blank lines between its items."""

    content: Inlines
    tight: bool = False


@dataclass(frozen=True, slots=True)
class CodeBlock:
    text: str


@dataclass(frozen=True, slots=True)
class RuleBlock:
    pass


@dataclass(frozen=True, slots=True)
class QuoteBlock:
    blocks: "tuple[Block, ...]"


@dataclass(frozen=True, slots=True)
class ListBlock:
    """A list; `start` is the number of its first item, None for a bullet list."""

    items: "tuple[tuple[Block, ...], ...]"
    start: int | None

    def mark(self, position: int) -> str:
        """Return the mark before an item, whose position is counted from 0: `•`, `3.`."""
        return "•" if self.start is None else f"{self.start + position}."


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table; every row has as many cells as the header, and so has `alignments`."""

    header: tuple[Inlines, ...]
    rows: tuple[tuple[Inlines, ...], ...]
    alignments: tuple[Alignment, ...] = ()

    def alignment(self, column: int) -> Alignment:
        return self.alignments[column] if column < len(self.alignments) else "left"


Block: TypeAlias = HeadingBlock | ParagraphBlock | CodeBlock | RuleBlock | QuoteBlock | ListBlock | TableBlock


def parse_blocks(text: str) -> tuple[Block, ...]:
    """Parse a Markdown text (CommonMark with tables and strikethrough) into blocks.

    Raises NodeFailure for a text of more than MAX_TOKENS tokens.
    """
    tokens = markdown_parser().parse(text)
    if len(tokens) > MAX_TOKENS:
        raise NodeFailure(
            "The text has too many paragraphs and cells for one document. Split it into several documents."
        )
    return _blocks(iter(tokens), None)


def plain_text(content: Sequence[Inline]) -> str:
    """Return a content as plain text; an image becomes its description, a link is followed by its URL."""
    words: list[str] = []
    link_text = ""
    for inline, following in zip_longest(content, content[1:]):
        if isinstance(inline, EmbeddedImage):
            words.append(inline.description)
            continue
        words.append(inline.text)
        link_text += inline.text if inline.link else ""
        if inline.link and not (isinstance(following, Span) and following.link == inline.link):
            words.append("" if inline.link.removeprefix("mailto:") in link_text else f" ({inline.link})")
            link_text = ""
    return "".join(words)


@lru_cache(maxsize=1)
def markdown_parser() -> "MarkdownIt":
    """Return the Markdown parser, which has no state and is shared."""
    try:
        from markdown_it import MarkdownIt
    except ImportError as missing:
        raise NodeFailure('Reading Markdown needs the extra "docs": pip install easel[docs].') from missing
    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": MAX_NESTING})
    return reader.enable(["table", "strikethrough"])


def _blocks(tokens: "Iterator[Token]", end: str | None) -> tuple[Block, ...]:
    """Return the blocks up to the token `end`, and consume that token."""
    found: list[Block] = []
    for token in tokens:
        match token.type:
            case "heading_open":
                found.append(HeadingBlock(int(token.tag[1:]), _inlines(next(tokens))))
            case "paragraph_open":
                found.append(ParagraphBlock(_inlines(next(tokens)), token.hidden))
            case "fence" | "code_block":
                found.append(CodeBlock(token.content.rstrip("\n")))
            case "hr":
                found.append(RuleBlock())
            case "blockquote_open":
                found.append(QuoteBlock(_blocks(tokens, "blockquote_close")))
            case "bullet_list_open" | "ordered_list_open":
                found.append(_listing(token, tokens))
            case "table_open":
                found.append(_table(tokens))
            case _ if token.type == end:
                break
            case _:  # closing tokens of blocks that were read as a whole
                pass
    return tuple(found)


def _listing(opening: "Token", tokens: "Iterator[Token]") -> ListBlock:
    is_ordered = opening.type == "ordered_list_open"
    start = int(opening.attrs.get("start", 1)) if is_ordered else None
    end = opening.type.replace("open", "close")
    items: list[tuple[Block, ...]] = []
    for token in tokens:
        if token.type == end:
            break
        items.append(_blocks(tokens, "list_item_close"))
    return ListBlock(tuple(items), start)


def _table(tokens: "Iterator[Token]") -> TableBlock:
    rows: list[tuple[Inlines, ...]] = []
    cells: list[Inlines] = []
    alignments: list[Alignment] = []
    for token in tokens:
        match token.type:
            case "th_open":
                alignments.append(_alignment(token))
            case "inline":
                cells.append(_inlines(token))
            case "tr_close":
                rows.append(tuple(cells))
                cells = []
            case "table_close":
                break
            case _:
                pass
    return TableBlock(rows[0], tuple(rows[1:]), tuple(alignments))


def _alignment(token: "Token") -> Alignment:
    """Return a column's alignment, which the colons below its header declare (`:-:`, `--:`)."""
    match str(token.attrs.get("style", "")):
        case "text-align:right":
            return "right"
        case "text-align:center":
            return "center"
        case _:
            return "left"


def _inlines(token: "Token") -> Inlines:
    found: list[Inline] = []
    style = Span("")
    depth = {"strong": 0, "em": 0, "s": 0}
    for part in token.children or ():
        match part.type:
            case "text":
                if part.content:
                    found.append(replace(style, text=part.content))
            case "code_inline":
                found.append(replace(style, text=part.content, code=True))
            case "softbreak":
                found.append(replace(style, text=" "))
            case "hardbreak":
                found.append(replace(style, text="\n"))
            case "link_open":
                style = replace(style, link=str(part.attrs.get("href", "")))
            case "link_close":
                style = replace(style, link="")
            case "image":
                found.append(_image(part, style))
            case _:
                name, _, _ = part.type.partition("_")
                depth[name] = depth.get(name, 0) + part.nesting
                style = replace(style, bold=depth["strong"] > 0, italic=depth["em"] > 0, strike=depth["s"] > 0)
    return tuple(found)


def _image(token: "Token", style: Span) -> Inline:
    source = str(token.attrs.get("src", ""))
    description = token.content
    if source.startswith("data:"):
        return read_data_uri(source, description) or replace(style, text=description or "image")
    return replace(style, text=f"{description} ({source})" if description else source, link=style.link or source)
