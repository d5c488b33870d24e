"""Jin10: flash news, calendars, symbols and quotes from the open data of jin10.com.

DSL: `type`, `secret_key`, `flash_type`, `calendar_type`, `calendar_datatype`, `symbols_type`, `symbols_datatype`,
`contain`, `filter`, and `query` (an addition of Easel): if it is empty, the vendor is not called. Upstream the node
does nothing (docs/tools.md, row T11).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import json_text, value_text
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import one_of, whole_number
from components.tools.framework.pipe_table import pipe_table
from providers.interfaces import HttpCall
from providers.models.text.sanitizer import clean

BASE = "https://open-data-api.jin10.com/data-api"
QUOTE_SYMBOL = "BTCUSD"  # the symbol of quotes, as upstream
STATUS_OK = 200

FLASH_TYPES = ("1", "2", "3", "4", "5")
SYMBOLS: Mapping[str, str] = {
    "c": "Commodity Code",
    "e": "Stock Exchange",
    "n": "Commodity Name",
    "t": "Commodity Type",
}
QUOTES: Mapping[str, str] = {
    "a": "Selling Price",
    "b": "Buying Price",
    "c": "Commodity Code",
    "e": "Stock Exchange",
    "h": "Highest Price",
    "hc": "Yesterday’s Closing Price",
    "l": "Lowest Price",
    "o": "Opening Price",
    "p": "Latest Price",
    "t": "Market Quote Time",
}


def _number_as_text(value: Any) -> Any:
    """Return a number as text, as the web UI stores it."""
    number = whole_number(value)
    return value if number is None else str(number)


class Jin10Params(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("secret_key",)

    type: Annotated[str, one_of("Type", ("flash", "calendar", "symbols", "news"))] = "flash"
    secret_key: Any = "xxx"  # noqa: S105 (a new node's placeholder)
    flash_type: Annotated[str, one_of("Flash Type", FLASH_TYPES), BeforeValidator(_number_as_text)] = "1"
    calendar_type: Annotated[str, one_of("Calendar Type", ("cj", "qh", "hk", "us"))] = "cj"
    calendar_datatype: Annotated[str, one_of("Calendar DataType", ("data", "event", "holiday"))] = "data"
    symbols_type: Annotated[str, one_of("Symbols Type", ("GOODS", "FOREX", "FUTURE", "CRYPTO"))] = "GOODS"
    symbols_datatype: Annotated[str, one_of("Symbols DataType", ("symbols", "quotes"))] = "symbols"
    contain: Any = ""
    filter: Any = ""


async def report(params: Jin10Params, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    path, query_params = _request(params)
    headers = {"secret-key": value_text(params.secret_key)}
    body = http.parse_object(
        await http.fetch(ctx, "Jin10", HttpCall("GET", f"{BASE}/{path}", params=query_params, headers=headers))
    )
    if body.get("status") not in (STATUS_OK, str(STATUS_OK)):
        raise ToolError(
            value_text(body.get("message")) or f"The vendor returned status {value_text(body.get('status'))}."
        )
    rows = [row for row in http.require_list(body.get("data"), "data") if isinstance(row, Mapping)]
    text = _flash_texts(rows) if params.type == "flash" else _table(rows, _column_names(params))
    return ToolResult({"formalized_content": text}, answer=text)


def _request(params: Jin10Params) -> tuple[str, dict[str, Any]]:
    """Return the path and the query parameters of the request."""
    words = {"contain": value_text(params.contain) or None, "filter": value_text(params.filter) or None}
    match params.type:
        case "flash":
            return "flash", {"category": params.flash_type, **words}
        case "calendar":
            return f"calendar/{params.calendar_datatype}", {"category": params.calendar_type}
        case "symbols":
            codes = QUOTE_SYMBOL if params.symbols_datatype == "quotes" else None
            return params.symbols_datatype, {"type": params.symbols_type, "codes": codes}
        case _:
            return "news", words


def _column_names(params: Jin10Params) -> Mapping[str, str]:
    """Return the names of the columns that the vendor calls by a letter."""
    if params.type != "symbols":
        return {}
    return QUOTES if params.symbols_datatype == "quotes" else SYMBOLS


def _flash_texts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of each flash, one a line."""
    contents = (row.get("data") for row in rows)
    texts = (clean(value_text(data.get("content"))) for data in contents if isinstance(data, Mapping))
    return "\n".join(text for text in texts if text)


def _table(rows: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    """Return the rows as a table: the columns in `names` first, the others in the order of the answer."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    ordered = [*(column for column in names if column in columns), *(each for each in columns if each not in names)]
    if not ordered:
        return ""
    cells = [[_cell(row.get(column)) for column in ordered] for row in rows]
    return clean(pipe_table([names.get(column, column) for column in ordered], cells))


def _cell(value: Any) -> Any:
    return json_text(value) if isinstance(value, Mapping | list) else value


JIN10 = Tool(
    "Jin10",
    "jin10",
    Jin10Params,
    description="Reads financial flash news, calendars of economic data, or symbols and quotes, as it was set up.",
    arguments={"query": Argument("string", "What it is wanted for, in words.", required=True, default="{sys.query}")},
    call=report,
    effect="idempotent",
    outputs=("formalized_content",),
)
