"""DuckDuckGo, with recorded pages."""

from typing import Any
from urllib.parse import quote

import pytest

from components.tools.web_search.duckduckgo import DUCKDUCKGO
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import (
    FC,
    FC_W1,
    W1,
    W2,
    by_model,
    by_path,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    unreachable,
    vendor,
)


def result(row: dict[str, str], href: str = "", kind: str = "web-result") -> str:
    return (
        f'<div class="result results_links {kind}"><h2><a class="result__a" href="{href or row["url"]}">'
        f'{row["title"]}</a></h2><a class="result__snippet">{row["content"].replace("rose", "<b>rose</b>")}</a></div>'
    )


def page(*results: str) -> str:
    return f'<html><body><div id="links" class="results">{"".join(results)}</div></body></html>'


WRAPPED = f"//duckduckgo.com/l/?uddg={quote(W1['url'], safe='')}&amp;rut=0123"
FOUND = page(result(W1, WRAPPED), result(W2))
NEWS_PAGE = "<html><script>DDG.x('vqd=\"4-123456789\"')</script></html>"
NEWS = {
    "results": [
        {
            "title": "Widget prices <b>rise</b>",
            "url": "https://example.com/a",
            "excerpt": "Widget prices rose 4% in &#77;ay.",
            "date": 1767225600,
            "source": "Example",
        }
    ]
}


def news() -> FakeHttp:
    return by_path({"/news.js": json_reply(NEWS), "duckduckgo.com/": reply(NEWS_PAGE)})


def test_web_pages_become_citations_and_json():
    outputs = outputs_of(DUCKDUCKGO, {"query": "widgets"}, vendor(reply(FOUND)))

    assert outputs["formalized_content"] == FC
    assert outputs["json"] == [{"title": row["title"], "href": row["url"], "body": row["content"]} for row in (W1, W2)]


def test_web_search_sends_no_region():
    http = vendor(reply(FOUND))

    outputs_of(DUCKDUCKGO, {"query": "widgets & co", "channel": "text"}, http)

    assert http.calls[0].url == "https://html.duckduckgo.com/html/"
    assert http.calls[0].params == {"q": "widgets & co", "kl": "wt-wt"}


def test_advertisements_are_left_out():
    paid = result(W1, kind="result--ad"), result(W1, "//duckduckgo.com/y.js?ad_provider=x")

    outputs = outputs_of(DUCKDUCKGO, {"query": "w"}, vendor(reply(page(*paid, result(W2)))))

    assert [row["title"] for row in outputs["json"]] == [W2["title"]]


def test_results_beyond_top_n_are_dropped():
    assert outputs_of(DUCKDUCKGO, {"query": "w", "top_n": "1"}, vendor(reply(FOUND)))["formalized_content"] == FC_W1


def test_the_news_channel_finds_news():
    http = news()

    outputs = outputs_of(DUCKDUCKGO, {"query": "widgets", "channel": "news"}, http)

    assert outputs["formalized_content"] == FC_W1
    assert outputs["json"] == [
        {
            "date": "2026-01-01T00:00:00+00:00",
            "title": W1["title"],
            "body": W1["content"],
            "url": W1["url"],
            "image": None,
            "source": "Example",
        }
    ]
    params: Any = http.calls[1].params
    assert (params["vqd"], params["q"], params["l"]) == ("4-123456789", "widgets", "wt-wt")


@pytest.mark.parametrize(("channel", "first"), [("news", "https://duckduckgo.com/"), ("general", "https://html.")])
def test_a_model_chooses_the_channel(channel: str, first: str):
    http = by_path({"/news.js": json_reply(NEWS), "/html/": reply(FOUND), "duckduckgo.com/": reply(NEWS_PAGE)})

    done = by_model(DUCKDUCKGO, {}, {"query": "w", "channel": channel}, http)

    assert done.error is None
    assert http.calls[0].url.startswith(first)


def test_unknown_channel_from_a_model_is_refused():
    done = by_model(DUCKDUCKGO, {}, {"query": "w", "channel": "images"}, FakeHttp(no_network))

    assert done.answer == (
        "DuckDuckGo error: Web search channel images is not supported, it should be in [general, news]"
    )


@pytest.mark.parametrize("body", [page(), page('<div class="no-results">No results.</div>'), "", "\x00\xff not html"])
def test_empty_result_is_not_an_error(body: str):
    assert outputs_of(DUCKDUCKGO, {"query": "w"}, vendor(reply(body))) == {"formalized_content": "", "json": []}


@pytest.mark.parametrize(
    "blocked", [reply(FOUND, 202), reply('<html><div class="anomaly-modal__title">Are you a robot?</div></html>')]
)
@pytest.mark.parametrize("channel", ["text", "news"])
def test_blocked_request_is_a_retryable_error(blocked: Any, channel: str):
    http = vendor(blocked)
    stored = {"query": "w", "channel": channel, "max_retries": 1, "delay_after_error": 0}

    assert error_of(DUCKDUCKGO, stored, http).startswith("rate limited (The vendor refuses programs")
    assert all(call.as_browser for call in http.calls)
    assert len(http.calls) == 2


def test_unreadable_news_are_an_error():
    http = by_path({"/news.js": reply("<html>"), "duckduckgo.com/": reply(NEWS_PAGE)})

    assert "not valid JSON" in error_of(DUCKDUCKGO, {"query": "w", "channel": "news"}, http)


def test_transport_failure_is_an_error():
    assert error_of(DUCKDUCKGO, {"query": "w"}, vendor(reply("oops", 500))) == "HTTP 500: oops"
    assert "non-public" in error_of(DUCKDUCKGO, {"query": "w"}, FakeHttp(refusing))
    assert "12 s" in error_of(DUCKDUCKGO, {"query": "w"}, FakeHttp(unreachable))
