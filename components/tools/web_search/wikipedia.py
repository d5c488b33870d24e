"""Wikipedia: the introductions of matching articles, found with one request (docs/tools.md, row T10).

DSL: `query`, `top_n`, `language`. Disambiguation pages are left out. The vendor asks for a User-Agent with a contact
address: a deployment sets it as EASEL_CONTACT.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import one_of, positive
from providers.interfaces import HttpCall

MAX_PAGES = 20  # the most whose introductions the vendor returns in one answer
LANGUAGES = (
    *("af", "pl", "ar", "ast", "az", "bg", "nan", "bn", "be", "ca", "cs", "cy", "da", "de", "et", "el", "en", "es"),
    *("eo", "eu", "fa", "fr", "gl", "ko", "hy", "hi", "hr", "id", "it", "he", "ka", "lld", "la", "lv", "lt", "hu"),
    *("mk", "arz", "ms", "min", "my", "nl", "ja", "nb", "nn", "ce", "uz", "pt", "kk", "ro", "ru", "ceb", "sk", "sl"),
    *("sr", "sh", "fi", "sv", "ta", "tt", "th", "tg", "azb", "tr", "uk", "ur", "vi", "war", "zh", "yue"),
)


class WikipediaParams(ToolParams):
    top_n: Annotated[int, positive("Top N")] = 10
    language: Annotated[str, one_of("Wikipedia language", LANGUAGES)] = "en"


async def search(params: WikipediaParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    query_params = {
        "action": "query",
        "format": "json",
        "generator": "search",
        "gsrsearch": value_text(arguments["query"]),
        "gsrlimit": min(params.top_n, MAX_PAGES),
        "prop": "extracts|info|pageprops",
        "exintro": 1,
        "explaintext": 1,
        "exlimit": "max",
        "inprop": "url",
        "ppprop": "disambiguation",
    }
    call = HttpCall("GET", f"https://{params.language}.wikipedia.org/w/api.php", params=query_params)
    pages = _pages(http.parse_object(await http.fetch(ctx, "Wikipedia", call, http.CONTACT_ADVICE)))
    hits = [Hit(page.get("title"), page.get("fullurl"), page["extract"]) for page in pages]
    formalized = await citations.cite_hits(hits, ctx)
    rows = [{"title": hit.title, "url": hit.url, "extract": hit.content} for hit in hits]
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


def _pages(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the articles, the best match first. Raises ToolError."""
    error = body.get("error")
    if error:
        raise ToolError(value_text(error.get("info") if isinstance(error, Mapping) else error))
    query = body.get("query")
    listed = query.get("pages") if isinstance(query, Mapping) else None
    pages = list(listed.values()) if isinstance(listed, Mapping) else http.require_list(listed, "pages")
    articles = [page for page in pages if isinstance(page, Mapping) and _is_article(page)]
    return sorted(articles, key=_rank)


def _is_article(page: Mapping[str, Any]) -> bool:
    properties = page.get("pageprops")
    return bool(page.get("extract")) and not (isinstance(properties, Mapping) and "disambiguation" in properties)


def _rank(page: Mapping[str, Any]) -> float:
    index = page.get("index")
    return index if isinstance(index, int | float) else float("inf")


WIKIPEDIA = Tool(
    "Wikipedia",
    "wikipedia_search",
    WikipediaParams,
    description="Finds Wikipedia articles and returns their introductions. Use it for people, places and ideas.",
    arguments={
        "query": Argument("string", "The subject, in a few words.", required=True, default="{sys.query}"),
    },
    call=search,
    effect="idempotent",
    brings_sources=True,
)
