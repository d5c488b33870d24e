"""KeenableSearch, with recorded replies; the live vendor is not tested here."""

from typing import Any

import pytest

from components.tools.web_search.keenable import KEENABLE_SEARCH, KeenableSearchParams
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
    reply,
    vendor,
)

KEY = "keen_0123456789"
ROWS = [
    {**W1, "content": None, "snippet": "Widget  prices rose\n4% in May."},
    {**W2, "content": None, "snippet": " ", "description": "Supply stayed flat."},
]
FOUND = json_reply({"results": ROWS})


def test_snippets_or_else_descriptions_are_cited_on_one_line():
    assert outputs_of(KEENABLE_SEARCH, {"query": "w"}, vendor(FOUND)) == {"formalized_content": FC, "json": ROWS}


def test_request_without_a_key_uses_the_public_search():
    http = vendor(FOUND)

    outputs_of(KEENABLE_SEARCH, {"query": "w"}, http)

    call = http.calls[0]
    assert (call.method, call.url, call.trusted) == ("POST", "https://api.keenable.ai/v1/search/public", False)
    assert call.json == {"query": "w", "mode": "pro"}
    assert "X-API-Key" not in call.headers
    assert call.headers["X-Keenable-Title"] == "Easel"


def test_request_with_a_key_uses_the_account_and_the_site():
    http = vendor(FOUND)

    outputs_of(KEENABLE_SEARCH, {"query": "w", "api_key": KEY, "mode": "realtime", "site": "e.test"}, http)

    assert http.calls[0].url == "https://api.keenable.ai/v1/search"
    assert http.calls[0].headers["X-API-Key"] == KEY
    assert http.calls[0].json == {"query": "w", "mode": "realtime", "site": "e.test"}


def test_request_timeout_is_limited_by_the_node():
    http = vendor(FOUND)

    outputs_of(KEENABLE_SEARCH, {"query": "w"}, http, limits={"KeenableSearch": 12.0})

    assert http.calls[0].timeout == 12.0


def test_results_beyond_top_n_are_dropped():
    outputs = outputs_of(KEENABLE_SEARCH, {"query": "w", "top_n": "1"}, vendor(FOUND))

    assert outputs == {"formalized_content": FC_W1, "json": ROWS[:1]}


@pytest.mark.parametrize("results", [None, [], [None, 7, {}, {"snippet": []}]])
def test_results_without_text_are_not_cited(results: Any):
    outputs = outputs_of(KEENABLE_SEARCH, {"query": "w"}, vendor(json_reply({"results": results})))

    assert outputs == {"formalized_content": "", "json": results or []}


@pytest.mark.parametrize("key", ["", None, "  "])
def test_realtime_mode_without_a_key_is_refused_when_the_canvas_is_loaded(key: Any):
    with pytest.raises(ValueError, match="Keenable 'realtime' mode requires an API key"):
        KeenableSearchParams(mode="realtime", api_key=key)


def test_a_mode_that_the_vendor_does_not_have_is_refused():
    with pytest.raises(ValueError, match=r"slow is not supported, it should be in \[pro, realtime\]"):
        KeenableSearchParams(mode="slow")


@pytest.mark.parametrize(
    "server", ["https://keen.internal/api/", "http://127.0.0.1:8080", "http://[::1]:80", "http://localhost:1"]
)
def test_a_deployment_may_name_another_server(server: str):
    http = vendor(FOUND)

    outputs_of(KEENABLE_SEARCH, {"query": "w", "api_key": KEY}, http, base_urls={"KEENABLE": server})

    assert (http.calls[0].url, http.calls[0].trusted) == (server.rstrip("/") + "/v1/search", True)


@pytest.mark.parametrize(
    "server", ["http://evil.test", "ftp://127.0.0.1", "http://localhost.evil.test", "127.0.0.1", "https://", "http://["]
)
def test_key_is_not_sent_to_another_server_without_tls(server: str):
    http = FakeHttp(no_network)

    error = error_of(KEENABLE_SEARCH, {"query": "w", "max_retries": 3}, http, base_urls={"KEENABLE": server})

    assert error.startswith("KEENABLE_API_URL ")
    assert http.calls == []


def test_mirror_of_the_tool_is_preferred_to_the_url_of_the_vendor():
    http = vendor(FOUND)
    named = {"KEENABLE": "http://evil.test", "KEENABLESEARCH": "http://10.0.0.1:9"}

    outputs_of(KEENABLE_SEARCH, {"query": "w"}, http, base_urls=named)

    assert http.calls[0].url == "http://10.0.0.1:9/v1/search/public"


def test_a_model_reads_the_error_under_the_vendors_name():
    done = by_model(KEENABLE_SEARCH, {"api_key": KEY}, {"query": "w"}, vendor(reply(f"no {KEY}", 401)))

    assert done.answer == "Keenable error: HTTP 401: no [REDACTED]"


@pytest.mark.parametrize("body", ["<html>", '{"results": {}}', "[1]", '{"results": [{"title": "t'])
def test_unreadable_answer_is_an_error_and_not_retried(body: str):
    http = vendor(reply(body))

    assert error_of(KEENABLE_SEARCH, {"query": "w", "max_retries": 3}, http)
    assert len(http.calls) == 1
