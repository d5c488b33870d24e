"""SearXNG: web search through an instance that the author chooses.

DSL: `query`, `searxng_url` (goes before the model's argument), `top_n`. The address policy checks the address, as it
does every address that a canvas or a model can choose.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from canvas.errors import AddressRefused, HttpFailed, ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import positive
from components.tools.framework.tool_node import resolve_argument
from providers.interfaces import HttpCall, HttpResponse

TIMEOUT_SECONDS = 10.0
WITHOUT_ADDRESS = (
    "SearXNG was not asked, because it has no address. Give the address of an instance as searxng_url, or tell the "
    "user that the author of this canvas has to set it."
)


class SearXNGParams(ToolParams):
    searxng_url: Any = ""
    top_n: Annotated[int, positive("Top N")] = 10


async def search(params: SearXNGParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    url = _instance_url(params, arguments, ctx)
    if not url:
        return ToolResult({"formalized_content": ""}, answer=WITHOUT_ADDRESS)
    rows = _rows(await _fetch(url, value_text(arguments["query"]), ctx))[: params.top_n]
    hits = (Hit(row.get("title"), row.get("url"), row.get("content")) for row in rows if isinstance(row, Mapping))
    formalized = await citations.cite_hits(hits, ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


def _instance_url(params: SearXNGParams, arguments: Mapping[str, Any], ctx: NodeContext) -> str:
    """Return the author's address with its references resolved, else the model's argument."""
    own = value_text(resolve_argument(SEARXNG.arguments["searxng_url"], params.searxng_url, ctx)).strip()
    return (own or value_text(arguments["searxng_url"]).strip()).rstrip("/")


async def _fetch(url: str, query: str, ctx: NodeContext) -> HttpResponse:
    query_params = {
        "q": query,
        "format": "json",
        "categories": "general",
        "language": "auto",
        "safesearch": 1,
        "pageno": 1,
    }
    try:
        return await http.fetch(
            ctx, "SearXNG", HttpCall("GET", f"{url}/search", params=query_params, timeout=TIMEOUT_SECONDS)
        )
    except AddressRefused as refused:
        answer = f"SearXNG error: SSRF guard blocked '{url}': {refused.message}"
        raise AddressRefused(refused.message, answer=answer) from refused
    except HttpFailed as failed:
        text = f"Network error: {failed.message}"
        raise HttpFailed(text, retryable=failed.retryable, **failed.details) from failed


def _rows(reply: HttpResponse) -> list[Any]:
    body = http.parse_json(reply)
    if not isinstance(body, dict):
        raise ToolError("Invalid response from SearXNG")
    rows = body.get("results", [])
    if not isinstance(rows, list):
        raise ToolError("Invalid results format from SearXNG")
    return rows


SEARXNG = Tool(
    "SearXNG",
    "searxng_search",
    SearXNGParams,
    description="Searches the web with a SearXNG instance. Use it for facts, current events and pages on a subject.",
    arguments={
        "query": Argument("string", "Key words, as few as will do.", required=True, default="{sys.query}"),
        "searxng_url": Argument("string", "Address of the instance; leave it empty if none was given.", default=""),
    },
    call=search,
    effect="idempotent",
    brings_sources=True,
)
