"""TuShare: financial news by source and time, filtered by a keyword.

DSL: `token`, `src`, `start_date`, `end_date` (empty: the time of the turn, so that another attempt asks for the same),
`keyword`, and `query`, which is used without a keyword. Upstream the node does nothing (docs/tools.md, row T11).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, ClassVar

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import json_text, value_text
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import one_of
from components.tools.framework.pipe_table import pipe_table
from providers.interfaces import HttpCall
from providers.models.text.sanitizer import clean

VENDOR = "https://api.tushare.pro/"
SOURCES = ("sina", "wallstreetcn", "10jqka", "eastmoney", "yuncaijing", "fenghuang", "jinrongjie")
CONTENT = "content"  # the column that is searched


class TuShareParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("token",)

    token: Any = "xxx"  # noqa: S105 (a new node's placeholder)
    src: Annotated[str, one_of("Quick News Source", SOURCES)] = "eastmoney"
    start_date: Any = "2024-01-01 09:00:00"
    end_date: Any = ""
    keyword: Any = ""


async def news(params: TuShareParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    keyword = value_text(params.keyword).strip() or value_text(arguments.get("query")).strip()
    if not keyword:
        return ToolResult({"formalized_content": ""}, answer="")
    query = {"src": params.src, "start_date": value_text(params.start_date), "end_date": _end_date(params, ctx)}
    body = {"api_name": "news", "token": value_text(params.token), "params": query}
    answer = http.parse_object(await http.fetch(ctx, "TuShare", HttpCall("POST", VENDOR, json=body)))
    if answer.get("code") not in (0, "0"):
        raise ToolError(value_text(answer.get("msg")) or f"The vendor returned code {value_text(answer.get('code'))}.")
    text = _table(*_parse_table(answer), keyword)
    return ToolResult({"formalized_content": text}, answer=text)


def _end_date(params: TuShareParams, ctx: NodeContext) -> str:
    """Return the end of the period, and record it as an input of the node."""
    stored = value_text(params.end_date)
    if not stored and ctx.exists("sys.date"):
        stored = value_text(ctx.lookup("sys.date"))
    end = stored or f"{datetime.now():%Y-%m-%d %H:%M:%S}"
    ctx.note_input("end_date", end)
    return end


def _parse_table(answer: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and rows of an answer. Raises ToolError."""
    data = answer.get("data")
    if data is None:
        return [], []
    if not isinstance(data, Mapping):
        raise ToolError(f'The answer\'s "data" is not an object: it is of type {type(data).__name__}.')
    fields = [value_text(name) for name in http.require_list(data.get("fields"), "fields")]
    return fields, [row for row in http.require_list(data.get("items"), "items") if isinstance(row, list)]


def _table(fields: Sequence[str], rows: Sequence[Sequence[Any]], keyword: str) -> str:
    """Return a table of the rows whose content has the keyword, with their numbers among all rows; "" for none."""
    if CONTENT not in fields:
        return ""
    at, searched = fields.index(CONTENT), keyword.casefold()
    matching = [
        [number, *map(_cell, row)]
        for number, row in enumerate(rows)
        if at < len(row) and searched in value_text(row[at]).casefold()
    ]
    return clean(pipe_table(["", *fields], matching)) if matching else ""


def _cell(value: Any) -> Any:
    return json_text(value) if isinstance(value, Mapping | list) else value


TUSHARE = Tool(
    "TuShare",
    "tushare",
    TuShareParams,
    description="Finds Chinese financial news that mention a word.",
    arguments={
        "query": Argument("string", "The word, as it stands in the news.", required=True, default="{sys.query}")
    },
    call=news,
    effect="idempotent",
    empty_outputs=None,
    outputs=("formalized_content",),
)
