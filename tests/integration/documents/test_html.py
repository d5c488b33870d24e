"""HTML and Markdown keep the structure of a text."""

from selectolax.lexbor import LexborHTMLParser

from components.documents import Layout, render


def test_markdown_becomes_an_html_page_that_names_its_charset_and_title():
    shown = render("Of cats\n\n# Cats & <dogs>\n\nGrüße", "html").decode()

    assert shown.startswith('<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">')
    assert "<title>Cats &amp; &lt;dogs&gt;</title>" in shown
    assert "<p>Grüße</p>" in shown
    assert "<title>Document</title>" in render("No heading", "html").decode()


def test_markdown_becomes_html():
    page = LexborHTMLParser(render("# T\n\na **b** ~~c~~\n\n|x|\n|-|\n|1|", "html").decode())

    shown = {tag: node.text() for tag in ("h1", "strong", "s", "th", "td") if (node := page.css_first(tag))}
    assert shown == {"h1": "T", "strong": "b", "s": "c", "th": "x", "td": "1"}


def test_html_and_scripts_in_a_text_do_nothing():
    shown = render('<img src=x onerror="y()">\n\n<script>z()</script>\n\n[a](javascript:b)', "html").decode()

    assert LexborHTMLParser(shown).css("img, script, a") == []


def test_the_timestamp_is_the_first_paragraph():
    stamped = Layout(timestamp="Generated: now")

    assert b"<body>\n<p>Generated: now</p>\n<h1>T</h1>\n</body>" in render("# T", "html", stamped)
    assert render("# T", "markdown", stamped) == b"Generated: now\n\n# T\n"


def test_markdown_stays_itself_but_for_blanks_at_line_ends():
    text = "\n# T \r\na   \nb\t\n\n```\n  x  \n```\n\n"

    assert render(text, "markdown") == b"# T\na  \nb\n\n```\n  x  \n```\n"


def test_nothing_makes_an_empty_file():
    assert render("", "html") == b""
    assert render(" \n", "markdown") == b""
