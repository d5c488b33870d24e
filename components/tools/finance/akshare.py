"""AkShare: news about a stock of the Chinese exchanges, from the search of eastmoney.com.

DSL: `query` (a stock code), `top_n`. Upstream uses a large library; Easel sends the one request behind it.
"""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import quote

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import positive
from providers.interfaces import HttpCall, HttpResponse
from providers.models.text.sanitizer import clean

SEARCH = "https://search-api-web.eastmoney.com/search/jsonp"
KIND = "cmsArticleWebOld"  # the vendor's name for its articles
CALLBACK = "easel"
MAX_ROWS = 100  # of one request

_CALLBACK = re.compile(r"[\w$.]{1,100}")
_MARKS = re.compile(r"\(<em>|</em>\)|</?em>|\u3000")
_FIELDS = ("title", "content", "date", "mediaName", "code")


class AkShareParams(ToolParams):
    top_n: Annotated[int, positive("Top N")] = 10


async def news(params: AkShareParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    code = value_text(arguments["query"]).strip()
    call = HttpCall(
        "GET",
        SEARCH,
        params={"cb": CALLBACK, "param": _search_parameter(code, params.top_n), "_": int(time.time() * 1000)},
        headers={"Referer": f"https://so.eastmoney.com/news/s?keyword={quote(code, safe='', errors='replace')}"},
    )
    found = _parse_rows(await http.fetch(ctx, "AkShare", call))[: params.top_n]
    rows = [_row(row) for row in found if isinstance(row, Mapping)]
    formalized = "\n\n".join(map(_article_text, rows))
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


def _search_parameter(code: str, top_n: int) -> str:
    how = {
        "searchScope": "default",
        "sort": "default",
        "pageIndex": 1,
        "pageSize": min(top_n, MAX_ROWS),
        "preTag": "<em>",
        "postTag": "</em>",
    }
    parameter = {
        "uid": "",
        "keyword": code,
        "type": [KIND],
        "client": "web",
        "clientType": "web",
        "clientVersion": "curr",
        "param": {KIND: how},
    }
    return json.dumps(parameter, ensure_ascii=False, separators=(",", ":"))


def _parse_rows(reply: HttpResponse) -> list[Any]:
    """Return the articles of an answer in JSONP. Raises ToolError."""
    text = http.decode_text(reply)
    name, bracket, rest = text.strip().removesuffix(";").rstrip().partition("(")
    if not bracket or not rest.endswith(")") or not _CALLBACK.fullmatch(name.strip()):
        raise ToolError(f"The answer is not valid JSONP: {text[: http.MAX_ERROR_BODY]}")
    body = http.parse_object(replace(reply, headers={}, content=rest[:-1].encode()))
    if body.get("code") not in (None, 0, "0"):
        raise ToolError(
            value_text(body.get("msg") or body.get("message")) or f"The vendor returned code {body['code']}."
        )
    result = body.get("result")
    if result is not None and not isinstance(result, Mapping):
        raise ToolError(f'The answer\'s "result" is not an object: it is of type {type(result).__name__}.')
    return http.require_list((result or {}).get(KIND), KIND)


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    return {name: _plain(row.get(name)) for name in _FIELDS}


def _plain(value: Any) -> str:
    return _MARKS.sub("", clean(value_text(value))).replace("\r\n", " ")


def _article_text(row: Mapping[str, str]) -> str:
    link = f"http://finance.eastmoney.com/a/{quote(row['code'], safe='')}.html"
    article = f'<a href="{link}">{row["title"]}</a>\n 新闻内容: {row["content"]}'
    return f"{article} \n发布时间:{row['date']} \n文章来源: {row['mediaName']}"


AKSHARE = Tool(
    "AkShare",
    "akshare_stock_news",
    AkShareParams,
    description="Finds recent news on a stock of the Shanghai, Shenzhen or Beijing exchange.",
    arguments={
        "query": Argument(
            "string", "The stock's code, six digits such as 600519.", required=True, default="{sys.query}"
        )
    },
    call=news,
    effect="idempotent",
)
