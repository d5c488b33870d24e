"""YahooFinance: what it refuses and formats without a vendor. tests/integration/test_yahoo_finance.py asks a server."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from canvas.errors import NodeFailure
from components.tools.finance import yahoo_finance
from components.tools.finance.yahoo_finance import YAHOO_FINANCE
from components.tools.finance.yahoo_session import _plain, _scalars  # pyright: ignore[reportPrivateUsage]
from providers.isolation.limited_process import ResourceLimitExceeded
from tests.fakes import FakeHttp, no_network
from tests.unit.components.tools.vendors import by_model, error_of, outputs_of

NO_SECTIONS = {"info": False, "news": False}


def answer(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    """Have the child process answer with `found`, or raise it."""

    async def in_child(*_: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(yahoo_finance, "in_limited_process", in_child)


def test_report_without_sections_is_empty_and_asks_nobody(monkeypatch: pytest.MonkeyPatch):
    answer(monkeypatch, AssertionError("asked"))

    assert outputs_of(YAHOO_FINANCE, {"stock_code": "ACME", **NO_SECTIONS}, FakeHttp(no_network)) == {"report": ""}


@pytest.mark.parametrize("code", ["", None, "  "])
def test_report_without_a_stock_code_is_empty(code: Any):
    assert outputs_of(YAHOO_FINANCE, {"stock_code": code}, FakeHttp(no_network)) == {"report": ""}


@pytest.mark.parametrize("code", ["Not Found", "../v1/test", "a" * 21, "AC?ME", ["A", "B"]])
def test_invalid_stock_code_is_refused_before_the_request(code: Any):
    assert "is not a valid stock code" in error_of(YAHOO_FINANCE, {"stock_code": code}, FakeHttp(no_network))


def test_information_of_two_facts_is_a_table_of_two_columns(monkeypatch: pytest.MonkeyPatch):
    answer(monkeypatch, {"Information": {"symbol": "ACME", "marketCap": 12}})

    report = outputs_of(YAHOO_FINANCE, {"stock_code": "ACME", "news": False}, FakeHttp(no_network))["report"]

    assert report == (
        "# Information:\n|           | 0    |\n|:----------|:-----|\n| symbol    | ACME |\n| marketCap | 12   |\n"
    )


@pytest.mark.parametrize("odd", [None, [], {}, [None], ["text"], {"columns": None, "rows": []}])
def test_sections_that_are_empty_or_odd_have_no_table(odd: Any, monkeypatch: pytest.MonkeyPatch):
    answer(monkeypatch, dict.fromkeys(["Calendar", "Balance sheet", "Quarterly balance sheet", "News"], odd))
    params = {**NO_SECTIONS, "balance_sheet": True, "financials": True, "news": True}

    report = outputs_of(YAHOO_FINANCE, {"stock_code": "ACME", **params}, FakeHttp(no_network))["report"]

    assert "# Balance sheet:\n\n" in report


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ({"error": "HTTP 404", "is_retryable": False}, "HTTP 404"),
        (NodeFailure("needs the extra"), "needs the extra"),
        (ResourceLimitExceeded("It needs more than 2 GiB."), "It needs more than 2 GiB."),
    ],
)
def test_failure_of_the_child_process_is_an_error(failure: Any, error: str, monkeypatch: pytest.MonkeyPatch):
    answer(monkeypatch, failure)

    assert error in error_of(YAHOO_FINANCE, {"stock_code": "ACME"}, FakeHttp(no_network))


def test_a_model_reads_the_report(monkeypatch: pytest.MonkeyPatch):
    answer(monkeypatch, {"Information": {"a": 1}})

    done = by_model(YAHOO_FINANCE, NO_SECTIONS | {"info": True}, {"stock_code": "acme"}, FakeHttp(no_network))

    assert done.answer.startswith("# Information:\n")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (5.0, 5), (2.5, 2.5), (float("nan"), None), (float("inf"), None), (True, True), (None, None), ("a", "a"),
        (date(2026, 1, 2), "2026-01-02"), (datetime(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02 03:00:00+00:00"),
        ([1.0, date(2026, 1, 2)], [1, "2026-01-02"]),
        (object, "<class 'object'>"),
    ],
)  # fmt: skip
def test_value_of_the_vendor_becomes_json(value: Any, plain: Any):
    assert _plain(value) == plain


def test_facts_with_several_values_are_left_out():
    assert _scalars({"a": 1, "officers": [{"name": "x"}], "more": {}, "none": None}) == {"a": 1}
    assert _scalars(None) == {}
