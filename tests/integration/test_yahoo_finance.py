"""YahooFinance: yfinance in its child process, against a local server that speaks the vendor's protocol."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("yfinance")

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from canvas.errors import ToolError
from components.tools.finance.yahoo_finance import YAHOO_FINANCE
from providers.interfaces import Services
from providers.isolation.limited_process import close_limited_processes
from tests.fakes import FakeContext, FakeHttp, no_network

NO_SECTIONS = {"info": False, "news": False}
FACTS: Mapping[str, Any] = {
    "quoteType": {"symbol": "ACME", "quoteType": "EQUITY", "timeZoneFullName": "America/New_York"},
    "summaryDetail": {"marketCap": 12, "maxAge": 1},
    "calendarEvents": {"earnings": {"earningsDate": [1777593600, 1777680000]}, "dividendDate": 1767139200},
}
PERIODS = {
    name: {"timezone": "EDT", "start": 1777635000, "end": 1777658400, "gmtoffset": -14400}
    for name in ("pre", "regular", "post")
}
CHART = {
    "meta": {
        "currency": "USD", "symbol": "ACME", "instrumentType": "EQUITY", "gmtoffset": -14400, "priceHint": 2,
        "exchangeTimezoneName": "America/New_York", "dataGranularity": "1d", "range": "1mo", "validRanges": ["1mo"],
        "currentTradingPeriod": PERIODS, "regularMarketTime": 1777721400,
    },
    "timestamp": [1777635000, 1777721400],
    "indicators": {
        "quote": [{"open": [10.0, 11.0], "high": [12.0, 12.0], "low": [9.0, 10.0], "close": [10.0, 11.5],
                   "volume": [1000, 2000]}],
        "adjclose": [{"adjclose": [5.0, 11.5]}],
    },
}  # fmt: skip
ARTICLE = {
    "id": "1", "title": "Up", "pubDate": "2025-12-31T00:00:00Z", "provider": {"displayName": "Wire"},
    "canonicalUrl": {"url": "https://x.test/1"}, "thumbnail": {"a": 1},
}  # fmt: skip


@dataclass
class Yahoo:
    """The vendor's server; `status` refuses every request for facts."""

    url: str
    status: int = 200
    requests: list[str] = field(default_factory=list[str])
    crumbs: set[str] = field(default_factory=set[str])

    def answer(self, request: Request) -> Response:
        path = request.path
        if path == "/":
            return Response("", headers={"Set-Cookie": "A1=d=AQ; Path=/"})
        if path.endswith("/getcrumb"):
            return Response("cRuMb")
        self.requests.append(path)
        self.crumbs.add(request.args.get("crumb", ""))
        if self.status != 200:
            return _json({"finance": {"error": {"description": "no"}}}, self.status)
        if "/quoteSummary/" in path:
            modules = request.args.get("modules", "").split(",")
            return _json({"quoteSummary": {"result": [{m: FACTS[m] for m in modules if m in FACTS}], "error": None}})
        if "/chart/" in path:
            return _json({"chart": {"result": [CHART], "error": None}})
        if "/timeseries/" in path:
            return _json({"timeseries": {"result": list(_figures(request)), "error": None}})
        if path.endswith("/ncp"):
            return _json({"data": {"tickerStream": {"stream": [{"id": "1", "content": ARTICLE}]}}})
        return _json({"quoteResponse": {"result": [{"symbol": "ACME", "longName": "Acme Inc."}], "error": None}})


def _figures(request: Request) -> Iterator[dict[str, Any]]:
    for kind in request.args.get("type", "").split(","):
        if kind.endswith(("TotalRevenue", "TotalAssets")):
            value = {
                "asOfDate": "2025-12-31",
                "periodType": "12M",
                "currencyCode": "USD",
                "reportedValue": {"raw": 5.0},
            }
            yield {"meta": {"symbol": ["ACME"], "type": [kind]}, "timestamp": [1767139200], kind: [value]}


def _json(value: Any, status: int = 200) -> Response:
    return Response(json.dumps(value), status, content_type="application/json")


@pytest.fixture
def yahoo(httpserver: HTTPServer) -> Iterator[Yahoo]:
    vendor = Yahoo(httpserver.url_for("").rstrip("/"))
    httpserver.expect_request(re.compile(".*")).respond_with_handler(vendor.answer)
    yield vendor
    close_limited_processes()  # a child keeps cookie and crumb


def report(yahoo: Yahoo, **params: Any) -> str:
    services = Services(FakeHttp(no_network), base_urls={"YAHOOFINANCE": yahoo.url})
    ctx = FakeContext(services=services)
    chosen = YAHOO_FINANCE.params.model_validate({**NO_SECTIONS, "max_retries": 0, **params})

    async def run() -> str:
        result = await YAHOO_FINANCE.call(chosen, {"stock_code": "ACME"}, ctx)
        return str(result.outputs["report"])

    return asyncio.run(run())


def test_company_information_is_a_table_of_two_columns(yahoo: Yahoo):
    text = report(yahoo, info=True)

    assert text.startswith("# Information:\n|")
    assert re.search(r"^\| marketCap +\| 12 +\|$", text, re.MULTILINE)
    assert re.search(r"^\| longName +\| Acme Inc\. +\|$", text, re.MULTILINE)
    assert "cRuMb" in yahoo.crumbs


def test_a_month_of_prices_is_adjusted_and_dated_in_the_exchanges_time(yahoo: Yahoo):
    assert report(yahoo, history=True) == (
        "# History:\n"
        "| Date                      |   Open |   High |   Low |   Close |   Volume |\n"
        "|:--------------------------|-------:|-------:|------:|--------:|---------:|\n"
        "| 2026-05-01 00:00:00-04:00 |      5 |      6 |   4.5 |     5   |     1000 |\n"
        "| 2026-05-02 00:00:00-04:00 |     11 |     12 |  10   |    11.5 |     2000 |\n"
    )


def test_all_sections_come_in_order_with_a_blank_line_between(yahoo: Yahoo):
    flags = ("info", "history", "financials", "income_stmt", "balance_sheet", "cash_flow_statement", "news", "count")

    text = report(yahoo, **dict.fromkeys(flags, True))

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
    assert re.search(r"\| Total Assets +\| +5 \|", text)
    assert "2026-05-01" in text
    assert "| Up " in text
    assert "https://x.test/1" in text
    assert "thumbnail" not in text


@pytest.mark.parametrize(
    ("status", "error", "is_retryable"),
    [(404, "HTTP 404", False), (429, "Too Many Requests", True), (500, "HTTP 500", True)],
)
def test_refusal_is_an_error_that_says_whether_to_try_again(yahoo: Yahoo, status: int, error: str, is_retryable: bool):
    yahoo.status = status

    with pytest.raises(ToolError, match=error) as failed:
        report(yahoo, info=True)

    assert failed.value.retryable is is_retryable


def test_server_that_cannot_be_reached_is_an_error(yahoo: Yahoo):
    yahoo.url = "http://127.0.0.1:1"

    with pytest.raises(ToolError, match="could not be reached"):
        report(yahoo, history=True)
