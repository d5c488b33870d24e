"""A client of finance.yahoo.com. Requests for facts need a cookie and the token (crumb) that belongs to it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import http
from providers.interfaces import HttpCall, HttpResponse

TOOL = "YahooFinance"
COOKIE = "https://fc.yahoo.com/"
CRUMB = "https://query1.finance.yahoo.com/v1/test/getcrumb"
FACTS = "https://query2.finance.yahoo.com/v10/finance/quoteSummary/"
CHART = "https://query1.finance.yahoo.com/v8/finance/chart/"
SEARCH = "https://query2.finance.yahoo.com/v1/finance/search"
MAX_NEWS = 10

_COOKIE = re.compile(r"(?:^|,)\s*([\w-]+=[^;,\s]*)")
_MAX_CRUMB_LENGTH = 64


@dataclass(frozen=True, slots=True)
class YahooClient:
    """Requests about one stock."""

    ctx: NodeContext
    symbol: str

    async def fetch_facts(self, modules: Sequence[str]) -> Mapping[str, Any]:
        """Return the vendor's facts by module; modules that it does not have are missing."""
        params, headers = await self._fetch_crumb()
        params["modules"] = ",".join(modules)
        reply = await http.send(self.ctx, TOOL, self._call(self._address(FACTS), params, headers))
        return _only_result(reply, "quoteSummary")

    async def fetch_month(self) -> Mapping[str, Any]:
        """Return the daily bars of the last month: `timestamp`, `meta`, `indicators`."""
        query_params = {"range": "1mo", "interval": "1d"}
        reply = await http.send(self.ctx, TOOL, self._call(self._address(CHART), query_params))
        return _only_result(reply, "chart")

    async def fetch_news(self) -> list[Any]:
        """Return recent articles that mention the stock."""
        query_params = {"q": self.symbol, "newsCount": MAX_NEWS, "quotesCount": 0}
        reply = await http.fetch(self.ctx, TOOL, self._call(SEARCH, query_params), http.BLOCKED_ADVICE)
        return http.require_list(http.parse_object(reply).get("news"), "news")

    async def _fetch_crumb(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the crumb as a query parameter and the cookie as a header, each empty if the vendor sends none.

        A request without them gets the vendor's reason for the refusal.
        """
        greeting = await http.send(self.ctx, TOOL, self._call(COOKIE))
        cookies = "; ".join(_COOKIE.findall(greeting.headers.get("set-cookie", "")))
        headers = {"Cookie": cookies} if cookies else {}
        reply = await http.send(self.ctx, TOOL, self._call(CRUMB, None, headers))
        crumb = http.decode_text(reply).strip() if reply.is_success else ""
        return {"crumb": crumb} if 0 < len(crumb) <= _MAX_CRUMB_LENGTH and "<" not in crumb else {}, headers

    def _call(
        self, url: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> HttpCall:
        """Return a request with the headers of a browser: the vendor refuses all others."""
        return HttpCall("GET", url, params=params, headers=headers or {}, as_browser=True)

    def _address(self, base: str) -> str:
        return base + quote(self.symbol, safe="")


def _only_result(reply: HttpResponse, name: str) -> Mapping[str, Any]:
    """Return the one result in the vendor's envelope. Raises ToolError for an error in it, or an empty one."""
    if not reply.is_success:
        raise http.error_from_reply(reply, _error_text(reply, name), advice=http.BLOCKED_ADVICE)
    envelope = http.parse_object(reply).get(name)
    envelope = envelope if isinstance(envelope, Mapping) else {}
    error, results = envelope.get("error"), envelope.get("result")
    if error:
        raise ToolError(value_text(error.get("description") if isinstance(error, Mapping) else error))
    if not isinstance(results, list) or not results or not isinstance(results[0], Mapping):
        raise ToolError("Yahoo Finance has no data for this stock code.")
    return results[0]


def _error_text(reply: HttpResponse, name: str) -> str:
    """Return the vendor's error text, from the envelope `name` or from `finance`; "" if there is none."""
    try:
        body = http.parse_object(reply)
    except ToolError:
        return ""
    for envelope in (body.get(name), body.get("finance")):
        error = envelope.get("error") if isinstance(envelope, Mapping) else None
        text = error.get("description") if isinstance(error, Mapping) else error
        if isinstance(text, str) and text:
            return text[: http.MAX_ERROR_BODY]
    return ""
