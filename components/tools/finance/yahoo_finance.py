"""YahooFinance: a report about one stock from finance.yahoo.com, in sections with tables.

DSL: `stock_code` and one flag for each section: `info`, `history`, `financials` (the calendar), `income_stmt`,
`balance_sheet`, `cash_flow_statement`, `news`; `count` does nothing, as upstream. Unlike upstream, `income_stmt` adds
its sections. `components/tools/finance/yahoo_client.py` sends the requests; this module formats the answers.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from itertools import zip_longest
from typing import Annotated, Any

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.finance.yahoo_client import YahooClient
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import flag
from components.tools.framework.pipe_table import pipe_table

_SYMBOL = re.compile(r"[A-Za-z0-9.^=_-]{1,20}")
_MAX_TIMESTAMP = 253_402_300_800  # seconds; `datetime` has no later date
_MAX_NUMBER = 1e18
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

INFO = ("assetProfile", "quoteType", "price", "summaryDetail", "defaultKeyStatistics", "financialData")
CALENDAR = "calendarEvents"
_STATEMENTS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "income_stmt": (
        ("Income statement", "incomeStatementHistory", "incomeStatementHistory"),
        ("Quarterly income statement", "incomeStatementHistoryQuarterly", "incomeStatementHistory"),
    ),
    "balance_sheet": (
        ("Balance sheet", "balanceSheetHistory", "balanceSheetStatements"),
        ("Quarterly balance sheet", "balanceSheetHistoryQuarterly", "balanceSheetStatements"),
    ),
    "cash_flow_statement": (
        ("Cash flow statement", "cashflowStatementHistory", "cashflowStatements"),
        ("Quarterly cash flow statement", "cashflowStatementHistoryQuarterly", "cashflowStatements"),
    ),
}
"""By parameter: title, the vendor's module, and the list in it."""


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
    yahoo = YahooClient(ctx, symbol)
    statements = [section for name, parts in _STATEMENTS.items() if getattr(params, name) for section in parts]
    modules = [
        *(INFO if params.info else ()),
        *((CALENDAR,) if params.financials else ()),
        *(module for _, module, _ in statements),
    ]
    facts = await yahoo.fetch_facts(modules) if modules else {}
    sections: list[tuple[str, str]] = []
    if params.info:
        sections.append(("Information", _information(facts)))
    if params.history:
        sections.append(("History", _history(await yahoo.fetch_month())))
    if params.financials:
        sections.append(("Calendar", _calendar(_plain(facts.get(CALENDAR)))))
    for title, module, name in statements:
        sections.append((title, _statement(_plain(facts.get(module)), name)))
    if params.news:
        sections.append(("News", _news(await yahoo.fetch_news())))
    text = "\n\n".join(f"# {title}:\n{table}\n" for title, table in sections)
    return ToolResult({"report": text}, answer=text)


def _information(facts: Mapping[str, Any]) -> str:
    """Return a table of all facts with a single value; of a fact in several modules, the first one counts."""
    found: dict[str, Any] = {}
    for module in INFO:
        for name, value in _members(_plain(facts.get(module))):
            if not isinstance(value, dict | list) and value is not None:
                found.setdefault(name, value)
    return pipe_table(["", "0"], [[name, value] for name, value in found.items()]) if found else ""


def _history(chart: Mapping[str, Any]) -> str:
    """Return a table of the daily bars, with prices adjusted by the vendor's adjusted close."""
    moments = _list(chart.get("timestamp"))
    zone = _zone(chart)
    indicators = chart.get("indicators")
    indicators = indicators if isinstance(indicators, Mapping) else {}
    bars, closes = _first(indicators.get("quote")), _list(_first(indicators.get("adjclose")).get("adjclose"))
    names = ("open", "high", "low", "close", "volume")
    columns = [_list(bars.get(name)) for name in names]
    rows: list[list[Any]] = []
    for moment, adjusted, *bar in zip_longest(moments, closes, *columns):
        day, close = _moment(moment, zone), bar[3]
        if day is None or not _is_number(close):
            continue
        ratio = adjusted / close if _is_number(adjusted) and close else 1
        prices = [price * ratio if _is_number(price) else None for price in bar[:4]]
        rows.append([day, *prices, bar[4] if _is_number(bar[4]) else None])
    return pipe_table(["Date", "Open", "High", "Low", "Close", "Volume"], rows) if rows else ""


def _moment(seconds: Any, zone: timezone) -> str | None:
    """Return a timestamp of the vendor as text; None if it is not a valid time."""
    if not _is_number(seconds) or not 0 <= seconds < _MAX_TIMESTAMP - 86_400:
        return None
    return str(datetime.fromtimestamp(seconds, zone))


def _is_number(value: Any) -> bool:
    """Whether a value is a number in the range of prices, volumes and times."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER


def _zone(chart: Mapping[str, Any]) -> timezone:
    meta = chart.get("meta")
    offset = meta.get("gmtoffset") if isinstance(meta, Mapping) else None
    return timezone(timedelta(seconds=offset)) if isinstance(offset, int) and abs(offset) < 86_400 else UTC


def _calendar(events: Any) -> str:
    """Return a table of coming dates: one row for each earnings date, with all other dates in the same row."""
    if not isinstance(events, Mapping):
        return ""
    earnings = events.get("earnings")
    found = {_title(name): _format_date(name, value) for name, value in _members(earnings) if value not in (None, [])}
    found |= {
        _title(name): _format_date(name, value) for name, value in events.items() if not isinstance(value, dict | list)
    }
    known = {name: value for name, value in found.items() if value is not None}
    depth = max((len(value) for value in known.values() if isinstance(value, list)), default=1)
    rows = [[row, *(_item(value, row) for value in known.values())] for row in range(depth)]
    return pipe_table(["", *known], rows) if known else ""


def _statement(module: Any, name: str) -> str:
    """Return a table with one row for each figure and one column for each period."""
    listed = _list(module.get(name)) if isinstance(module, Mapping) else []
    periods = [period for period in listed if isinstance(period, Mapping)]
    figures = dict.fromkeys(
        figure for period in periods for figure, value in period.items() if isinstance(value, int | float)
    )
    figures.pop("endDate", None)
    figures.pop("maxAge", None)
    head = ["", *(value_text(_format_date("endDate", period.get("endDate"))) for period in periods)]
    rows = [[_title(figure), *(period.get(figure) for period in periods)] for figure in figures]
    return pipe_table(head, rows) if rows else ""


def _news(items: Sequence[Any]) -> str:
    rows = [item for item in items if isinstance(item, Mapping)]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, dict | list))
    table = [[number, *(_format_date(name, row.get(name)) for name in names)] for number, row in enumerate(rows)]
    return pipe_table(["", *names], table) if table else ""


def _plain(value: Any) -> Any:
    """Return a vendor's value without its display forms: {"raw": 12, "fmt": "12"} is 12, {} is None."""
    if isinstance(value, Mapping):
        if not value:
            return None
        return value["raw"] if "raw" in value else {name: _plain(member) for name, member in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _members(value: Any) -> list[tuple[str, Any]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: Any) -> Mapping[str, Any]:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], Mapping) else {}


def _item(value: Any, row: int) -> Any:
    if not isinstance(value, list):
        return value
    return value[row] if row < len(value) else None


def _title(name: str) -> str:
    """Return `totalAssets` as `Total Assets`."""
    words = _INNER_CAPITAL.sub(" ", name)
    return words[:1].upper() + words[1:]


def _format_date(name: str, value: Any) -> Any:
    """Return seconds since 1970 as a date if the name ends in Date or Time; any other value unchanged."""
    if isinstance(value, list):
        return [_format_date(name, item) for item in value]
    if not name.endswith(("Date", "Time")) or not isinstance(value, int) or not 0 < value < _MAX_TIMESTAMP:
        return value
    return str(datetime.fromtimestamp(value, UTC).replace(tzinfo=None))


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
