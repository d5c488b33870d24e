"""Conversion of pages to Markdown, and detection of their main content."""

import time

import pytest

from components.text.extraction import page_markdown
from components.text.extraction.main_content import extract_main_content
from components.text.extraction.page_html import sanitize
from components.text.extraction.page_markdown import absolute_url, to_markdown
from components.text.extraction.page_text import parse_page

BASE = "https://site.test/a/"


def markdown(html: str) -> str:
    body = parse_page(html).body
    assert body is not None
    return to_markdown(body, BASE)


def test_links_of_a_page_with_a_very_long_base_url_are_dropped():
    body = parse_page("<a href=x>y</a>" * 2000).body
    assert body is not None

    assert to_markdown(body, "https://site.test/" + "a/" * 50_000) == "y" * 2000


def test_links_beyond_the_limit_become_plain_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(page_markdown, "MAX_LINKS", 2)

    assert markdown("<a href=x>a</a> <img src=y alt=b> <a href=z>c</a>") == (
        "[a](https://site.test/a/x) ![b](https://site.test/a/y) c"
    )


def main_text(html: str) -> str:
    body = parse_page(html).body
    assert body is not None
    return extract_main_content(body, BASE)


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h2>Two <b>x</b></h2>text", "## Two **x**\n\ntext"),
        ("<p>a  <em> b </em>c<br>d", "a *b* c  \nd"),
        ("<p>see <a href='b?q=1 2'>it </a>now", "see [it](https://site.test/a/b?q=1%202) now"),
        ("<a href='javascript:x()'>a</a> <a href='#'></a><a>b</a>", "a b"),
        ("<a href='/c'><h3>Card</h3><p>text</p></a>", "[Card text](https://site.test/c)"),
        (
            "<img src=/i.png alt='an  image'><img src='data:image/png;base64,A'>",
            "![an  image](https://site.test/i.png)",
        ),
        ("<ul><li>a<ul><li>b</ul><li><p>c<p>d</ul>", "- a\n\n  - b\n\n- c\n\n  d"),
        ("<ol start=9><li>x<li></li><li>y</ol>", "9. x\n10.\n11. y"),
        ("<pre>a\n  b</pre>", "```\na\n  b\n```"),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<blockquote><p>a<p>b</blockquote>c", "> a\n>\n> b\n\nc"),
        ("<table><tr><th>A<th>B<tr><td>1|2<tr><td></table>", "| A | B |\n| --- | --- |\n| 1\\|2 |  |\n|  |  |"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<script>x</script><style>y</style><p hidden>z</p><i style='display: none'>w</i>ok", "ok"),
        ("<b>one<p>two</p></b>", "**one**\n\n**two**"),
        ("<code>a*b</code>", "`a*b`"),
        ("", ""),
    ],
)
def test_a_page_becomes_markdown(html: str, text: str):
    assert markdown(html) == text


@pytest.mark.parametrize(
    ("address", "whole"),
    [
        ("b", "https://site.test/a/b"),
        ("//x.test/(y)", "https://x.test/%28y%29"),
        ("mailto:a@x.test", "mailto:a@x.test"),
        ("javascript:x", ""),
        ("data:text/html,x", ""),
        ("http://[", ""),
    ],
)
def test_urls_are_made_absolute_and_unlinkable_schemes_are_dropped(address: str, whole: str):
    assert absolute_url(BASE, address) == whole


def test_marked_article_of_a_page_is_its_main_content():
    article = f"<article><header>By Ann</header><p>{'long ' * 50}</p></article>"

    assert main_text(f"<main><nav>n</nav>{article}<aside>ad</aside></main>").startswith("By Ann long long")


def test_unmarked_page_has_its_longest_paragraphs_as_main_content():
    paragraphs = "".join(f"<p>This is paragraph {number}, and it says enough, as they do.</p>" for number in range(5))
    page = (
        f"<div class='top-menu'><p>Menu</p></div><div><p><a href=/>{'link ' * 20}</a></p></div><div>{paragraphs}</div>"
    )

    text = main_text(f"{page}<div id=cookie-banner>Accept, please, all of our cookies, they are good.</div>")

    assert text.startswith("This is paragraph 0")
    assert not {"Menu", "Accept,"} & set(text.split())


def test_element_with_an_ambiguous_class_name_is_not_removed():
    assert main_text("<div class='content-with-sidebar'><p>Said here.</p></div>") == "Said here."


def test_sanitized_html_contains_no_scripts():
    body = parse_page(
        "<p onclick=x style='color:red'><a href=' java\nscript:x'>a</a><iframe src=/x></iframe>"
        "<!-- c --><b hidden>b</b>"
    ).body
    assert body is not None

    assert sanitize(body) == "<p><a>a</a></p>"


@pytest.mark.parametrize(
    "html",
    [
        "<svg onload=x><script>y</script></svg>",
        "<a href='data:text/html,<script>x</script>'>a</a>",
        "<a href='vbscript:x'>a</a>",
        "<math><mi xlink:href='javascript:x'>a</mi></math>",
        "<form action='javascript:x'><button formaction='javascript:y'>a</button></form>",
        "<noscript><p title='</noscript><img src=x onerror=y>'></noscript>",
        "<style>@import 'x'</style><link rel=stylesheet href=x><meta http-equiv=refresh content='0;url=javascript:x'>",
        "<img src=x onerror=y><object data=x><embed src=y><base href='javascript:x'>",
    ],
)
def test_sanitized_html_executes_and_loads_nothing_but_images(html: str):
    body = parse_page(html).body
    assert body is not None

    cleaned = parse_page(sanitize(body)).body
    assert cleaned is not None

    for node in cleaned.css("*"):
        assert node.tag in {"body", "p", "a", "img", "math", "mi"}
        assert not {name for name in node.attributes if name.startswith("on") or name in ("style", "action")}
        assert not any("script:" in (value or "") or "data:" in (value or "") for value in node.attributes.values())


def test_page_without_main_content_is_kept_whole():
    assert main_text("<p>") == ""
    assert main_text("<nav><a href=/x>Menu</a></nav>") == "Menu"


def test_pages_of_any_depth_and_size_are_read_in_reasonable_time():
    began = time.process_time()

    markdown("<div><blockquote>" * 250 + "x" * 1000)
    markdown("<p>" + "<b>x" * 400 + "<td>" * 1000)
    main_text("<p>word, word<a href=x>y</a></p>" * 500)

    assert time.process_time() - began < 5
