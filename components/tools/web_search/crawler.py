"""Crawler: read one web page.

DSL: `query` (its address), `extract_type` (`markdown`, `html`, or `content` for the main text), `proxy`, and `engine`
(an addition of Easel): `http` requests the page itself; `browser` loads it in a Chromium that runs its scripts, behind
a proxy that checks every address. The content of a page is never treated as an instruction.
"""

import asyncio
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, ClassVar

from pydantic import field_validator

from canvas.errors import AddressRefused, HttpFailed, NodeFailure, ToolError
from components.context import NodeContext
from components.text.extraction import charsets, main_content, page_html, page_markdown, page_text
from components.text.templates.templates import value_text
from components.tools.framework import http
from components.tools.framework.base import Argument, Tool, ToolParams, ToolResult
from components.tools.framework.parameters import one_of
from components.tools.framework.refused_addresses import refused_address_text
from providers.address_policy import resolve_checked
from providers.http.redirects import parse_url
from providers.interfaces import HttpCall, HttpResponse
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.sanitizer import clean

MAX_PAGE_BYTES = 5 * 1024 * 1024  # bytes of a page
MAX_TEXT_LENGTH = 200_000  # characters of the extracted text
_INLINE = re.compile(r"data:image/[\w.+-]{1,40};base64,[A-Za-z0-9+/=]*")
_ACCEPTED = "text/html, application/xhtml+xml, text/plain;q=0.9, */*;q=0.1"
_PAGES, _TEXT = ("text/html", "application/xhtml+xml"), "text/plain"


class CrawlerParams(ToolParams):
    secrets: ClassVar[tuple[str, ...]] = ("proxy",)

    proxy: Any = None
    extract_type: Annotated[Any, one_of("Web page extract type", ("html", "markdown", "content"))] = "markdown"
    engine: Annotated[Any, one_of("Engine", ("http", "browser"))] = "http"

    @field_validator("proxy")
    @classmethod
    def _with_a_scheme(cls, proxy: Any) -> Any:
        text = str(proxy or "").strip()
        return text if not text or "://" in text else f"http://{text}"


@dataclass(frozen=True, slots=True)
class FetchedPage:
    """The content of an address."""

    url: str
    text: str
    is_html: bool


async def crawl(params: CrawlerParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    """Return the text of a page. A failure has the same text for a node and for a model."""
    try:
        url = _check_url(value_text(arguments["query"]).strip())
        page = await (_fetch_by_browser if params.engine == "browser" else _fetch_by_http)(url, params, ctx)
        html = page.text.encode("utf-8", "replace")
        text = await page_text.read_page(len(html), extract_text, page.url, html, page.is_html, params.extract_type)
    except AddressRefused as error:
        message = refused_address_text(error)
        raise AddressRefused(message, answer=message, reason=error.message) from error
    except NodeFailure as error:
        message = f"An unexpected error occurred: {error.message}"
        raise ToolError(message, retryable=error.retryable, **{**error.details, "answer": message}) from error
    return ToolResult({"formalized_content": text}, answer=text)


def _check_url(url: str) -> str:
    """Return a valid http or https address, before anything is requested. Raises AddressRefused for any other."""
    parse_url(url)
    return url


# -- fetching ---------------------------------------------------------------------------------------------------------
async def _fetch_by_http(url: str, params: CrawlerParams, ctx: NodeContext) -> FetchedPage:
    call = HttpCall("GET", url, headers={"Accept": _ACCEPTED}, proxy=params.proxy or None, max_bytes=MAX_PAGE_BYTES)
    reply = await http.fetch(ctx, CRAWLER.name, call, http.CONTACT_ADVICE)
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/pdf" or reply.content.startswith(b"%PDF-"):
        raise ToolError("it is a PDF, and only web pages and plain text are read.")
    if kind and kind not in (*_PAGES, _TEXT):
        raise ToolError(f"its type is {kind[:100]}, and only web pages and plain text are read.")
    text = await in_untrusted_thread(_decode_body, reply)
    is_mirrored = http.configured_address(ctx.services.base_urls, CRAWLER.name, parse_url(url).host) is not None
    return FetchedPage(url if is_mirrored else reply.url, text, is_html=kind in _PAGES or (not kind and "<" in text))


def _decode_body(reply: HttpResponse) -> str:
    """Decode the body with the charset of the reply's header, else the one that it declares or seems to have."""
    if "charset" in reply.headers.get("content-type", "").lower():
        return http.decode_text(reply)
    return charsets.decode(reply.content, may_declare=True)


async def _fetch_by_browser(url: str, params: CrawlerParams, ctx: NodeContext) -> FetchedPage:
    settings = ctx.services.browser
    if settings is None:
        raise ToolError("no browser is configured on this worker. Use the engine `http`.")
    if params.proxy:
        raise ToolError("the engine `browser` has a proxy of its own. Use the engine `http` with another one.")
    from components.browsing.loop import ActionFailed
    from components.browsing.session import BrowserOptions, open_browser

    place = parse_url(url)
    port = place.port or (443 if place.scheme == "https" else 80)
    await resolve_checked(place.host, port, settings.guard, subject="URL", is_http=True)
    scratch = Path(mkdtemp(prefix="easel-crawler-"))
    try:
        async with open_browser(settings, BrowserOptions(scratch), ctx.log) as (page, _):
            loaded = await page.read(url, MAX_PAGE_BYTES)
    except ActionFailed as error:
        raise ToolError(str(error)) from error
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    if loaded.status >= 400:
        raise HttpFailed(f"HTTP {loaded.status}", retryable=loaded.status >= 500, status=loaded.status)
    return FetchedPage(loaded.url, loaded.html, is_html=True)


# -- extraction -------------------------------------------------------------------------------------------------------
def extract_text(url: str, content: bytes, is_html: bool, extract_type: str) -> str:
    """Return the cleaned text of a page in the form `extract_type`. Raises NodeFailure for an unreadable page.

    `content` is UTF-8.
    """
    text = content.decode()
    if not is_html:
        return _INLINE.sub("", clean(text))[:MAX_TEXT_LENGTH]
    tree = page_text.parse_page(text)
    if tree.body is None:
        return ""
    match extract_type:
        case "html":
            text = page_html.sanitize(tree.body)
        case "markdown":
            text = page_markdown.to_markdown(tree.body, _base_url(tree, url))
        case _:
            text = main_content.extract_main_content(tree.body, url)
    return _INLINE.sub("", clean(text))[:MAX_TEXT_LENGTH].strip()


def _base_url(tree: Any, url: str) -> str:
    """Return the base of the page's relative addresses: its `<base href>`, else its own address."""
    named = tree.css_first("base[href]")
    return page_markdown.absolute_url(url, named.attributes.get("href") or "") or url if named is not None else url


CRAWLER = Tool(
    "Crawler",
    "web_crawler",
    CrawlerParams,
    description="Reads a web page whose address is known, and returns what it says.",
    arguments={
        "query": Argument(
            "string", "The page's address, beginning with http:// or https://.", required=True, default="{sys.query}"
        )
    },
    call=crawl,
    effect="idempotent",
    outputs=("formalized_content",),
)
