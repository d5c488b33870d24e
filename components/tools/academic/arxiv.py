"""ArXiv: search of preprints, with their abstracts.

DSL: `query` (in the vendor's search language, without an added field prefix), `top_n`, `sort_by`.
"""

from collections.abc import Mapping
from typing import Annotated, Any
from xml.etree.ElementTree import Element

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http, xml_tree
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import one_of, positive
from components.tools.framework.xml_tree import text_of
from providers.interfaces import HttpCall, HttpResponse
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.rate_limits import VendorRateLimit

SEARCH = "https://export.arxiv.org/api/query"
ORDERS = ("submittedDate", "lastUpdatedDate", "relevance")
MAX_TRIES = 3  # the most that the vendor accepts
RATE_LIMIT = VendorRateLimit(requests=1, seconds=3.0)
_ATOM = "{http://www.w3.org/2005/Atom}"
_ERROR = "api/errors"  # in the id of an entry that is an error and not an article


class ArXivParams(ToolParams):
    top_n: Annotated[int, positive("Top N")] = 12
    sort_by: Annotated[str, one_of("ArXiv sort by", ORDERS)] = "submittedDate"


async def search(params: ArXivParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    query_params = {
        "search_query": value_text(arguments["query"]),
        "id_list": "",
        "sortBy": params.sort_by,
        "sortOrder": "descending",
        "start": 0,
        "max_results": params.top_n,
    }
    feed = await _parse_feed(await http.send(ctx, "ArXiv", HttpCall("GET", SEARCH, params=query_params)))
    rows = [_article(entry) for entry in feed.iterfind(f"{_ATOM}entry")]
    hits = (Hit(row["title"], row["pdf_url"], row["summary"]) for row in rows)
    formalized = await citations.cite_hits(hits, ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


async def _parse_feed(reply: HttpResponse) -> Element:
    """Return the vendor's feed. Raises ToolError if it is not one, and for an error with the text of its entry."""
    try:
        feed = await in_untrusted_thread(xml_tree.parse, reply.content)
    except ToolError:
        if reply.is_success:
            raise
        raise http.error_from_reply(reply) from None
    if reply.is_success and feed.tag != f"{_ATOM}feed":
        raise ToolError(f"The answer is not a feed: {http.decode_text(reply)[: http.MAX_ERROR_BODY]}")
    if not reply.is_success:
        messages = (_summary(entry) for entry in feed.iterfind(f"{_ATOM}entry") if _ERROR in _member(entry, "id"))
        raise http.error_from_reply(reply, next(messages, ""))
    return feed


def _article(entry: Element) -> dict[str, Any]:
    """Return an article: {title, summary, authors, pdf_url, entry_id, published, updated}."""
    entry_id, summary = _member(entry, "id"), _summary(entry)
    if _ERROR in entry_id:
        raise ToolError(summary or "ArXiv refused the query.")
    links = entry.iterfind(f"{_ATOM}link")
    return {
        "title": _member(entry, "title"),
        "summary": summary,
        "authors": [text_of(name) for name in entry.iterfind(f"{_ATOM}author/{_ATOM}name")],
        "pdf_url": next((link.get("href") for link in links if link.get("title") == "pdf"), None),
        "entry_id": entry_id,
        "published": _member(entry, "published"),
        "updated": _member(entry, "updated"),
    }


def _summary(entry: Element) -> str:
    return (entry.findtext(f"{_ATOM}summary") or "").strip()


def _member(entry: Element, name: str) -> str:
    return text_of(entry.find(f"{_ATOM}{name}"))


ARXIV = Tool(
    "ArXiv",
    "arxiv_search",
    ArXivParams,
    description="Searches preprints on arxiv.org (physics, mathematics, computer science, ...) and returns abstracts.",
    arguments={"query": Argument("string", "Key words in English.", required=True, default="{sys.query}")},
    call=search,
    effect="idempotent",
    brings_sources=True,
    max_attempts=MAX_TRIES,
    rate_limit=RATE_LIMIT,
)
