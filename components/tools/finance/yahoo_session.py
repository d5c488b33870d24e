"""Facts about one stock from finance.yahoo.com, over yfinance, as JSON.

The vendor refuses clients that are no browsers, and yfinance imitates one. It blocks and keeps a cookie and the token
that belongs to it, so it runs in a child process, which a cancel ends.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from components.text.extraction.file_kinds import library_missing

TIMEOUT = 30  # seconds of one request
MAX_NEWS = 10
NOWHERE = "/dev/null/yfinance"  # no folder can be made there, so the library keeps cookies and time zones in memory
STATEMENTS: Mapping[str, str] = {
    "Income statement": "income_stmt",
    "Quarterly income statement": "quarterly_income_stmt",
    "Balance sheet": "balance_sheet",
    "Quarterly balance sheet": "quarterly_balance_sheet",
    "Cash flow statement": "cash_flow",
    "Quarterly cash flow statement": "quarterly_cash_flow",
}
"""The statements by title, as attributes of yfinance's Ticker."""


def collect(symbol: str, sections: Sequence[str], mirror: str | None) -> dict[str, Any]:
    """Return the sections of a stock by title, each as JSON, or {"error", "is_retryable"}.

    A section is a list of columns and rows. `mirror`: the address that gets every request in place of the vendor's.
    """
    try:
        import yfinance
        from yfinance.exceptions import YFException, YFRateLimitError
    except ImportError as error:
        raise library_missing("finance", "Reports of YahooFinance") from error
    from curl_cffi.requests.exceptions import HTTPError, RequestException

    logging.getLogger("yfinance").setLevel(logging.CRITICAL)
    yfinance.config.debug.hide_exceptions = False
    yfinance.set_tz_cache_location(NOWHERE)
    ticker = yfinance.Ticker(symbol, session=_session(mirror))
    try:
        return {title: _section(ticker, title) for title in sections}
    except YFRateLimitError as error:
        return {"error": str(error), "is_retryable": True}
    except YFException as error:
        return {"error": str(error), "is_retryable": False}
    except HTTPError as error:
        status = getattr(error.response, "status_code", 0)
        return {"error": f"HTTP {status}", "is_retryable": status >= 500}
    except RequestException as error:
        return {"error": f"Yahoo Finance could not be reached: {error}"[:300], "is_retryable": True}


def _session(mirror: str | None) -> Any:
    from curl_cffi import requests

    class Session(requests.Session[Any]):
        """A session that sends every request to the mirror, if there is one."""

        def request(self, method: Any, url: str, *arguments: Any, **options: Any) -> Any:
            if mirror is not None:
                parts = urlsplit(url)
                url = f"{mirror.rstrip('/')}{parts.path}" + (f"?{parts.query}" if parts.query else "")
            return super().request(method, url, *arguments, **{"timeout": TIMEOUT, **options})

    return Session(impersonate="chrome")


def _section(ticker: Any, title: str) -> Any:
    match title:
        case "Information":
            return _scalars(ticker.info)
        case "History":
            return _frame(ticker.history(period="1mo"), ("Open", "High", "Low", "Close", "Volume"))
        case "Calendar":
            return {name: _plain(value) for name, value in (ticker.calendar or {}).items()}
        case "News":
            return [_article(item) for item in ticker.get_news(count=MAX_NEWS)]
        case _:
            return _statement(ticker, STATEMENTS[title])


def _statement(ticker: Any, name: str) -> dict[str, Any]:
    """Return a statement; one that the vendor does not have is empty, and a failure raises YFException."""
    from yfinance.exceptions import YFException

    try:
        return _frame(getattr(ticker, name))
    except YFException as error:
        if type(error) is not YFException:  # the failures are subclasses; a missing statement has the class itself
            raise
        return {"columns": [], "rows": []}


def _frame(frame: Any, only: Sequence[str] = ()) -> dict[str, Any]:
    """Return a pandas frame as {"columns", "rows"}; the first cell of a row is its index."""
    columns = [column for column in (only or frame.columns) if column in frame.columns]
    rows = [[_plain(index), *map(_plain, frame.loc[index, columns])] for index in frame.index]
    return {"columns": [_plain(column) for column in columns], "rows": rows}


def _article(item: Any) -> dict[str, Any]:
    """Return the scalar facts about an article, with the names of its publisher and its address."""
    content = item.get("content") if isinstance(item, dict) else None
    facts = content if isinstance(content, dict) else item if isinstance(item, dict) else {}
    publisher, address = facts.get("provider"), facts.get("canonicalUrl")
    more = {
        "publisher": publisher.get("displayName") if isinstance(publisher, dict) else None,
        "link": address.get("url") if isinstance(address, dict) else None,
    }
    return _scalars(facts | {name: value for name, value in more.items() if value})


def _scalars(facts: Any) -> dict[str, Any]:
    members = facts.items() if isinstance(facts, dict) else ()
    return {
        str(name): _plain(value) for name, value in members if value is not None and not isinstance(value, dict | list)
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON; a moment as text, a number that is not finite as None."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        is_day = value.tzinfo is None and (value.hour, value.minute, value.second) == (0, 0, 0)
        return value.date().isoformat() if is_day else str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str | bool | int) or value is None:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    return (int(number) if number.is_integer() else number) if math.isfinite(number) else None
