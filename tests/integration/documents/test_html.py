"""Rendering of documents as HTML and Markdown."""

from selectolax.lexbor import LexborHTMLParser

from components.documents import Layout, render


def test_html_page_has_its_charset_and_title():
    rendered = render("Of cats\n\n# Cats & <dogs>\n\nGrüße", "html").decode()

    assert rendered.startswith('<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">')
    assert "<title>Cats &amp; &lt;dogs&gt;</title>" in rendered
    assert "<p>Grüße</p>" in rendered
    assert "<title>Document</title>" in render("No heading", "html").decode()


def test_markdown_elements_become_html_elements():
    page = LexborHTMLParser(render("# T\n\na **b** ~~c~~\n\n|x|\n|-|\n|1|", "html").decode())

    rendered = {tag: node.text() for tag in ("h1", "strong", "s", "th", "td") if (node := page.css_first(tag))}
    assert rendered == {"h1": "T", "strong": "b", "s": "c", "th": "x", "td": "1"}


def test_html_and_scripts_in_a_text_are_inert():
    rendered = render('<img src=x onerror="y()">\n\n<script>z()</script>\n\n[a](javascript:b)', "html").decode()

    assert LexborHTMLParser(rendered).css("img, script, a") == []


def test_the_timestamp_is_the_first_paragraph():
    layout = Layout(timestamp="Generated: now")

    assert b"<body>\n<p>Generated: now</p>\n<h1>T</h1>\n</body>" in render("# T", "html", layout)
    assert render("# T", "markdown", layout) == b"Generated: now\n\n# T\n"


def test_markdown_is_unchanged_except_for_trailing_spaces():
    text = "\n# T \r\na   \nb\t\n\n```\n  x  \n```\n\n"

    assert render(text, "markdown") == b"# T\na  \nb\n\n```\n  x  \n```\n"


def test_empty_text_becomes_an_empty_file():
    assert render("", "html") == b""
    assert render(" \n", "markdown") == b""
