"""YahooFinance, with recorded replies."""

from typing import Any

import pytest

from components.tools.finance.yahoo_finance import YAHOO_FINANCE
from providers.interfaces import HttpResponse
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import (
    by_model,
    by_path,
    error_of,
    json_reply,
    outputs_of,
    refusing,
    reply,
    unreachable,
)

NO_SECTIONS = {"info": False, "news": False}
COOKIE = "A1=d=AQ&S=x; Expires=Thu, 02 Jan 2027 00:00:00 GMT; Domain=.yahoo.com; Secure, A3=e=BQ; Path=/"


def facts(**modules: Any) -> HttpResponse:
    return json_reply({"quoteSummary": {"result": [modules], "error": None}})


def yahoo(**routes: HttpResponse) -> FakeHttp:
    known = {"fc.yahoo.com": reply("", 404, set_cookie=COOKIE), "getcrumb": reply("cRuMb/1")}
    paths = {"facts": "quoteSummary", "chart": "/chart/", "news": "/search"}
    return by_path({**known, **{paths[name]: answer for name, answer in routes.items()}})


def report(http: FakeHttp, **params: Any) -> str:
    return outputs_of(YAHOO_FINANCE, {"stock_code": "ACME", **NO_SECTIONS, **params}, http)["report"]


def test_company_information_is_a_table_of_two_columns():
    http = yahoo(facts=facts(price={"symbol": "ACME", "marketCap": {"raw": 12, "fmt": "12"}, "maxAge": {}}))

    assert report(http, info=True) == (
        "# Information:\n|           | 0    |\n|:----------|:-----|\n| symbol    | ACME |\n| marketCap | 12   |\n"
    )


def test_request_has_the_vendors_cookie_and_crumb():
    http = yahoo(facts=facts(price={"symbol": "ACME"}))

    report(http, info=True)

    call = http.calls[-1]
    params: Any = call.params
    assert call.url == "https://query2.finance.yahoo.com/v10/finance/quoteSummary/ACME"
    assert call.headers == {"Cookie": "A1=d=AQ&S=x; A3=e=BQ"}
    assert params["crumb"] == "cRuMb/1"
    assert "price" in params["modules"].split(",")


def test_all_sections_come_in_order_with_a_blank_line_between():
    statement = [{"endDate": {"raw": 1767139200, "fmt": "2025-12-31"}, "totalAssets": {"raw": 5}, "maxAge": 1}]
    http = yahoo(
        facts=facts(
            price={"symbol": "ACME"},
            calendarEvents={"earnings": {"earningsDate": [{"raw": 1777593600}]}, "dividendDate": {"raw": 1767139200}},
            incomeStatementHistory={"incomeStatementHistory": statement},
            balanceSheetHistory={"balanceSheetStatements": statement},
        ),
        chart=json_reply({"chart": {"result": [CHART], "error": None}}),
        news=json_reply({"news": [{"title": "Up", "providerPublishTime": 1767139200, "thumbnail": {"a": 1}}]}),
    )
    flags = ("info", "history", "financials", "income_stmt", "balance_sheet", "cash_flow_statement", "news", "count")

    text = report(http, **dict.fromkeys(flags, True))

    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Information:",
        "# History:",
        "# Calendar:",
        "# Income statement:",
        "# Quarterly income statement:",
        "# Balance sheet:",
        "# Quarterly balance sheet:",
        "# Cash flow statement:",
        "# Quarterly cash flow statement:",
        "# News:",
    ]
    assert text.count("\n\n\n# ") == 9
    assert "| Total Assets |                     5 |" in text
    assert "2026-05-01 00:00:00" in text
    assert "|    | title   | providerPublishTime   |" in text
    assert "thumbnail" not in text


CHART = {
    "meta": {"gmtoffset": -14400},
    "timestamp": [1777635000, 1777721400, 1777807800],
    "indicators": {
        "quote": [
            {
                "open": [10.0, 11.0, None],
                "high": [12.0, 12.0, None],
                "low": [9.0, 10.0, None],
                "close": [10.0, 11.5, None],
                "volume": [1000, 2000, None],
            }
        ],
        "adjclose": [{"adjclose": [5.0, 11.5, None]}],
    },
}


def test_a_month_of_prices_is_in_local_time_and_adjusted():
    text = report(yahoo(chart=json_reply({"chart": {"result": [CHART]}})), history=True)

    assert text == (
        "# History:\n"
        "| Date                      |   Open |   High |   Low |   Close |   Volume |\n"
        "|:--------------------------|-------:|-------:|------:|--------:|---------:|\n"
        "| 2026-05-01 07:30:00-04:00 |      5 |      6 |   4.5 |     5   |     1000 |\n"
        "| 2026-05-02 07:30:00-04:00 |     11 |     12 |  10   |    11.5 |     2000 |\n"
    )


def test_report_without_sections_is_empty_and_sends_no_request():
    assert report(FakeHttp(no_network)) == ""


@pytest.mark.parametrize("code", ["", None, "  "])
def test_report_without_a_stock_code_is_empty(code: Any):
    assert outputs_of(YAHOO_FINANCE, {"stock_code": code}, FakeHttp(no_network)) == {"report": ""}


@pytest.mark.parametrize("code", ["Not Found", "../v1/test", "a" * 21, "AC?ME", ["A", "B"]])
def test_invalid_stock_code_is_refused_before_the_request(code: Any):
    assert "is not a valid stock code" in error_of(YAHOO_FINANCE, {"stock_code": code}, FakeHttp(no_network))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reply("Quote not found", 404), "HTTP 404: Quote not found"),
        (
            json_reply({"quoteSummary": {"result": None, "error": {"description": "No fundamentals"}}}),
            "No fundamentals",
        ),
        (json_reply({"quoteSummary": {"result": []}}), "Yahoo Finance has no data for this stock code."),
        (json_reply({}), "Yahoo Finance has no data for this stock code."),
        (reply("<html>"), "The answer is not valid JSON: <html>"),
    ],
)
def test_error_of_the_vendor_is_an_error(answer: HttpResponse, error: str):
    assert error_of(YAHOO_FINANCE, {"stock_code": "ACME"}, yahoo(facts=answer)) == error


def test_request_without_a_crumb_is_sent():
    http = by_path({"quoteSummary": facts(price={"symbol": "ACME"})})

    assert "ACME" in report(http, info=True)
    assert http.calls[-1].headers == {}


@pytest.mark.parametrize("odd", [None, [], "text", 7, [None], {"balanceSheetStatements": ["junk", {}]}])
def test_modules_that_are_missing_or_odd_leave_their_section_empty(odd: Any):
    http = yahoo(facts=facts(balanceSheetHistory=odd, calendarEvents=odd, price=odd), news=json_reply({"news": [odd]}))

    text = report(http, info=True, balance_sheet=True, financials=True, news=True)

    assert "# Balance sheet:\n\n" in text


def test_transport_failure_is_an_error():
    assert "non-public" in error_of(YAHOO_FINANCE, {"stock_code": "ACME"}, FakeHttp(refusing))
    assert "12 s" in error_of(YAHOO_FINANCE, {"stock_code": "ACME"}, FakeHttp(unreachable))


def test_a_model_reads_the_report():
    done = by_model(
        YAHOO_FINANCE, NO_SECTIONS | {"info": True}, {"stock_code": "acme"}, yahoo(facts=facts(price={"a": 1}))
    )

    assert done.answer.startswith("# Information:\n")


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (404, {"quoteSummary": {"result": None, "error": {"description": "Quote not found"}}}, "Quote not found"),
        (401, {"finance": {"result": None, "error": {"description": "Invalid Crumb"}}}, "Invalid Crumb"),
        (500, {"finance": None}, 'HTTP 500: {"finance": null}'),
    ],
)
def test_error_has_the_vendors_text(status: int, body: Any, error: str):
    http = yahoo(facts=json_reply(body, status), chart=json_reply(body, status))

    assert error_of(YAHOO_FINANCE, {"stock_code": "ACME", **NO_SECTIONS, "info": True}, http) == error


def test_invalid_bars_are_left_out_or_have_gaps():
    bars = {"open": ["a", 1], "high": [1, {}], "low": [1, 10**400], "close": ["1", 2.0], "volume": [1, "2"]}
    chart = {"timestamp": [1, 2e18, 1767364200], "indicators": {"quote": [{n: [*v, v[1]] for n, v in bars.items()}]}}

    text = report(yahoo(chart=json_reply({"chart": {"result": [chart], "error": None}})), history=True)

    assert text.splitlines()[3:] == ["| 2026-01-02 14:30:00+00:00 |      1 |        |       |       2 |          |"]
