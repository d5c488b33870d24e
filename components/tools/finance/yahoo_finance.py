"""YahooFinance: a report about one stock from finance.yahoo.com, in sections with tables.

DSL: `stock_code` and one flag for each section: `info`, `history`, `financials` (the calendar), `income_stmt`,
`balance_sheet`, `cash_flow_statement`, `news`; `count` does nothing, as upstream. Unlike upstream, `income_stmt` adds
its sections. `components/tools/finance/yahoo_session.py` asks the vendor; this module formats the answers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from canvas.errors import NodeFailure, ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.finance.yahoo_session import collect
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import flag
from components.tools.framework.pipe_table import pipe_table
from providers.isolation.limited_process import ResourceLimitExceeded, in_limited_process

HOST = "query2.finance.yahoo.com"

_SYMBOL = re.compile(r"[A-Za-z0-9.^=_-]{1,20}")
_SECTIONS: Mapping[str, Sequence[str]] = {
    "info": ("Information",),
    "history": ("History",),
    "financials": ("Calendar",),
    "income_stmt": ("Income statement", "Quarterly income statement"),
    "balance_sheet": ("Balance sheet", "Quarterly balance sheet"),
    "cash_flow_statement": ("Cash flow statement", "Quarterly cash flow statement"),
    "news": ("News",),
}
"""The sections of the report by parameter, in their order."""


class YahooFinanceParams(ToolParams):
    info: Annotated[bool, flag("info")] = True
    history: Annotated[bool, flag("history")] = False
    count: Annotated[bool, flag("count")] = False
    financials: Annotated[bool, flag("financials")] = False
    income_stmt: Annotated[bool, flag("income_stmt")] = False
    balance_sheet: Annotated[bool, flag("balance_sheet")] = False
    cash_flow_statement: Annotated[bool, flag("cash_flow_statement")] = False
    news: Annotated[bool, flag("news")] = True


async def report(params: YahooFinanceParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    symbol = value_text(arguments["stock_code"]).strip()
    if not _SYMBOL.fullmatch(symbol):
        raise ToolError(f"{symbol[:40]!r} is not a valid stock code. Use one such as AAPL, 0700.HK or ^GSPC.")
    titles = [title for name, sections in _SECTIONS.items() if getattr(params, name) for title in sections]
    found = await _ask(symbol, titles, ctx) if titles else {}
    text = "\n\n".join(f"# {title}:\n{_table(title, found.get(title))}\n" for title in titles)
    return ToolResult({"report": text}, answer=text)


async def _ask(symbol: str, titles: Sequence[str], ctx: NodeContext) -> Mapping[str, Any]:
    """Return the sections as JSON. Raises ToolError."""
    mirror = http.configured_address(ctx.services.base_urls, YAHOO_FINANCE.name, HOST)
    try:
        found = await in_limited_process(collect, symbol, titles, mirror)
    except ResourceLimitExceeded as limit:
        raise ToolError(limit.message, retryable=limit.retryable) from limit
    except NodeFailure as failure:
        raise ToolError(failure.message, retryable=failure.retryable) from failure
    if "error" in found:
        raise ToolError(str(found["error"]), retryable=bool(found["is_retryable"]))
    return found


def _table(title: str, found: Any) -> str:
    match title:
        case "Information":
            return _rows(["", "0"], [[name, value] for name, value in _members(found)])
        case "Calendar":
            return _calendar(found)
        case "News":
            return _news(found if isinstance(found, list) else ())
        case "History":
            return _frame(found, "Date")
        case _:
            return _frame(found, "")


def _frame(found: Any, corner: str) -> str:
    columns, rows = (found.get("columns"), found.get("rows")) if isinstance(found, Mapping) else ([], [])
    return _rows([corner, *map(value_text, columns or [])], rows or [])


def _calendar(found: Any) -> str:
    """Return a table of coming dates: one row for each earnings date, with all other dates in the same row."""
    known = {name: value for name, value in _members(found) if value not in (None, [])}
    depth = max((len(value) for value in known.values() if isinstance(value, list)), default=1)
    return (
        _rows(["", *known], [[row, *(_item(value, row) for value in known.values())] for row in range(depth)])
        if known
        else ""
    )


def _news(items: Sequence[Any]) -> str:
    rows = [item for item in items if isinstance(item, Mapping)]
    names = dict.fromkeys(name for row in rows for name in row)
    return _rows(["", *names], [[number, *map(row.get, names)] for number, row in enumerate(rows)])


def _rows(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return pipe_table(list(head), [list(row) for row in rows]) if rows else ""


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    yield from value.items() if isinstance(value, Mapping) else ()


def _item(value: Any, row: int) -> Any:
    if not isinstance(value, list):
        return value
    return value[row] if row < len(value) else None


YAHOO_FINANCE = Tool(
    "YahooFinance",
    "yahoo_finance",
    YahooFinanceParams,
    description="Reports on a listed company: key figures, and as set up prices, statements and news.",
    arguments={
        "stock_code": Argument(
            "string", "The symbol at Yahoo Finance, such as AAPL or 0700.HK.", required=True, default="{sys.query}"
        ),
    },
    call=report,
    effect="idempotent",
    empty_outputs={"report": ""},
    main_output="report",
    outputs=("report",),
)
