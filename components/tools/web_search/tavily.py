"""TavilySearch and TavilyExtract: web search and web pages through tavily.com.

DSL of the search: `query`, `topic`, `include_domains`, `exclude_domains`, `api_key`, `search_depth`, `max_results`,
`days`, `include_answer`, `include_image_descriptions`; `include_raw_content` and `include_images` are accepted and not
sent, as upstream. DSL of the extraction: `urls`, `extract_depth`, `format`, `api_key`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import flag, one_of, positive, text_list
from providers.interfaces import HttpCall

SEARCH, EXTRACT = "https://api.tavily.com/search", "https://api.tavily.com/extract"
TOPICS, DEPTHS, FORMATS = ("general", "news"), ("basic", "advanced"), ("markdown", "text")
EXTRACT_TIMEOUT_SECONDS = 60.0  # the vendor fetches every page before it answers


class TavilySearchParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    topic: Annotated[Any, one_of("Tavily topic", TOPICS, by_reference=True)] = "general"
    api_key: Any = ""
    search_depth: Annotated[str, one_of("Tavily search depth", DEPTHS)] = "basic"
    max_results: Annotated[int, positive("Tavily max results")] = 6
    days: Annotated[int, positive("Tavily days")] = 14
    include_answer: Annotated[bool, flag("Tavily include answer")] = False
    include_raw_content: Annotated[bool, flag("Tavily include raw content")] = False
    include_images: Annotated[bool, flag("Tavily include images")] = False
    include_image_descriptions: Annotated[bool, flag("Tavily include image descriptions")] = False


class TavilyExtractParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    extract_depth: Annotated[Any, one_of("Tavily extract depth", DEPTHS, by_reference=True)] = "basic"
    format: Annotated[Any, one_of("Tavily format", FORMATS, by_reference=True)] = "markdown"
    api_key: Any = ""


async def search(params: TavilySearchParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    body = {
        "query": value_text(arguments["query"]),
        "topic": _check_option(arguments["topic"], "topic", TOPICS),
        "search_depth": params.search_depth,
        "max_results": params.max_results,
        "days": params.days,
        "include_domains": text_list(arguments["include_domains"]),
        "exclude_domains": text_list(arguments["exclude_domains"]),
        "include_answer": params.include_answer,
        "include_raw_content": False,
        "include_images": False,
        "include_image_descriptions": params.include_image_descriptions,
    }
    reply = await http.fetch(ctx, "TavilySearch", HttpCall("POST", SEARCH, headers=_bearer(params.api_key), json=body))
    rows = http.require_list(http.parse_object(reply).get("results"), "results")
    formalized = await citations.cite_hits((_hit(row) for row in rows if isinstance(row, Mapping)), ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


async def extract(params: TavilyExtractParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    """Return the contents of pages. Only the form of their addresses is checked, because the vendor fetches them."""
    urls = text_list(arguments["urls"])
    if not urls:
        return ToolResult({"json": []}, answer=[])
    for url in urls:
        _check_url(url)
    body = {
        "urls": urls,
        "extract_depth": _check_option(arguments["extract_depth"], "extract_depth", DEPTHS),
        "format": _check_option(arguments["format"], "format", FORMATS),
        "include_images": False,
    }
    call = HttpCall("POST", EXTRACT, headers=_bearer(params.api_key), json=body, timeout=EXTRACT_TIMEOUT_SECONDS)
    answer = http.parse_object(await http.fetch(ctx, "TavilyExtract", call))
    rows = http.require_list(answer.get("results"), "results")
    return ToolResult(
        {"json": rows, "failed": http.require_list(answer.get("failed_results"), "failed_results")}, answer=rows
    )


def _hit(row: Mapping[str, Any]) -> Hit:
    return Hit(row.get("title"), row.get("url"), row.get("raw_content") or row.get("content"), row.get("score"))


def _bearer(api_key: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def _check_option(value: Any, name: str, options: tuple[str, ...]) -> str:
    if value not in options:
        raise ToolError(f"{name} {value} is not supported, it should be in [{', '.join(options)}]")
    return value


def _check_url(url: str) -> None:
    split = urlsplit(url)
    if split.scheme.lower() not in ("http", "https"):
        raise ToolError(f"Disallowed URL scheme: '{split.scheme}'. Only ['http', 'https'] are allowed.")
    if not split.hostname:
        raise ToolError("URL is missing a host.")


TAVILY_SEARCH = Tool(
    "TavilySearch",
    "tavily_search",
    TavilySearchParams,
    description="Searches the web. Use it for facts, current events and anything that may have changed lately.",
    arguments={
        "query": Argument("string", "A short, specific question or key words.", required=True, default="{sys.query}"),
        "topic": Argument("string", "`news` for recent events, else `general`.", default="general", enum=TOPICS),
        "include_domains": Argument("array", "Search these domains only.", default=[], items="string"),
        "exclude_domains": Argument("array", "Leave these domains out.", default=[], items="string"),
    },
    call=search,
    effect="idempotent",
    brings_sources=True,
    error_label="Tavily",
)

TAVILY_EXTRACT = Tool(
    "TavilyExtract",
    "tavily_extract",
    TavilyExtractParams,
    description="Reads web pages whose addresses are known, and returns their text.",
    arguments={
        "urls": Argument("array", "Addresses of the pages, beginning with http.", required=True, items="string"),
        "extract_depth": Argument(
            "string", "`advanced` also reads tables and embedded content, slower.", default="basic", enum=DEPTHS
        ),
        "format": Argument("string", "Form of the text.", default="markdown", enum=FORMATS),
    },
    call=extract,
    effect="idempotent",
    empty_outputs={"json": []},
    main_output="json",
    error_label="Tavily",
    outputs=("json", "failed"),
)
