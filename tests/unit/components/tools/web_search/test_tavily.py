"""TavilySearch and TavilyExtract, with recorded replies; the live vendor is not tested here."""

from typing import Any

import pytest

from components.tools.framework.tool_node import tool_component
from components.tools.web_search.tavily import TAVILY_EXTRACT, TAVILY_SEARCH
from tests.fakes import FakeContext, FakeHttp, no_network, run
from tests.unit.components.tools.vendors import (
    FC,
    W1,
    W2,
    by_model,
    context,
    error_of,
    json_reply,
    on_node,
    outputs_of,
    refusing,
    reply,
    unreachable,
    vendor,
)

KEY = "tvly-0123456789"
FOUND = {"results": [{**W1, "raw_content": None, "score": 0.91}, {**W2, "score": 0.5}]}


def test_results_become_citations_and_json():
    outputs = outputs_of(TAVILY_SEARCH, {"query": "widgets", "api_key": KEY}, vendor(json_reply(FOUND)))

    assert outputs == {"formalized_content": FC, "json": FOUND["results"]}


def test_vendor_scores_become_similarities_of_references():
    ctx: FakeContext = context(vendor(json_reply(FOUND)))

    run(tool_component(TAVILY_SEARCH), {"query": "widgets"}, ctx)

    chunks = ctx.reference_store["chunks"]
    assert {number: chunk["similarity"] for number, chunk in chunks.items()} == {"373": 0.91, "194": 0.5}


def test_request_contains_all_parameters_of_the_node():
    http = vendor(json_reply(FOUND))
    stored = {
        "query": "widgets",
        "api_key": KEY,
        "search_depth": "advanced",
        "max_results": "3",
        "days": 7,
        "topic": "news",
        "include_domains": "a.test, b.test",
        "exclude_domains": ["c.test"],
        "include_answer": True,
        "include_raw_content": True,
        "include_images": True,
    }

    on_node(TAVILY_SEARCH, stored, http)

    call = http.calls[0]
    assert (call.method, call.url) == ("POST", "https://api.tavily.com/search")
    assert call.headers == {"Authorization": f"Bearer {KEY}"}
    assert call.json == {
        "query": "widgets",
        "topic": "news",
        "search_depth": "advanced",
        "max_results": 3,
        "days": 7,
        "include_domains": ["a.test", "b.test"],
        "exclude_domains": ["c.test"],
        "include_answer": True,
        "include_raw_content": False,
        "include_images": False,
        "include_image_descriptions": False,
    }


def test_node_without_a_query_searches_for_the_users_message():
    ctx = context(vendor(json_reply(FOUND)), globals={"sys.query": "tea?"})

    run(tool_component(TAVILY_SEARCH), {"api_key": KEY}, ctx)

    assert ctx.inputs == {"query": "tea?", "topic": "general", "include_domains": [], "exclude_domains": []}


def test_raw_content_is_preferred_to_the_summary():
    page = {"results": [{**W2, "raw_content": W1["content"]}]}

    assert W1["content"] in outputs_of(TAVILY_SEARCH, {"query": "w"}, vendor(json_reply(page)))["formalized_content"]


@pytest.mark.parametrize("body", [{"results": []}, {"results": None}, {}])
def test_empty_result_is_not_an_error(body: Any):
    outputs = outputs_of(TAVILY_SEARCH, {"query": "w"}, vendor(json_reply(body)))

    assert outputs == {"formalized_content": "", "json": []}


@pytest.mark.parametrize("results", [[None, "junk", 7], [{}], [{"title": ["odd"], "url": 7, "content": None}]])
def test_invalid_rows_stay_in_json_and_are_not_cited(results: Any):
    outputs = outputs_of(TAVILY_SEARCH, {"query": "w"}, vendor(json_reply({"results": results})))

    assert outputs == {"formalized_content": "", "json": results}


def test_empty_query_sends_no_request():
    assert outputs_of(TAVILY_SEARCH, {"query": ""}, FakeHttp(no_network)) == {"formalized_content": ""}


def test_wrong_key_is_redacted_in_the_error_and_not_retried():
    http = vendor(json_reply({"detail": {"error": f"Unauthorized: {KEY}"}}, 401))

    error = error_of(TAVILY_SEARCH, {"query": "w", "api_key": KEY, "max_retries": 3}, http)

    assert error == 'HTTP 401: {"detail": {"error": "Unauthorized: [REDACTED]"}}'
    assert len(http.calls) == 1


def test_rate_limited_request_is_retried():
    http = vendor(reply("slow down", 429), json_reply(FOUND))

    outputs = outputs_of(TAVILY_SEARCH, {"query": "w", "max_retries": 1, "delay_after_error": 0}, http)

    assert (outputs["formalized_content"], len(http.calls)) == (FC, 2)


@pytest.mark.parametrize("body", ["<html>", '{"results": {}}', "[1]"])
def test_unreadable_answer_is_an_error(body: str):
    http = vendor(reply(body))

    assert error_of(TAVILY_SEARCH, {"query": "w", "max_retries": 3}, http)
    assert len(http.calls) == 1


def test_refused_address_is_not_retried():
    http = FakeHttp(refusing)

    assert "non-public address" in error_of(TAVILY_SEARCH, {"query": "w", "max_retries": 3}, http)
    assert len(http.calls) == 1


def test_unreachable_vendor_is_retried_as_often_as_the_node_allows():
    http = FakeHttp(unreachable)

    error = error_of(TAVILY_SEARCH, {"query": "w", "max_retries": 2, "delay_after_error": 0}, http)

    assert (error, len(http.calls)) == ("The request took longer than 12 s.", 3)


def test_model_gets_citations_or_the_error_with_the_vendors_label():
    found = by_model(TAVILY_SEARCH, {"api_key": KEY}, {"query": "w"}, vendor(json_reply(FOUND)))
    failed = by_model(TAVILY_SEARCH, {"api_key": KEY}, {"query": "w"}, vendor(reply("no", 403)))
    confused = by_model(TAVILY_SEARCH, {}, {"query": "w", "topic": "sports"}, FakeHttp(no_network))

    assert found.answer == FC
    assert failed.answer == "Tavily error: HTTP 403: no"
    assert confused.error == "topic sports is not supported, it should be in [general, news]"


PAGES = {"results": [{"url": "https://example.com/a", "raw_content": "# A"}], "failed_results": []}


@pytest.mark.parametrize(
    "urls", ["https://example.com/a, https://example.com/b", ["https://example.com/a ", "https://example.com/b"]]
)
def test_pages_are_read_as_json(urls: Any):
    http = vendor(json_reply(PAGES))

    outputs = outputs_of(TAVILY_EXTRACT, {"urls": urls, "api_key": KEY}, http)

    assert outputs == {"json": PAGES["results"], "failed": []}
    assert http.calls[0].url == "https://api.tavily.com/extract"
    assert http.calls[0].json == {
        "urls": ["https://example.com/a", "https://example.com/b"],
        "extract_depth": "basic",
        "format": "markdown",
        "include_images": False,
    }


def test_failed_pages_are_a_separate_output():
    failed = [{"url": "x", "error": "404"}]

    outputs = outputs_of(
        TAVILY_EXTRACT, {"urls": "https://x.test"}, vendor(json_reply({"results": [], "failed_results": failed}))
    )

    assert outputs == {"json": [], "failed": failed}


@pytest.mark.parametrize("urls", ["", " , ", [], None, ["", None]])
def test_empty_urls_send_no_request(urls: Any):
    assert outputs_of(TAVILY_EXTRACT, {"urls": urls}, FakeHttp(no_network)) == {"json": []}


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("ftp://a/b", "Disallowed URL scheme: 'ftp'. Only ['http', 'https'] are allowed."),
        ("https:///x", "URL is missing a host."),
    ],
)
def test_invalid_url_is_refused_before_the_request(url: str, error: str):
    assert error_of(TAVILY_EXTRACT, {"urls": [url]}, FakeHttp(no_network)) == error


def test_rate_limited_extraction_is_retried():
    http = vendor(reply("slow down", 429), json_reply(PAGES))

    outputs_of(TAVILY_EXTRACT, {"urls": "https://x.test", "max_retries": 1, "delay_after_error": 0}, http)

    assert len(http.calls) == 2


def test_a_model_gets_the_pages():
    done = by_model(TAVILY_EXTRACT, {}, {"urls": ["https://x.test"]}, vendor(json_reply(PAGES)))

    assert done.answer == PAGES["results"]
