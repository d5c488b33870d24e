"""Crawler: text of pages, and errors."""

from typing import Any

import pytest
from pydantic import ValidationError

from components.tools.web_search.crawler import CRAWLER, MAX_TEXT_LENGTH, CrawlerParams
from providers.interfaces import HttpResponse
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import by_model, error_of, outputs_of, refusing, reply, unreachable, vendor

PAGE = (
    "<html><head><title>t</title><script>x()</script></head><body><!-- c --><h1>Hi</h1>"
    '<p onclick="x()">A <a href="/b">b</a><img src="data:image/png;base64,AAAA"></p></body></html>'
)


def page(text: str = PAGE, **headers: str) -> HttpResponse:
    return HttpResponse(200, {"content-type": "text/html", **headers}, text.encode(), "https://site.test/deep/page")


def node(**params: Any) -> dict[str, Any]:
    return {"query": "https://site.test/page", "delay_after_error": 0, **params}


def text_of(answer: HttpResponse, **params: Any) -> str:
    return outputs_of(CRAWLER, node(**params), vendor(answer))["formalized_content"]


def test_page_becomes_markdown_with_absolute_links():
    assert text_of(page()) == "# Hi\n\nA [b](https://site.test/b)"


def test_base_href_of_a_page_resolves_its_links():
    assert "(https://other.test/x/b)" in text_of(page('<base href="https://other.test/x/"><a href="b">b</a>'))


def test_html_output_has_no_active_content():
    assert text_of(page(), extract_type="html") == '<h1>Hi</h1><p>A <a href="/b">b</a><img></p>'


def test_the_main_text_has_neither_menus_nor_links():
    body = f"<nav>Home</nav><article><h1>Hi</h1><p>{'Long, ' * 50}<a href=/b>b</a></article><footer>Imprint</footer>"

    text = text_of(page(body), extract_type="content")

    assert text.startswith("# Hi\n\nLong, ")
    assert text.endswith("b")
    assert not {"Home", "Imprint", "["} & set(text.replace("\n", " ").split(" "))


@pytest.mark.parametrize(
    ("content_type", "content", "text"),
    [
        ("text/plain", b"<b>plain</b>", "<b>plain</b>"),
        ("text/html; charset=gbk", "<p>你好".encode("gbk"), "你好"),
        ("text/html", '<meta charset="gbk"><p>你好'.encode("gbk"), "你好"),
        ("application/xhtml+xml", b"<p>x</p>", "x"),
        ("", b"<p>x</p>", "x"),
        ("", b"x", "x"),
        ("text/html", b"", ""),
    ],
)
def test_pages_and_plain_text_are_read_in_their_own_charset(content_type: str, content: bytes, text: str):
    assert text_of(HttpResponse(200, {"content-type": content_type}, content, "https://site.test/")) == text


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply("%PDF-1.7", content_type="text/html"), "it is a PDF, and only web pages and plain text are read."),
        (reply("x", content_type="application/pdf"), "it is a PDF, and only web pages and plain text are read."),
        (reply("x", content_type="image/png"), "its type is image/png, and only web pages and plain text are read."),
        (reply("gone", 404, content_type="text/html"), "HTTP 404: gone"),
        (reply("<i>" * 600, content_type="text/html; charset=utf-8"), "The page nests its elements deeper than 512."),
    ],
)
def test_unreadable_page_is_an_error(answer: HttpResponse, error: str):
    assert error_of(CRAWLER, node(), vendor(answer)) == f"An unexpected error occurred: {error}"
    assert by_model(CRAWLER, {}, {"query": "https://s.test"}, vendor(answer)).answer == (
        f"An unexpected error occurred: {error}"
    )


@pytest.mark.parametrize("url", ["ftp://a/b", "example.com", "javascript:x()", "http://", "file:///etc/passwd", "\0"])
def test_invalid_url_is_refused_before_the_request(url: str):
    assert error_of(CRAWLER, node(query=url), FakeHttp(no_network), base_urls={"CRAWLER": "http://x"}) == (
        "URL not valid"
    )


def test_refused_address_is_reported_as_invalid_and_not_retried():
    http = FakeHttp(refusing)

    error = "URL not valid: URL resolves to a non-public address (10.0.0.1), which is not allowed. An operator can"

    assert error_of(CRAWLER, node(max_retries=3), http).startswith(error)
    assert len(http.calls) == 1
    assert str(by_model(CRAWLER, {}, {"query": "http://10.0.0.1/"}, http).answer).startswith(error)


def test_unreachable_page_is_retried():
    http = FakeHttp(unreachable)

    assert error_of(CRAWLER, node(max_retries=1), http).startswith("An unexpected error occurred: ")
    assert len(http.calls) == 2


@pytest.mark.parametrize(
    ("proxy", "used"),
    [(None, None), ("", None), ("proxy.test:3128", "http://proxy.test:3128"), ("https://p.test", "https://p.test")],
)
def test_proxy_of_the_node_is_used_for_the_page(proxy: Any, used: str | None):
    http = vendor(page())

    outputs_of(CRAWLER, node(proxy=proxy), http)

    assert (http.calls[0].proxy, http.calls[0].trusted) == (used, False)


def test_long_page_is_truncated_and_inline_images_are_removed():
    assert len(text_of(page(f"<p>{'x' * MAX_TEXT_LENGTH}yy"))) == MAX_TEXT_LENGTH
    assert text_of(reply("a data:image/png;base64,AAAA= b", content_type="text/plain")) == "a  b"


def test_empty_url_sends_no_request():
    assert outputs_of(CRAWLER, node(query=""), FakeHttp(no_network)) == {"formalized_content": ""}


@pytest.mark.parametrize("params", [{"extract_type": "pdf"}, {"engine": "w3m"}])
def test_unknown_option_is_refused_when_the_canvas_is_loaded(params: dict[str, Any]):
    with pytest.raises(ValidationError, match="is not supported, it should be in"):
        CrawlerParams.model_validate(params)


@pytest.mark.parametrize(("params", "error"), [({}, "no browser is configured"), ({"proxy": "p"}, "no browser")])
def test_engine_browser_without_a_configured_browser_is_an_error(params: dict[str, Any], error: str):
    assert error in error_of(CRAWLER, node(engine="browser", **params), FakeHttp(no_network))
