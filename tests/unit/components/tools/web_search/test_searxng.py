"""SearXNG, with recorded replies of an instance."""

from typing import Any

import pytest

from components.tools.web_search.searxng import SEARXNG
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import (
    FC,
    FC_W1,
    W1,
    W2,
    by_model,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    unreachable,
    vendor,
)

FOUND = json_reply({"results": [W1, W2]})
REFUSAL = "URL resolves to a non-public address (10.0.0.1), which is not allowed."


def node(**params: Any) -> dict[str, Any]:
    return {"query": "widgets", "searxng_url": "https://searx.test/", "delay_after_error": 0, **params}


def test_pages_become_citations_and_json():
    assert outputs_of(SEARXNG, node(), vendor(FOUND)) == {"formalized_content": FC, "json": [W1, W2]}


def test_request_has_the_json_format_and_default_parameters():
    http = vendor(FOUND)

    outputs_of(SEARXNG, node(), http)

    call = http.calls[0]
    assert (call.url, call.timeout, call.trusted) == ("https://searx.test/search", 10.0, False)
    assert call.params == {
        "q": "widgets",
        "format": "json",
        "categories": "general",
        "language": "auto",
        "safesearch": 1,
        "pageno": 1,
    }


def test_results_beyond_top_n_are_dropped():
    outputs = outputs_of(SEARXNG, node(top_n="1"), vendor(FOUND))

    assert outputs == {"formalized_content": FC_W1, "json": [W1]}


@pytest.mark.parametrize("missing", [{"query": ""}, {"searxng_url": ""}, {"searxng_url": None}])
def test_empty_query_or_instance_sends_no_request(missing: dict[str, Any]):
    assert outputs_of(SEARXNG, node(**missing), FakeHttp(no_network)) == {"formalized_content": ""}


def test_model_gets_an_explanation_without_an_instance():
    done = by_model(SEARXNG, {}, {"query": "w", "searxng_url": ""}, FakeHttp(no_network))

    assert str(done.answer).startswith("SearXNG was not asked, because it has no address.")


def test_instance_of_the_author_is_preferred_to_that_of_the_model():
    own, other = vendor(FOUND), vendor(FOUND)
    arguments = {"query": "w", "searxng_url": "https://other.test"}

    by_model(SEARXNG, {"searxng_url": "https://searx.test"}, arguments, own)
    by_model(SEARXNG, {}, arguments, other)

    assert own.calls[0].url == "https://searx.test/search"
    assert other.calls[0].url == "https://other.test/search"


@pytest.mark.parametrize("own", ["{env.searx}", "env.searx"])
def test_reference_of_the_author_is_preferred_to_the_instance_of_the_model(own: str):
    http = vendor(FOUND)
    arguments = {"query": "w", "searxng_url": "https://other.test"}

    by_model(SEARXNG, {"searxng_url": own}, arguments, http, globals={"env.searx": "https://mine.test/"})

    assert http.calls[0].url == "https://mine.test/search"


def test_instance_url_may_be_a_reference():
    http = vendor(FOUND)

    outputs_of(SEARXNG, node(searxng_url="{env.searx}"), http, globals={"env.searx": "https://mine.test"})

    assert http.calls[0].url == "https://mine.test/search"


def test_refused_address_is_not_retried():
    http = FakeHttp(refusing)

    assert error_of(SEARXNG, node(max_retries=3), http) == REFUSAL
    assert len(http.calls) == 1


def test_model_gets_the_refused_address():
    done = by_model(SEARXNG, {}, {"query": "w", "searxng_url": "http://169.254.169.254"}, FakeHttp(refusing))

    assert done.answer == f"SearXNG error: SSRF guard blocked 'http://169.254.169.254': {REFUSAL}"
    assert done.error == REFUSAL


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_reply({"results": {}}), "Invalid results format from SearXNG"),
        (json_reply([1]), "Invalid response from SearXNG"),
        (reply("no json here", 403), "Network error: HTTP 403: no json here"),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
    ],
)
def test_error_status_of_the_instance_is_an_error(answer: Any, error: str):
    assert error_of(SEARXNG, node(), vendor(answer)) == error


def test_unreachable_instance_is_retried():
    http = FakeHttp(unreachable)

    assert error_of(SEARXNG, node(max_retries=1), http) == "Network error: The request took longer than 12 s."
    assert len(http.calls) == 2


@pytest.mark.parametrize("rows", [[], [None, {}, {"title": "t"}]])
def test_results_without_text_are_not_cited(rows: Any):
    outputs = outputs_of(SEARXNG, node(), vendor(json_reply({"results": rows})))

    assert outputs == {"formalized_content": "", "json": rows}
