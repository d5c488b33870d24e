"""Google: web search through serpapi.com.

DSL: `q`, `start`, `num`, `api_key`, `country` (Google's `gl`), `language` (its `hl`). Unlike upstream, `start` and
`num` are sent, and the snippet of a page goes before the description of its site (docs/tools.md, row T8). Country and
language codes are checked by Google only.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import not_empty, whole_number
from providers.interfaces import HttpCall

SEARCH = "https://serpapi.com/search.json"
NOTHING_FOUND = "SerpApi returned no organic_results."


class GoogleParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    start: Any = 0
    num: Any = 6
    api_key: Annotated[Any, not_empty("SerpApi API key")] = Field("", validate_default=True)
    country: Any = "cn"
    language: Any = "en"


async def search(params: GoogleParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    options = {
        "engine": "google",
        "q": value_text(arguments["q"]),
        "google_domain": "google.com",
        "gl": params.country,
        "hl": params.language,
        "start": _non_negative_int(arguments["start"], "start"),
        "num": _non_negative_int(arguments["num"], "num"),
        "api_key": params.api_key,
    }
    query_params = {name: value for name, value in options.items() if value not in (None, "")}
    reply = await http.send(ctx, "Google", HttpCall("GET", SEARCH, params=query_params))
    rows = http.list_in_reply(reply, "organic_results", error_key="error", default_error=NOTHING_FOUND)
    formalized = await citations.cite_hits((_hit(row) for row in rows if isinstance(row, Mapping)), ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


def _hit(row: Mapping[str, Any]) -> Hit:
    return Hit(row.get("title"), row.get("link"), row.get("snippet") or _about(row))


def _about(row: Mapping[str, Any]) -> Any:
    """Return Google's description of the site, `about_this_result.source.description`; None if there is none."""
    value: Any = row
    for name in ("about_this_result", "source", "description"):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _non_negative_int(value: Any, name: str) -> int:
    number = whole_number(value)
    if number is None or number < 0:
        raise ToolError(f"{name} {value} not supported, should be an integer that is not negative")
    return number


GOOGLE = Tool(
    "Google",
    "google_search",
    GoogleParams,
    description="Searches the web with Google. Use it for facts, current events and pages on a subject.",
    arguments={
        "q": Argument("string", "Key words, with Google's operators if needed.", required=True, default="{sys.query}"),
        "start": Argument("integer", "How many results to skip: 0, 10, 20, ...", default=0),
        "num": Argument("integer", "How many results to return.", default=6),
    },
    call=search,
    effect="idempotent",
    brings_sources=True,
)
