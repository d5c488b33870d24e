"""Parsing of Markdown into the blocks that all formats share."""

import base64
import io

import pytest
from PIL import Image

from canvas.errors import NodeFailure
from components.documents import blocks
from components.documents.blocks import (
    CodeBlock,
    HeadingBlock,
    ListBlock,
    ParagraphBlock,
    QuoteBlock,
    RuleBlock,
    Span,
    TableBlock,
    parse_blocks,
    plain_text,
)
from components.documents.page import pictures
from components.documents.page.pictures import EmbeddedImage


def picture_uri(kind: str = "png", size: tuple[int, int] = (3, 2)) -> str:
    stream = io.BytesIO()
    Image.new("RGB", size).save(stream, kind)
    return f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode()}"


def test_headings_paragraphs_code_and_rules_keep_their_order():
    parsed = parse_blocks("# Title\n\ntext\n\n```py\nx = 1\n\ny\n```\n\n    indented\n\n---\n\n#### Small")

    assert parsed == (
        HeadingBlock(1, (Span("Title"),)),
        ParagraphBlock((Span("text"),)),
        CodeBlock("x = 1\n\ny"),
        CodeBlock("indented"),
        RuleBlock(),
        HeadingBlock(4, (Span("Small"),)),
    )


def test_nested_styles_are_combined():
    (paragraph,) = parse_blocks("a **b *c* `d`** ~~e~~ [f **g**](http://h.i)")

    assert paragraph == ParagraphBlock(
        (
            Span("a "),
            Span("b ", bold=True),
            Span("c", bold=True, italic=True),
            Span(" ", bold=True),
            Span("d", bold=True, code=True),
            Span(" "),
            Span("e", strike=True),
            Span(" "),
            Span("f ", link="http://h.i"),
            Span("g", bold=True, link="http://h.i"),
        )
    )


def test_soft_line_break_is_a_space_and_a_hard_one_a_line_feed():
    assert parse_blocks("a\nb  \nc") == (ParagraphBlock((Span("a"), Span(" "), Span("b"), Span("\n"), Span("c"))),)


def test_lists_keep_their_numbers_nesting_and_tightness():
    bullets, numbers = parse_blocks("- a\n  1. b\n- c\n\n3) d\n\n4) e")

    nested = ListBlock(((ParagraphBlock((Span("b"),), tight=True),),), start=1)
    tight = (ParagraphBlock((Span("a"),), tight=True), nested), (ParagraphBlock((Span("c"),), tight=True),)
    assert bullets == ListBlock(tight, start=None)
    assert numbers == ListBlock(((ParagraphBlock((Span("d"),)),), (ParagraphBlock((Span("e"),)),)), start=3)
    assert isinstance(numbers, ListBlock)
    assert [numbers.mark(0), numbers.mark(1)] == ["3.", "4."]


def test_quotes_contain_blocks():
    assert parse_blocks("> a\n>\n> > b") == (
        QuoteBlock((ParagraphBlock((Span("a"),)), QuoteBlock((ParagraphBlock((Span("b"),)),)))),
    )


def test_rows_of_a_table_are_as_long_as_its_header():
    (table,) = parse_blocks("|A|B|\n|-|:-:|\n|1|\n|1|2|3|")

    assert table == TableBlock(
        ((Span("A"),), (Span("B"),)), (((Span("1"),), ()), ((Span("1"),), (Span("2"),))), ("left", "center")
    )


def test_html_in_a_text_is_text():
    assert parse_blocks("<script>x</script>") == (ParagraphBlock((Span("<script>x</script>"),)),)


def test_remote_image_becomes_a_link_and_is_not_fetched():
    (paragraph,) = parse_blocks("![A chart](https://x.y/z.png) ![](http://a.b/c)")

    assert paragraph == ParagraphBlock(
        (
            Span("A chart (https://x.y/z.png)", link="https://x.y/z.png"),
            Span(" "),
            Span("http://a.b/c", link="http://a.b/c"),
        )
    )


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_image_in_a_data_uri_is_embedded(kind: str):
    (paragraph,) = parse_blocks(f"![dot]({picture_uri(kind)})")

    assert isinstance(paragraph, ParagraphBlock)
    (picture,) = paragraph.content
    assert isinstance(picture, EmbeddedImage)
    assert (picture.width, picture.height, picture.description) == (3, 2, "dot")


@pytest.mark.parametrize(
    "address",
    [
        "data:image/png;base64,AAAA",
        "data:image/png;base64,!!",
        "data:image/gif;base64,R0lGODlhAQABAAAAACw=",
        picture_uri()[:-30],
    ],
)
def test_invalid_image_is_replaced_by_its_description(address: str):
    assert parse_blocks(f"![dot]({address})") == (ParagraphBlock((Span("dot"),)),)


def test_image_with_too_many_pixels_is_replaced_by_its_description(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pictures, "MAX_PIXELS", 5)

    assert parse_blocks(f"![dot]({picture_uri()})") == (ParagraphBlock((Span("dot"),)),)


def test_deep_nesting_is_cut_off():
    assert parse_blocks("> " * 50_000 + "a")
    assert parse_blocks("".join("  " * depth + "- a\n" for depth in range(200)))


def test_text_with_too_many_blocks_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(blocks, "MAX_TOKENS", 5)

    parse_blocks("a")
    with pytest.raises(NodeFailure, match="too many paragraphs"):
        parse_blocks("a\n\nb\n\nc")


def test_plain_text_contains_the_addresses_of_links():
    (paragraph,) = parse_blocks("[a **b**](http://x.y) <http://z.z> <me@x.y> c")

    assert isinstance(paragraph, ParagraphBlock)
    assert plain_text(paragraph.content) == "a b (http://x.y) http://z.z me@x.y c"
    assert plain_text(()) == ""
