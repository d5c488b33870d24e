"""Jin10, with replies as the vendor documents them."""

from typing import Any

import pytest
from pydantic import ValidationError

from components.tools.finance.jin10 import JIN10, Jin10Params
from providers.interfaces import HttpResponse
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

KEY = "key-12345678"


def node(**params: Any) -> dict[str, Any]:
    return {"query": "gold", "secret_key": KEY, "delay_after_error": 0, **params}


def answer(*rows: Any) -> HttpResponse:
    return json_reply({"status": 200, "message": "ok", "data": list(rows)})


def text_of(http: FakeHttp, **params: Any) -> str:
    return outputs_of(JIN10, node(**params), http)["formalized_content"]


def test_each_news_flash_is_a_line():
    flashes = ({"data": {"content": "Gold up"}}, {"data": {}}, None, {"data": {"content": "Oil down"}})

    assert text_of(vendor(answer(*flashes))) == "Gold up\nOil down"


@pytest.mark.parametrize(
    ("params", "path", "expected"),
    [
        ({}, "flash", {"category": "1", "contain": None, "filter": None}),
        ({"flash_type": 3, "contain": "Fed"}, "flash", {"category": "3", "contain": "Fed", "filter": None}),
        ({"type": "calendar"}, "calendar/data", {"category": "cj"}),
        (
            {"type": "calendar", "calendar_type": "us", "calendar_datatype": "event"},
            "calendar/event",
            {"category": "us"},
        ),
        ({"type": "symbols"}, "symbols", {"type": "GOODS", "codes": None}),
        (
            {"type": "symbols", "symbols_type": "CRYPTO", "symbols_datatype": "quotes"},
            "quotes",
            {"type": "CRYPTO", "codes": "BTCUSD"},
        ),
        ({"type": "news", "filter": "oil"}, "news", {"contain": None, "filter": "oil"}),
    ],
)
def test_request_follows_from_the_parameters(params: dict[str, Any], path: str, expected: dict[str, Any]):
    http = vendor(answer())

    assert text_of(http, **params) == ""

    [call] = http.calls
    assert (call.method, call.url) == ("GET", f"https://open-data-api.jin10.com/data-api/{path}")
    assert (call.params, call.headers) == (expected, {"secret-key": KEY})


def test_symbols_are_a_table_with_names_for_its_columns():
    table = text_of(vendor(answer({"z": 1, "c": "XAU", "e": "CMX", "n": "Gold", "t": "GOODS"})), type="symbols")

    head, _, row = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n"))
    assert head == ["Commodity Code", "Stock Exchange", "Commodity Name", "Commodity Type", "z"]
    assert row == ["XAU", "CMX", "Gold", "GOODS", "1"]


def test_quotes_are_a_table_with_names_for_its_columns():
    table = text_of(vendor(answer({"a": 2.5, "hc": 1, "t": "now"})), type="symbols", symbols_datatype="quotes")

    head = [cell.strip() for cell in table.split("\n")[0].strip("|").split("|")]
    assert head == ["Selling Price", "Yesterday’s Closing Price", "Market Quote Time"]


def test_rows_of_a_calendar_may_differ():
    table = text_of(vendor(answer({"a": 1}, {"b": {"c": [1]}}, "x")), type="calendar")

    assert [line.count("|") for line in table.split("\n")] == [3, 3, 3, 3]
    assert '{"c": [1]}' in table


def test_empty_query_sends_no_request():
    assert outputs_of(JIN10, node(query=""), FakeHttp(no_network)) == {"formalized_content": ""}


@pytest.mark.parametrize(
    ("reply_", "error"),
    [
        (json_reply({"status": 403, "message": f"bad {KEY}"}), "bad [REDACTED]"),
        (json_reply({}), "The vendor returned status ."),
        (json_reply({"status": 200, "data": "x"}), 'The answer\'s "data" is not a list: it is of type str.'),
        (reply("who?", 401), "HTTP 401: who?"),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
    ],
)
def test_invalid_answer_is_an_error(reply_: HttpResponse, error: str):
    assert error_of(JIN10, node(), vendor(reply_)) == error


def test_rate_limited_request_is_retried():
    http = vendor(reply("slow", 429, retry_after="0"), answer({"data": {"content": "Gold up"}}))

    assert text_of(http, max_retries=1) == "Gold up"


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(JIN10, node(), FakeHttp(refusing))
    assert "12 s" in error_of(JIN10, node(), FakeHttp(unreachable))


@pytest.mark.parametrize("params", [{"type": "x"}, {"flash_type": "6"}, {"flash_type": True}, {"symbols_type": []}])
def test_unknown_option_is_refused_when_the_canvas_is_loaded(params: dict[str, Any]):
    with pytest.raises(ValidationError, match="is not supported, it should be in"):
        Jin10Params.model_validate(params)


def test_model_gets_the_error_with_the_vendors_label():
    assert by_model(JIN10, {}, {"query": "q"}, vendor(reply("no", 401))).answer == "Jin10 error: HTTP 401: no"
