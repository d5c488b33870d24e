"""GoogleScholar: scholarly articles, read from the result pages of scholar.google.com.

DSL: `query`, `top_n`, `sort_by`, `year_low`, `year_high`, `patents`. The vendor has no API: a page with a CAPTCHA is an
error, and the tool does not try to get around it.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from canvas.errors import HttpFailed, NodeFailure
from components.context import NodeContext
from components.text.templates.templates import value_text
from components.tools.framework import citations, http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.citations import Hit
from components.tools.framework.parameters import flag, one_of, positive, whole_number
from providers.interfaces import HttpCall
from providers.isolation.untrusted_threads import in_untrusted_thread

SEARCH = "https://scholar.google.com/scholar"
ROWS_PER_PAGE = 10
MAX_PAGES = 10

_CAPTCHA_MARKS = ("gs_captcha", "/sorry/", "g-recaptcha", "not a robot")
_YEAR = re.compile(r"\b(?:1[5-9]|20)\d\d\b")
_CITED = re.compile(r"Cited by (\d{1,9})")
_MARKS = re.compile(r"^(?:\[[^\]]{1,20}\]\s*)+")


class GoogleScholarParams(ToolParams):
    top_n: Annotated[int, positive("Top N")] = 12
    sort_by: Annotated[str, one_of("GoogleScholar sort by", ("date", "relevance"))] = "relevance"
    year_low: Any = None
    year_high: Any = None
    patents: Annotated[bool, flag("Whether to include patents")] = True


async def search(params: GoogleScholarParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    options: dict[str, Any] = {
        "hl": "en",
        "q": value_text(arguments["query"]),
        "as_vis": 0,
        "as_sdt": "0,33" if params.patents else "1,33",
        "as_ylo": whole_number(params.year_low),
        "as_yhi": whole_number(params.year_high),
        "scisbd": 1 if params.sort_by == "date" else None,
    }
    query_params = {name: value for name, value in options.items() if value is not None}
    rows: list[dict[str, Any]] = []
    for page in range(MAX_PAGES):
        found = await _fetch_page({**query_params, "start": page * ROWS_PER_PAGE}, ctx)
        rows += found
        if len(rows) >= params.top_n or len(found) < ROWS_PER_PAGE:
            break
    rows = rows[: params.top_n]
    formalized = await citations.cite_hits(map(_hit, rows), ctx)
    return ToolResult({"formalized_content": formalized, "json": rows}, answer=formalized)


async def _fetch_page(query_params: Mapping[str, Any], ctx: NodeContext) -> list[dict[str, Any]]:
    reply = await http.send(ctx, "GoogleScholar", HttpCall("GET", SEARCH, params=query_params))
    page = http.decode_text(reply)
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS or any(riddle in page for riddle in _CAPTCHA_MARKS):
        raise HttpFailed("Google Scholar refuses programs for now.", retryable=False, status=reply.status)
    if not reply.is_success:
        raise http.error_from_reply(reply)
    return await in_untrusted_thread(_parse_rows, page)


def _parse_rows(page: str) -> list[dict[str, Any]]:
    """Return the articles of a page: {bib: {title, author, abstract, pub_year, venue}, pub_url, num_citations}."""
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError as missing:
        raise NodeFailure("GoogleScholar reads pages with the extra `html`: pip install easel[html].") from missing
    rows: list[dict[str, Any]] = []
    for article in LexborHTMLParser(page).css(".gs_ri"):
        title, byline, abstract = (article.css_first(part) for part in (".gs_rt", ".gs_a", ".gs_rs"))
        if title is None:
            continue
        link, cited = title.css_first("a"), _CITED.search(article.text())
        authors, venue, year = _parse_byline(_one_line(byline.text())) if byline is not None else ([], "", "")
        rows.append(
            {
                "bib": {
                    "title": _MARKS.sub("", _one_line(title.text())),
                    "author": authors,
                    "abstract": _one_line(abstract.text()) if abstract is not None else "",
                    "pub_year": year,
                    "venue": venue,
                },
                "pub_url": (link.attributes.get("href") or "") if link is not None else "",
                "num_citations": int(cited.group(1)) if cited else 0,
            }
        )
    return rows


def _parse_byline(text: str) -> tuple[list[str], str, str]:
    """Parse authors, venue and year of `A Lee, B Li - Journal of Widgets, 2024 - example.org`."""
    names, _, rest = text.partition(" - ")
    where = rest.partition(" - ")[0]
    year = _YEAR.search(where)
    venue = where[: year.start()] if year else where
    authors = [name.strip(" …") for name in names.split(",")]
    return [name for name in authors if name], venue.strip(" ,…"), year.group() if year else ""


def _hit(row: Mapping[str, Any]) -> Hit:
    bib = row["bib"]
    content = f"\n author: {','.join(bib['author'])}\n Abstract: {bib['abstract'] or 'no abstract'}"
    return Hit(bib["title"], row["pub_url"], content)


def _one_line(text: str) -> str:
    return " ".join(text.split())


GOOGLE_SCHOLAR = Tool(
    "GoogleScholar",
    "google_scholar_search",
    GoogleScholarParams,
    description="Searches scholarly literature of all fields, and returns authors and abstracts.",
    arguments={"query": Argument("string", "Key words, as few as will do.", required=True, default="{sys.query}")},
    call=search,
    effect="idempotent",
    brings_sources=True,
    empty_outputs={"formalized_content": "", "json": []},
)
