"""TuShare, with replies as the vendor documents them."""

from typing import Any

import pytest
from pydantic import ValidationError

from components.tools.finance.tushare import TUSHARE, TuShareParams
from components.tools.framework.tool_node import tool_component
from providers.interfaces import HttpResponse
from tests.fakes import FakeContext, FakeHttp, no_network, run
from tests.unit.components.tools.vendors import (
    by_model,
    context,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    unreachable,
    vendor,
)

TOKEN = "token-12345678"
NEWS = json_reply(
    {
        "code": 0,
        "msg": "",
        "data": {"fields": ["id", "content"], "items": [[1, "x"], [2, "Google cloud revenue grows"], [3], None]},
    }
)


def node(**params: Any) -> dict[str, Any]:
    return {"query": "google", "token": TOKEN, "delay_after_error": 0, **params}


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n")]


@pytest.mark.parametrize("params", [{}, {"query": "x", "keyword": " Google"}, {"query": "", "keyword": "GOOGLE"}])
def test_news_that_contain_the_keyword_are_a_table(params: dict[str, Any]):
    table = outputs_of(TUSHARE, node(**params), vendor(NEWS))["formalized_content"]

    head, _, row = cells(table)
    assert (head, row) == (["", "id", "content"], ["1", "2", "Google cloud revenue grows"])


def test_keyword_is_not_a_pattern():
    assert outputs_of(TUSHARE, node(query="g.*e"), vendor(NEWS)) == {"formalized_content": ""}


def test_request_uses_https_and_ends_at_the_date_of_the_run():
    http = vendor(NEWS)
    ctx = context(http, globals={"sys.date": "2026-02-03 04:05:06"})

    run(tool_component(TUSHARE), node(src="sina"), ctx)

    [call] = http.calls
    assert (call.method, call.url) == ("POST", "https://api.tushare.pro/")
    assert call.json == {
        "api_name": "news",
        "token": TOKEN,
        "params": {"src": "sina", "start_date": "2024-01-01 09:00:00", "end_date": "2026-02-03 04:05:06"},
    }
    assert ctx.inputs["end_date"] == "2026-02-03 04:05:06"


def test_end_date_may_be_set():
    http = vendor(NEWS)

    outputs_of(TUSHARE, node(end_date="2025-01-01 00:00:00"), http)

    assert http.calls[0].json["params"]["end_date"] == "2025-01-01 00:00:00"


def test_empty_keyword_sends_no_request():
    assert outputs_of(TUSHARE, node(query=None, keyword=""), FakeHttp(no_network), globals={"sys.query": ""}) == {
        "formalized_content": ""
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (json_reply({"code": 2002, "msg": "no permission"}), "no permission"),
        (json_reply({"code": 2002, "msg": f"bad {TOKEN}"}), "bad [REDACTED]"),
        (json_reply({"code": 2002}), "The vendor returned code 2002."),
        (json_reply({"code": 0, "data": [1]}), 'The answer\'s "data" is not an object: it is of type list.'),
        (json_reply({"code": 0, "data": {"fields": {}}}), 'The answer\'s "fields" is not a list: it is of type dict.'),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
        (reply("no", 401), "HTTP 401: no"),
    ],
)
def test_invalid_answer_is_an_error(answer: HttpResponse, error: str):
    assert error_of(TUSHARE, node(), vendor(answer)) == error


@pytest.mark.parametrize("data", [None, {}, {"fields": ["id"], "items": [[1]]}, {"fields": ["content"], "items": []}])
def test_empty_result_is_an_empty_text(data: Any):
    answer = vendor(json_reply({"code": 0, "data": data}))

    assert outputs_of(TUSHARE, node(), answer) == {"formalized_content": ""}


def test_rate_limited_request_is_retried():
    http = vendor(reply("slow", 429, retry_after="0"), NEWS)

    assert "revenue" in outputs_of(TUSHARE, node(max_retries=1), http)["formalized_content"]


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(TUSHARE, node(), FakeHttp(refusing))
    assert "12 s" in error_of(TUSHARE, node(), FakeHttp(unreachable))


def test_unknown_source_is_refused_when_the_canvas_is_loaded():
    with pytest.raises(ValidationError, match="Quick News Source x is not supported"):
        TuShareParams.model_validate({"src": "x"})


def test_token_is_redacted():
    assert TOKEN not in repr(TuShareParams(token=TOKEN))
    assert by_model(TUSHARE, {"token": TOKEN}, {"query": "q"}, vendor(reply(TOKEN, 500))).answer == (
        "TuShare error: HTTP 500: [REDACTED]"
    )


def test_request_of_a_run_without_a_date_ends_now():
    http = vendor(NEWS)

    run(tool_component(TUSHARE), node(), FakeContext(services=context(http).services))

    assert len(http.calls[0].json["params"]["end_date"]) == len("2026-01-01 00:00:00")
