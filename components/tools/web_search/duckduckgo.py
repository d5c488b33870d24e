"""DuckDuckGo: web and news search without a key, read from the pages for browsers without scripts.

DSL: `query`, `channel` (`text` for the web, `news`), `top_n`. Unlike upstream, the channel is used (docs/tools.md, row
T7). Only the first page of results is read. If the vendor limits the rate, it answers with status 202 or a CAPTCHA:
that is a retryable error.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qs, urlsplit

from canvas.errors import HttpFailed, NodeFailure, ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import one_of, positive
from providers.interfaces import HttpCall, HttpResponse
from providers.isolation.untrusted_threads import in_untrusted_thread

WEB, START, NEWS = "https://html.duckduckgo.com/html/", "https://duckduckgo.com/", "https://duckduckgo.com/news.js"
NO_REGION = "wt-wt"  # no region

_CAPTCHA_MARKS = ("anomaly-modal", "anomaly.js", "challenge-form")
_TOKEN = re.compile(r"vqd=[\"']?([0-9][0-9-]*)")
_TAG = re.compile(r"<[^<>]*>")


class DuckDuckGoParams(ToolParams):
    channel: Annotated[Any, one_of("Web search channel", ("text", "news"), by_reference=True)] = "text"
    top_n: Annotated[int, positive("Top N")] = 10


async def search(params: DuckDuckGoParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    query = value_text(arguments["query"])
    match arguments["channel"]:
        case "news":
            rows = (await _search_news(query, ctx))[: params.top_n]
            hits = [Hit(row["title"], row["url"], row["body"]) for row in rows]
        case "general" | "text":
            rows = (await _search_web(query, ctx))[: params.top_n]
            hits = [Hit(row["title"], row["href"], row["body"]) for row in rows]
        case other:
            raise ToolError(f"Web search channel {other} is not supported, it should be in [general, news]")
    formalized = await citations.cite_hits(hits, ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


async def _search_web(query: str, ctx: NodeContext) -> list[dict[str, Any]]:
    page = http.decode_text(await _fetch(HttpCall("GET", WEB, params={"q": query, "kl": NO_REGION}), ctx))
    rows = await in_untrusted_thread(_parse_results, page)
    if not rows and any(riddle in page for riddle in _CAPTCHA_MARKS):
        raise _rate_limit_error()
    return rows


def _parse_results(page: str) -> list[dict[str, Any]]:
    """Return the results of a page without advertisements: {title, href, body}."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as missing:
        raise NodeFailure("DuckDuckGo reads pages with the extra `html`: pip install easel[html].") from missing
    rows: list[dict[str, Any]] = []
    for result in LexborHTMLParser(page).css(".result"):
        link, snippet = result.css_first("a.result__a"), result.css_first(".result__snippet")
        if link is None or "result--ad" in (result.attributes.get("class") or ""):
            continue
        href = _target(link.attributes.get("href") or "")
        if href:
            body = _one_line(snippet.text()) if snippet is not None else ""
            rows.append({"title": _one_line(link.text()), "href": href, "body": body})
    return rows


def _target(href: str) -> str:
    """Return the address of a result from the vendor's redirect link; "" for an advertisement."""
    split = urlsplit(f"https:{href}" if href.startswith("//") else href)
    if split.path.startswith("/l/"):
        return next(iter(parse_qs(split.query).get("uddg", ())), "")
    return "" if split.path == "/y.js" else href


async def _search_news(query: str, ctx: NodeContext) -> list[dict[str, Any]]:
    """Return news as {date, title, body, url, image, source}. The first request gets a token for the second one."""
    about = {"q": query, "iar": "news", "ia": "news", "kl": NO_REGION}
    page = http.decode_text(await _fetch(HttpCall("GET", START, params=about), ctx))
    token = _TOKEN.search(page)
    if token is None:
        raise _rate_limit_error()
    query_params = {
        "l": NO_REGION,
        "o": "json",
        "noamp": "1",
        "q": query,
        "vqd": token.group(1),
        "p": "1",
        "s": "0",
        "dc": "0",
    }
    reply = await _fetch(HttpCall("GET", NEWS, params=query_params), ctx)
    rows = http.require_list(http.parse_object(reply).get("results"), "results")
    return [_news_item(row) for row in rows if isinstance(row, Mapping)]


def _news_item(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "date": _date(row.get("date")),
        "title": _plain(row.get("title")),
        "body": _plain(row.get("excerpt")),
        "url": row.get("url"),
        "image": row.get("image"),
        "source": row.get("source"),
    }


async def _fetch(call: HttpCall, ctx: NodeContext) -> HttpResponse:
    reply = await http.fetch(ctx, "DuckDuckGo", replace(call, as_browser=True), http.BLOCKED_ADVICE)
    if reply.status == HTTPStatus.ACCEPTED:
        raise _rate_limit_error()
    return reply


def _rate_limit_error() -> HttpFailed:
    return HttpFailed(f"rate limited {http.BLOCKED_ADVICE}", retryable=True)


def _date(seconds: Any) -> Any:
    try:
        return datetime.fromtimestamp(float(seconds), UTC).isoformat()
    except (TypeError, ValueError, OverflowError, OSError):
        return seconds


def _plain(text: Any) -> str:
    return _one_line(unescape(_TAG.sub("", value_text(text))))


def _one_line(text: str) -> str:
    return " ".join(text.split())


DUCKDUCKGO = Tool(
    "DuckDuckGo",
    "duckduckgo_search",
    DuckDuckGoParams,
    description="Searches the web with DuckDuckGo. Use it for facts, current events and pages on a subject.",
    arguments={
        "query": Argument("string", "Key words, as few as will do.", required=True, default="{sys.query}"),
        "channel": Argument(
            "string", "`news` for recent events, else `general`.", default="general", enum=("general", "news")
        ),
    },
    call=search,
    effect="idempotent",
    brings_sources=True,
)
