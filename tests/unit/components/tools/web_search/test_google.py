"""Google, with recorded replies of SerpApi."""

from typing import Any

import pytest

from components.tools.web_search.google import GOOGLE
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import (
    by_model,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    unreachable,
    vendor,
)

KEY = "serp-0123456789"
ACME = {"title": "Acme", "link": "https://acme.test/", "snippet": "Acme makes widgets."}
FOUND = {"organic_results": [ACME]}
ABOUT = {"about_this_result": {"source": {"description": "Acme site"}}}


def node(**params: Any) -> dict[str, Any]:
    return {"q": "acme", "api_key": KEY, "delay_after_error": 0, **params}


def test_pages_become_citations_and_json():
    outputs = outputs_of(GOOGLE, node(), vendor(json_reply(FOUND)))

    block = "\nID: 150\n├── Title: Acme\n├── URL: https://acme.test/\n└── Content:\nAcme makes widgets."
    assert outputs == {"formalized_content": block, "json": [ACME]}


def test_request_contains_start_and_num():
    http = vendor(json_reply(FOUND))

    outputs_of(GOOGLE, node(country="us", start="10", num=3), http)

    assert http.calls[0].url == "https://serpapi.com/search.json"
    assert http.calls[0].params == {
        "engine": "google",
        "q": "acme",
        "google_domain": "google.com",
        "gl": "us",
        "hl": "en",
        "start": 10,
        "num": 3,
        "api_key": KEY,
    }


@pytest.mark.parametrize(
    ("row", "content"),
    [({**ABOUT, "snippet": "S"}, "S"), (ABOUT, "Acme site"), ({"about_this_result": None, "snippet": "S"}, "S")],
)
def test_snippet_of_a_page_is_preferred_to_the_description_of_its_site(row: Any, content: str):
    outputs = outputs_of(GOOGLE, node(), vendor(json_reply({"organic_results": [row]})))

    assert outputs["formalized_content"].endswith(f"Content:\n{content}")


def test_page_without_text_is_not_cited():
    outputs = outputs_of(GOOGLE, node(), vendor(json_reply({"organic_results": [{"title": "t"}, "junk"]})))

    assert outputs == {"formalized_content": "", "json": [{"title": "t"}, "junk"]}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_reply({"error": f"Invalid API key {KEY}."}, 401), "Invalid API key [REDACTED]."),
        (json_reply({"error": "Google hasn't returned any results."}), "Google hasn't returned any results."),
        (json_reply({"search_metadata": {}}), "SerpApi returned no organic_results."),
        (json_reply({"organic_results": {}}), "SerpApi returned no organic_results."),
        (reply("<html>no</html>", 403), "HTTP 403: <html>no</html>"),
        (json_reply({"error": 7}, 403), 'HTTP 403: {"error": 7}'),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
    ],
)
def test_error_has_the_vendors_text_and_is_not_retried(answer: Any, error: str):
    http = vendor(answer)

    assert error_of(GOOGLE, node(max_retries=2), http) == error
    assert len(http.calls) == 1


def test_rate_limited_request_is_retried():
    http = vendor(json_reply({"error": "Slow down."}, 429), json_reply(FOUND))

    outputs_of(GOOGLE, node(max_retries=1), http)

    assert len(http.calls) == 2


@pytest.mark.parametrize("start", [-1, "x", 1.5, [0]])
def test_start_that_is_not_a_number_is_refused(start: Any):
    assert "start" in error_of(GOOGLE, node(start=start), FakeHttp(no_network))


def test_empty_query_sends_no_request():
    assert outputs_of(GOOGLE, node(q=""), FakeHttp(no_network)) == {"formalized_content": ""}


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(GOOGLE, node(), FakeHttp(refusing))
    assert "12 s" in error_of(GOOGLE, node(), FakeHttp(unreachable))


def test_a_model_may_leave_out_all_but_the_query():
    http = vendor(json_reply(FOUND))

    done = by_model(GOOGLE, {"api_key": KEY}, {"q": "acme"}, http)

    params: Any = http.calls[0].params
    assert (params["start"], params["num"], done.error) == (0, 6, None)
