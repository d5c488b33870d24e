"""QueritSearch and QueritContents, with recorded replies; the live vendor is not tested here."""

import asyncio
from typing import Any

import pytest

from components.tools.web_search.querit import QUERIT_CONTENTS, QUERIT_SEARCH, QueritContentsParams, QueritSearchParams
from providers.interfaces import Services
from tests.fakes import FakeContext, FakeHttp, no_network
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

KEY = "querit-0123456789"
NO_KEY = "Querit API key is required. Configure api_key or set QUERIT_API_KEY."
ROWS = [{"title": w["title"], "url": w["url"], "snippet": w["content"]} for w in (W1, W2)]
FOUND = {"took": "38ms", "results": {"result": [ROWS[0], "junk", None, ROWS[1]]}}
PAGES = {"results": [{"url": "https://a.test", "content": "# A"}], "statuses": []}


def node(**params: Any) -> dict[str, Any]:
    return {"query": "widgets", "api_key": KEY, "delay_after_error": 0, **params}


def pages(urls: Any = "https://a.test, https://b.test", **params: Any) -> dict[str, Any]:
    return {"urls": urls, "api_key": KEY, "delay_after_error": 0, **params}


# -- QueritSearch ----------------------------------------------------------------------------------------------------


def test_results_are_cited_and_the_whole_answer_is_json():
    assert outputs_of(QUERIT_SEARCH, node(), vendor(json_reply(FOUND))) == {"formalized_content": FC, "json": FOUND}


def test_request_of_a_minimal_node_has_defaults_only():
    http = vendor(json_reply(FOUND))

    outputs_of(QUERIT_SEARCH, node(), http)

    call = http.calls[0]
    assert (call.method, call.url) == ("POST", "https://api.querit.ai/v1/search")
    assert call.headers["Authorization"] == f"Bearer {KEY}"
    assert call.json == {"query": "widgets", "count": 10, "chunksPerDoc": 3}


def test_request_contains_all_parameters_of_the_node():
    http = vendor(json_reply(FOUND))
    stored = node(
        count="5",
        chunks_per_doc="1",
        site_include=["a.test", " "],
        site_exclude=["b.test"],
        time_range="2026-01-01to2026-03-31",
        country_include=["germany"],
        language_include=["german"],
    )

    outputs_of(QUERIT_SEARCH, stored, http)

    assert http.calls[0].json == {
        "query": "widgets",
        "count": 5,
        "chunksPerDoc": 1,
        "filters": {
            "sites": {"include": ["a.test"], "exclude": ["b.test"]},
            "timeRange": {"date": "2026-01-01to2026-03-31"},
            "geo": {"countries": {"include": ["germany"]}},
            "languages": {"include": ["german"]},
        },
    }


def test_null_leaves_the_number_of_passages_to_the_vendor():
    http = vendor(json_reply(FOUND))

    outputs_of(QUERIT_SEARCH, node(chunks_per_doc=None), http)

    assert http.calls[0].json == {"query": "widgets", "count": 10}


def test_values_of_references_are_checked_when_the_node_runs():
    values = {"env.sites": ["a.test"], "env.n": "4", "env.bad": {"a": 1}}
    http = vendor(json_reply(FOUND))

    outputs_of(QUERIT_SEARCH, node(site_include="{env.sites}", count="{env.n}"), http, globals=values)
    error = error_of(QUERIT_SEARCH, node(site_include="env.bad"), FakeHttp(no_network), globals=values)

    sent: Any = http.calls[0].json
    assert (sent["count"], sent["filters"]) == (4, {"sites": {"include": ["a.test"]}})
    assert error == "Querit site_include must be a list of strings."


WRONG = [
    ("query", 7, "Querit query must be a string."),
    ("query", ["a"], "Querit query must be a string."),
    ("count", 0, "Querit count 0 not supported, should be positive integer"),
    ("count", True, "Querit count True not supported, should be positive integer"),
    ("count", "many", "Querit count many not supported, should be positive integer"),
    ("chunks_per_doc", 4, "Querit chunks_per_doc must be an integer from 1 to 3."),
    ("chunks_per_doc", 0, "Querit chunks_per_doc must be an integer from 1 to 3."),
    ("site_include", "a.test", "Querit site_include must be a list of strings."),
    ("site_exclude", [1], "Querit site_exclude must be a list of strings."),
    ("country_include", {"a": 1}, "Querit country_include must be a list of strings."),
    ("language_include", [None], "Querit language_include must be a list of strings."),
    ("time_range", 7, "Querit time_range must be"),
    ("time_range", "d0", "Querit time_range must be"),
    ("time_range", "h1", "Querit time_range must be"),
    ("time_range", "2026-01-01", "Querit time_range must be"),
    ("time_range", "2026-02-30to2026-03-01", "Querit time_range must be"),
    ("time_range", "2026-03-02to2026-03-01", "Querit time_range must be"),
]


@pytest.mark.parametrize(("name", "value", "complaint"), WRONG)
def test_invalid_stored_values_are_refused_when_the_canvas_is_loaded(name: str, value: Any, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        QueritSearchParams.model_validate({name: value})


@pytest.mark.parametrize(("name", "value", "complaint"), WRONG)
def test_invalid_argument_of_a_model_is_an_error_without_a_request(name: str, value: Any, complaint: str):
    done = by_model(QUERIT_SEARCH, {"api_key": KEY}, {"query": "w", name: value}, FakeHttp(no_network))

    assert done.answer.startswith(f"Querit error: {complaint}")


@pytest.mark.parametrize("written", ["d7", "w2", "m3", "y1", " 2026-01-01to2026-01-01 ", ""])
def test_a_time_range_may_be_written_in_two_ways(written: str):
    assert QueritSearchParams(time_range=written).time_range == written.strip()


@pytest.mark.parametrize("query", ["", " ", None])
def test_empty_query_sends_no_request(query: Any):
    outputs = outputs_of(QUERIT_SEARCH, node(query=query), FakeHttp(no_network))

    assert outputs == {"formalized_content": "", "json": {}}


@pytest.mark.parametrize("tool", [QUERIT_SEARCH, QUERIT_CONTENTS])
def test_missing_key_is_an_error_without_a_request(tool: Any):
    params = {"query": "w", "urls": "https://a.test", "api_key": " "}

    assert error_of(tool, params, FakeHttp(no_network)) == NO_KEY


def test_deployments_key_is_used_without_a_node_key_and_is_redacted():
    http = vendor(reply("bad key deploy-key-1", 401))
    ctx = FakeContext(services=Services(http, vendor_keys={"QUERIT": "deploy-key-1"}))

    done = asyncio.run(QUERIT_SEARCH.run(QueritSearchParams(), {"query": "w"}, ctx))

    assert http.calls[0].headers["Authorization"] == "Bearer deploy-key-1"
    assert done.error == "HTTP 401: bad key [REDACTED]"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ([], "Querit API response must be a JSON object."),
        (None, "Querit API response must be a JSON object."),
        ({"results": []}, "Querit API response field results must be an object."),
        ({"results": None}, "Querit API response field results must be an object."),
        ({"results": {"result": {}}}, "Querit API response field results.result must be an array."),
        ({"error_code": 401, "error_msg": "who are you"}, "who are you"),
    ],
)
def test_answer_of_another_shape_is_an_error_and_not_retried(body: Any, error: str):
    http = vendor(json_reply(body))

    assert error_of(QUERIT_SEARCH, node(max_retries=3), http) == error
    assert len(http.calls) == 1


@pytest.mark.parametrize("body", [{}, {"results": {}}, {"results": {"result": []}}, {"results": {"result": [{}]}}])
def test_empty_result_is_not_an_error(body: Any):
    assert outputs_of(QUERIT_SEARCH, node(), vendor(json_reply(body))) == {"formalized_content": "", "json": body}


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_transient_status_is_retried_twice_whatever_max_retries_is(status: int, monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("components.tools.framework.base.asyncio.sleep", sleep)
    http = vendor(reply("busy", status), reply("busy", status, retry_after="7"), json_reply(FOUND))

    outputs = outputs_of(QUERIT_SEARCH, node(max_retries=0, delay_after_error=1.5), http)

    assert outputs["formalized_content"] == FC
    assert (len(http.calls), waits) == (3, [1.5, 7.0])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 422, 501])
def test_other_status_is_not_retried(status: int):
    http = vendor(reply("no", status))

    assert error_of(QUERIT_SEARCH, node(), http) == f"HTTP {status}: no"
    assert len(http.calls) == 1


def test_unreachable_vendor_is_retried_and_a_refused_address_is_not():
    unanswered, refused = FakeHttp(unreachable), FakeHttp(refusing)

    error_of(QUERIT_SEARCH, node(), unanswered)
    error_of(QUERIT_SEARCH, node(), refused)

    assert (len(unanswered.calls), len(refused.calls)) == (3, 1)


def test_result_fields_that_are_not_text_are_cited_as_json():
    found = {"results": {"result": [{"title": 1, "url": None, "snippet": {"a": [True]}}]}}

    outputs = outputs_of(QUERIT_SEARCH, node(), vendor(json_reply(found)))

    assert outputs["formalized_content"].endswith('├── Title: 1\n└── Content:\n{"a": [true]}')


def test_model_gets_the_citations():
    one = {"results": {"result": ROWS[:1]}}

    assert by_model(QUERIT_SEARCH, {"api_key": KEY}, {"query": "w"}, vendor(json_reply(one))).answer == FC_W1


# -- QueritContents --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("urls", ["https://a.test, https://b.test", ["https://a.test ", "https://b.test"]])
def test_pages_are_read_and_the_answer_is_the_result(urls: Any):
    http = vendor(json_reply(PAGES))

    assert outputs_of(QUERIT_CONTENTS, pages(urls, crawl_timeout="30", extras_meta="true"), http) == {"json": PAGES}
    assert (http.calls[0].url, http.calls[0].timeout) == ("https://api.querit.ai/v1/contents", 35.0)
    assert http.calls[0].json == {
        "urls": ["https://a.test", "https://b.test"],
        "format": "markdown",
        "crawlTimeout": 30,
        "extrasMeta": True,
    }


def test_a_model_gets_the_answer():
    done = by_model(QUERIT_CONTENTS, {"api_key": KEY}, {"urls": ["https://a.test"]}, vendor(json_reply(PAGES)))

    assert done.answer == PAGES


def test_short_crawl_timeout_has_the_default_request_timeout():
    http = vendor(json_reply(PAGES))

    outputs_of(QUERIT_CONTENTS, pages(crawl_timeout=1), http)

    assert http.calls[0].timeout == 15.0


COUNT = "Querit urls must contain between 1 and 10 non-empty strings."
FORM = "Querit urls must be absolute HTTP or HTTPS URLs."


@pytest.mark.parametrize(
    ("urls", "error"),
    [
        ([], COUNT),
        ("", COUNT),
        (None, COUNT),
        (" , ", COUNT),
        (["https://a.test", " "], COUNT),
        (["https://a.test", 7], COUNT),
        ([f"https://{n}.test" for n in range(11)], COUNT),
        ({"a": 1}, COUNT),
        (["ftp://a.test"], FORM),
        (["/a"], FORM),
        (["https:///a"], FORM),
        (["http://["], FORM),
    ],
)
def test_urls_are_checked_before_the_request(urls: Any, error: str):
    done = by_model(QUERIT_CONTENTS, {"api_key": KEY}, {"urls": urls}, FakeHttp(no_network))

    assert (done.error, done.answer) == (error, f"Querit contents error: {error}")


@pytest.mark.parametrize("urls", [[], "", None, "{begin@urls}", ["https://a.test", "{begin@url}"]])
def test_node_with_urls_by_reference_can_be_loaded(urls: Any):
    assert QueritContentsParams(urls=urls).urls == ("" if urls is None else urls)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("urls", ["a.test"], FORM),
        ("format", "pdf", r"Querit format pdf is not supported, it should be in \[text, markdown, html\]"),
        ("crawl_timeout", 61, "Querit crawl_timeout must be an integer from 1 to 60."),
        ("crawl_timeout", 0, "Querit crawl_timeout must be an integer from 1 to 60."),
        ("crawl_timeout", True, "Querit crawl_timeout must be an integer from 1 to 60."),
        ("extras_meta", "maybe", "Querit extras_meta must be a boolean."),
    ],
)
def test_options_that_the_vendor_does_not_have_are_refused_when_the_canvas_is_loaded(
    name: str, value: Any, complaint: str
):
    with pytest.raises(ValueError, match=complaint):
        QueritContentsParams.model_validate({name: value})


@pytest.mark.parametrize("name", ["results", "statuses"])
@pytest.mark.parametrize("value", [{}, None, "x"])
def test_results_that_are_not_a_list_are_an_error(name: str, value: Any):
    http = vendor(json_reply({**PAGES, name: value}))

    assert error_of(QUERIT_CONTENTS, pages(), http) == f"Querit API response field {name} must be an array."
    assert len(http.calls) == 1
