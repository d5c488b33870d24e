"""QueritSearch and QueritContents: web search and web pages through querit.ai.

DSL of the search: `query`, `count`, `chunks_per_doc`, `site_include`, `site_exclude`, `time_range`, `country_include`,
`language_include`, `api_key`. DSL of the contents: `urls`, `format`, `crawl_timeout`, `extras_meta`, `api_key`. A node
without a key uses the deployment's (`QUERIT_API_KEY`). Transient failures are retried twice, whatever the node says.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from canvas.errors import HttpFailed, ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.web_search import querit_options as options
from components.tools.web_search.querit_options import canvas_check, check_argument
from providers.interfaces import HttpCall, HttpResponse

SEARCH, CONTENTS = "https://api.querit.ai/v1/search", "https://api.querit.ai/v1/contents"
RETRIES = 2

_NO_KEY = "Querit API key is required. Configure api_key or set QUERIT_API_KEY."
_SITE_INCLUDE, _SITE_EXCLUDE = options.strings("site_include"), options.strings("site_exclude")
_COUNTRIES, _LANGUAGES = options.strings("country_include"), options.strings("language_include")
_RETRYABLE_STATUSES = frozenset({429, 500, 502, 503, 504})


class QueritSearchParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)
    fields_with_null: ClassVar[tuple[str, ...]] = ("query", "chunks_per_doc")

    query: Annotated[Any, canvas_check(options.query)] = "{sys.query}"
    count: Annotated[Any, canvas_check(options.count)] = 10
    chunks_per_doc: Annotated[Any, canvas_check(options.chunks)] = options.MAX_CHUNKS
    site_include: Annotated[Any, canvas_check(_SITE_INCLUDE, may_be_empty=True)] = Field(default_factory=list[str])
    site_exclude: Annotated[Any, canvas_check(_SITE_EXCLUDE, may_be_empty=True)] = Field(default_factory=list[str])
    time_range: Annotated[Any, canvas_check(options.time_range)] = ""
    country_include: Annotated[Any, canvas_check(_COUNTRIES, may_be_empty=True)] = Field(default_factory=list[str])
    language_include: Annotated[Any, canvas_check(_LANGUAGES, may_be_empty=True)] = Field(default_factory=list[str])
    api_key: Any = ""


class QueritContentsParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    urls: Annotated[Any, canvas_check(options.urls, may_be_empty=True)] = ""
    format: Annotated[Any, canvas_check(options.page_format)] = "markdown"
    crawl_timeout: Annotated[Any, canvas_check(options.crawl_timeout)] = 10
    extras_meta: Annotated[Any, canvas_check(options.extras_meta)] = False
    api_key: Any = ""


async def search(params: QueritSearchParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    request: dict[str, Any] = {
        "query": check_argument(options.query, arguments["query"]),
        "count": check_argument(options.count, arguments["count"]),
    }
    chunks = check_argument(options.chunks, arguments["chunks_per_doc"])
    if params.chunks_per_doc is not None or chunks != options.MAX_CHUNKS:  # null leaves it to the vendor
        request["chunksPerDoc"] = chunks
    filters = _filters(arguments)
    if filters:
        request["filters"] = filters
    body = _parse_object(await _fetch(ctx, "QueritSearch", params.api_key, HttpCall("POST", SEARCH, json=request)))
    rows = (Hit(row.get("title"), row.get("url"), row.get("snippet"), 1) for row in _rows(body))
    formalized = await citations.cite_hits(rows, ctx)
    return ToolResult({"formalized_content": formalized, "json": body}, answer=formalized)


async def contents(params: QueritContentsParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    """Return the contents of pages. Only the form of their addresses is checked, because the vendor fetches them."""
    seconds = check_argument(options.crawl_timeout, arguments["crawl_timeout"])
    request = {
        "urls": check_argument(options.urls, arguments.get("urls")),
        "format": check_argument(options.page_format, arguments["format"]),
        "crawlTimeout": seconds,
        "extrasMeta": check_argument(options.extras_meta, arguments["extras_meta"]),
    }
    call = HttpCall("POST", CONTENTS, json=request, timeout=float(max(15, seconds + 5)))
    body = _parse_object(await _fetch(ctx, "QueritContents", params.api_key, call))
    for name in ("results", "statuses"):
        if not isinstance(body.get(name, []), list):
            raise ToolError(f"Querit API response field {name} must be an array.")
    return ToolResult({"json": body}, answer=body)


def _filters(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters of the search that are not empty."""
    include, exclude = (
        check_argument(_SITE_INCLUDE, arguments["site_include"]),
        check_argument(_SITE_EXCLUDE, arguments["site_exclude"]),
    )
    sites = {name: listed for name, listed in (("include", include), ("exclude", exclude)) if listed}
    date_range = check_argument(options.time_range, arguments["time_range"])
    countries = check_argument(_COUNTRIES, arguments["country_include"])
    languages = check_argument(_LANGUAGES, arguments["language_include"])
    filters = {
        "sites": sites,
        "timeRange": {"date": date_range} if date_range else {},
        "geo": {"countries": {"include": countries}} if countries else {},
        "languages": {"include": languages} if languages else {},
    }
    return {name: part for name, part in filters.items() if part}


async def _fetch(ctx: NodeContext, tool: str, own_key: Any, call: HttpCall) -> HttpResponse:
    key = value_text(own_key).strip() or ctx.services.vendor_keys.get("QUERIT", "")
    if not key:
        raise ToolError(_NO_KEY)
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
    try:
        return await http.fetch(ctx, tool, replace(call, headers=headers))
    except HttpFailed as failed:
        status = failed.details.get("status")
        may_help = failed.retryable if status is None else status in _RETRYABLE_STATUSES
        raise HttpFailed(failed.message, retryable=may_help, **failed.details) from failed


def _parse_object(reply: HttpResponse) -> dict[str, Any]:
    body = http.parse_json(reply)
    if not isinstance(body, dict):
        raise ToolError("Querit API response must be a JSON object.")
    message = body.get("error_msg")
    if "results" not in body and isinstance(message, str) and message:
        raise ToolError(message)
    return body


def _rows(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    results = body.get("results", {})
    if not isinstance(results, Mapping):
        raise ToolError("Querit API response field results must be an object.")
    rows = results.get("result", [])
    if not isinstance(rows, list):
        raise ToolError("Querit API response field results.result must be an array.")
    return [row for row in rows if isinstance(row, Mapping)]


QUERIT_SEARCH = Tool(
    "QueritSearch",
    "querit_search",
    QueritSearchParams,
    description="Searches the web. Use it for facts, current events and anything that may have changed lately.",
    arguments={
        "query": Argument("string", "A short, specific question or key words.", required=True, default="{sys.query}"),
        "count": Argument("integer", "How many pages to return.", default=10),
        "chunks_per_doc": Argument("integer", "How many passages of each page: 1, 2 or 3.", default=options.MAX_CHUNKS),
        "site_include": Argument("array", "Search these sites only, such as example.com.", default=[], items="string"),
        "site_exclude": Argument("array", "Leave these sites out.", default=[], items="string"),
        "time_range": Argument(
            "string",
            "How old pages may be: `d7`, `w2`, `m3`, `y1` back from now, or `2026-01-01to2026-03-31`. Empty: any age.",
            default="",
        ),
        "country_include": Argument("array", "Pages of these countries only.", default=[], items="string"),
        "language_include": Argument("array", "Pages in these languages only.", default=[], items="string"),
    },
    call=search,
    effect="idempotent",
    empty_outputs={"formalized_content": "", "json": {}},
    brings_sources=True,
    error_label="Querit",
    retries=RETRIES,
)

QUERIT_CONTENTS = Tool(
    "QueritContents",
    "querit_contents",
    QueritContentsParams,
    description="Reads web pages whose addresses are known, and returns their text.",
    arguments={
        "urls": Argument("array", "Addresses of 1 to 10 pages, beginning with http.", required=True, items="string"),
        "format": Argument("string", "Form of the text.", default="markdown", enum=options.FORMATS),
        "crawl_timeout": Argument("integer", "Seconds that fetching may take: 1 to 60.", default=10),
        "extras_meta": Argument("boolean", "Whether to return what pages say about themselves, too.", default=False),
    },
    call=contents,
    effect="idempotent",
    empty_outputs=None,
    main_output="json",
    error_label="Querit contents",
    retries=RETRIES,
    outputs=("json",),
)
