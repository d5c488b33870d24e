"""Conversion of pages to text, line by line, with their tables."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import NodeFailure
from components.text.extraction.page_text import MAX_NESTING, extract_page_text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (
            "<html><head><title>T</title><style>p{}</style></head><body><h1>Head</h1><p>First <b>bold</b> text.</p>"
            "<script>var x=1;</script><ul><li>one</li><li>two</li></ul></body></html>",
            "# Head\nFirst bold text.\none\ntwo",
        ),
        ("<p>a  b\n\tc&nbsp;d &amp; e</p>", "a b c d & e"),
        ("<p>wo<b>rd</b>, <i>end</i>.</p>", "word, end."),
        ("a<br>b<br/><br>c", "a\nb\nc"),
        ("<div>x<p>y<p>z</div>w", "x\ny\nz\nw"),
        ("<h2>Two</h2><h6>Six</h6><p>then</p>", "## Two\n###### Six\nthen"),
        ("<h1>a<br>b</h1>c", "# a\nb\nc"),
        ("<h1><br><div>deep</div></h1><p>after</p>", "# deep\nafter"),
        ("<h1> </h1><p>after an empty heading</p>", "after an empty heading"),
        ("a<!-- hidden -->b<template>c</template>", "ab"),
        ("<dl><dt>term<dd>meaning</dl>", "term\nmeaning"),
        ("plain\n  text, no page", "plain text, no page"),
        ("", ""),
        ("<frameset><frame></frameset>", ""),
        ("\ud800x", "?x"),
    ],
)
def test_each_block_of_a_page_is_a_line(html: str, text: str):
    assert extract_page_text(html) == text


def test_tables_stay_html_and_come_at_the_end():
    page = (
        "<p>before</p><table><tr><td>1<!-- no --><script>x</script><td><table><tr><td>in</table></table>"
        "<p>between</p><table><tr><th>2</table>after"
    )

    before, between, after, *tables = extract_page_text(page).split("\n")

    assert (before, between, after) == ("before", "between", "after")
    assert tables == [
        "<table><tbody><tr><td>1</td><td><table><tbody><tr><td>in</td></tr></tbody></table></td></tr></tbody></table>",
        "<table><tbody><tr><th>2</th></tr></tbody></table>",
    ]


def test_page_that_is_nested_too_deeply_is_refused():
    deep = "<div>" * MAX_NESTING + "x"

    assert extract_page_text(deep) == "x"
    with pytest.raises(NodeFailure, match="deeper than"):
        extract_page_text(f"<div>{deep}")


@pytest.mark.parametrize(
    "page",
    [
        "<div><p>a</div>",  # an unclosed paragraph
        "<div><span>a</div>",
        "<b><p>a</b></p>",
        "<div><b>a</div></b>",
        "<table><tr><td><div>a</table>",
        "<div><!-- <div><div> --></div>",
        "<div title='a > b'><img alt=\"<div>\"></div>",
        "<div title=it's>a</div>",
        "<script>if (a < b) { c = '<div><div>' }</script>",
        "<STYLE>a > b {}</Style><DIV>a</div>",
        "<div><br/><input value=x><hr></div>",
        "a < b, 1 <2, <3",
    ],
)
def test_long_page_with_small_markup_errors_is_accepted(page: str):
    assert extract_page_text(page * 2 * MAX_NESTING) is not None


@pytest.mark.parametrize(
    "deep",
    [
        "<div></x>",
        "<ul></x><li>t",
        "<div></p>",
        "<span><div></span>",
        "<div><!--</div>-->",
        "<div><script></div></script>",
        "<div><textarea></div></textarea>",
        "<div><a title='</div>'></a>",
        "<table></div><tr><td><div>",
    ],
)
def test_unmatched_closing_tags_do_not_hide_the_depth_of_a_page(deep: str):
    with pytest.raises(NodeFailure, match="deeper than 512"):
        extract_page_text(deep * 2 * MAX_NESTING)


def test_a_tag_of_very_many_attributes_and_a_page_of_very_many_tags_are_refused():
    many = " ".join(f"a{number}='x y'" for number in range(1001))
    some = " ".join(f"data-a{number}=x" for number in range(900))

    with pytest.raises(NodeFailure, match="more than 1,000 attributes"):
        extract_page_text(f"<p {many}>")
    with pytest.raises(NodeFailure, match="more than 300,000 tags"):
        extract_page_text("<p>" * 300_001)

    assert extract_page_text(f"<p {some}>a</p>") == "a"


def test_elements_that_close_one_another_do_not_count_as_nested():
    assert extract_page_text("<p>a<li>b<br><img>" * MAX_NESTING).count("\n") == 2 * MAX_NESTING - 1


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["<h1>", "</h1>", "<p>", "</div>", "<div>", "<br>", "<table>", "<td>", "<b>", "a", " "]))
)
def test_any_page_has_a_text(parts: list[str]):
    text = extract_page_text("".join(parts))

    assert text.replace("\n", "").count("a") >= sum(part == "a" for part in parts)
    assert "\n\n" not in text.partition("<table")[0].strip("\n")
