"""PubMed: search of articles of medicine and the life sciences, with their abstracts.

DSL: `query`, `top_n`, `email` (the vendor asks for a contact), `api_key` (an addition of Easel: more requests a
second). A search without hits returns an empty result and no error, and abstracts are not truncated (docs/tools.md, row
T9).
"""

from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar
from xml.etree.ElementTree import Element

from canvas.errors import ToolError
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http, xml_tree
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import positive
from components.tools.framework.xml_tree import text_of
from providers.interfaces import HttpCall, HttpResponse
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.rate_limits import VendorRateLimit

SEARCH = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/esearch.fcgi"
FETCH = "https://eutils.ncbi.nlm.nih.gov/entrez/eutils/efetch.fcgi"
RATE_LIMIT = VendorRateLimit(requests=3, seconds=1.0, with_key=10)
ARTICLE = "https://pubmed.ncbi.nlm.nih.gov/"


class PubMedParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("api_key",)

    top_n: Annotated[int, positive("Top N")] = 12
    email: Any = "A.N.Other@example.com"
    api_key: Any = ""

    @property
    def rate_limit_key(self) -> str:
        return value_text(self.api_key).strip()


async def search(params: PubMedParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    caller = {"db": "pubmed", "retmode": "xml", "email": value_text(params.email), "tool": "easel"}
    if params.rate_limit_key:
        caller["api_key"] = params.rate_limit_key
    query_params = {**caller, "term": value_text(arguments["query"]), "retmax": params.top_n}
    ids = _parse_ids(await http.fetch(ctx, "PubMed", HttpCall("GET", SEARCH, params=query_params)))[: params.top_n]
    rows: list[dict[str, str]] = []
    if ids:
        reply = await http.fetch(ctx, "PubMed", HttpCall("GET", FETCH, params={**caller, "id": ",".join(ids)}))
        found = await in_untrusted_thread(_parse_tree, reply, "PubmedArticleSet")
        rows = [_row(article) for article in found.iter("PubmedArticle")]
    hits = (Hit(row["title"], row["url"], _content(row)) for row in rows)
    formalized = await citations.cite_hits(hits, ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


def _parse_ids(reply: HttpResponse) -> list[str]:
    """Return the ids of the articles found, from XML or, as some mirrors send it, JSON.

    Raises ToolError for an error.
    """
    if reply.content.lstrip().startswith(b"{"):
        body = http.parse_object(reply)
        result = body.get("esearchresult")
        found: Mapping[str, Any] = result if isinstance(result, dict) else {}
        _raise_if_error(value_text(found.get("ERROR") or body.get("error")))
        return [str(number) for number in http.require_list(found.get("idlist"), "idlist")]
    return [text_of(number) for number in _parse_tree(reply, "eSearchResult").iterfind("IdList/Id")]


def _parse_tree(reply: HttpResponse, name: str) -> Element:
    """Return the root of an answer, which must have this name. Raises ToolError for an error and any other root."""
    tree = xml_tree.parse(reply.content)
    _raise_if_error(text_of(tree.find("ERROR")))
    if tree.tag != name:
        raise ToolError(f"The answer is not of type {name}: {http.decode_text(reply)[: http.MAX_ERROR_BODY]}")
    return tree


def _raise_if_error(error: str) -> None:
    if error:
        raise ToolError(error)


def _row(article: Element) -> dict[str, str]:
    authors = (_author(author) for author in article.iterfind(".//AuthorList/Author"))
    issue = "MedlineCitation/Article/Journal/JournalIssue"
    number = _text(article, "MedlineCitation/PMID")
    return {
        "title": _text(article, "MedlineCitation/Article/ArticleTitle") or "No title",
        "url": f"{ARTICLE}{number}",
        "authors": ", ".join(name for name in authors if name) or "Unknown Authors",
        "journal": _text(article, "MedlineCitation/Article/Journal/Title") or "Unknown Journal",
        "volume": _text(article, f"{issue}/Volume") or "-",
        "issue": _text(article, f"{issue}/Issue") or "-",
        "pages": _text(article, "MedlineCitation/Article/Pagination/MedlinePgn") or "-",
        "doi": _doi(article) or "-",
        "abstract": _abstract(article) or "No abstract available",
    }


def _content(row: Mapping[str, str]) -> str:
    names = ("title", "authors", "journal", "volume", "issue", "pages")
    lines = [f"{name.capitalize()}: {row[name]}" for name in names]
    return "\n".join([*lines, f"DOI: {row['doi']}", f"Abstract: {row['abstract']}"])


def _author(author: Element) -> str:
    return " ".join(part for part in (_text(author, "ForeName"), _text(author, "LastName")) if part)


def _doi(article: Element) -> str:
    """Return the article's own DOI; each of its references has a list of ids, too."""
    own = article.iterfind("PubmedData/ArticleIdList/ArticleId")
    listed = (text_of(found) for found in own if found.get("IdType") == "doi")
    places = article.iterfind("MedlineCitation/Article/ELocationID")
    located = (text_of(at) for at in places if at.get("EIdType") == "doi" and at.get("ValidYN") != "N")
    return next((doi for doi in chain(listed, located) if doi), "")


def _abstract(article: Element) -> str:
    """Return the whole abstract; each part of a structured abstract is a line that begins with its label."""
    parts = article.iterfind("MedlineCitation/Article/Abstract/AbstractText")
    return "\n".join(f"{part.get('Label')}: {text_of(part)}" if part.get("Label") else text_of(part) for part in parts)


def _text(element: Element, path: str) -> str:
    return text_of(element.find(path))


PUBMED = Tool(
    "PubMed",
    "pubmed_search",
    PubMedParams,
    description="Searches articles of medicine and the life sciences, and returns abstracts.",
    arguments={"query": Argument("string", "Key words in English.", required=True, default="{sys.query}")},
    call=search,
    effect="idempotent",
    brings_sources=True,
    rate_limit=RATE_LIMIT,
)
