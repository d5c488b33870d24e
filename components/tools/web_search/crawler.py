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
from components.tools.framework.refused_addresses import not_valid
from providers.http.address_policy import addresses_of
from providers.http.redirects import url_of
from providers.interfaces import Call, Reply
from providers.isolation.untrusted_threads import in_untrusted_thread
from providers.models.text.sanitizer import clean

LARGEST = 5 * 1024 * 1024  # bytes of a page
LONGEST = 200_000  # characters of the extracted text
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
class Page:
    """The content of an address."""

    url: str
    text: str
    is_html: bool


async def crawl(params: CrawlerParams, arguments: Mapping[str, Any], ctx: NodeContext) -> ToolResult:
    """Return the text of a page. A failure has the same text for a node and for a model."""
    try:
        url = _checked(value_text(arguments["query"]).strip())
        page = await (_by_browser if params.engine == "browser" else _by_http)(url, params, ctx)
        html = page.text.encode("utf-8", "replace")
        text = await page_text.read_page(len(html), extracted, page.url, html, page.is_html, params.extract_type)
    except AddressRefused as error:
        message = not_valid(error)
        raise AddressRefused(message, answer=message, reason=error.message) from error
    except NodeFailure as error:
        message = f"An unexpected error occurred: {error.message}"
        raise ToolError(message, retryable=error.retryable, **{**error.details, "answer": message}) from error
    return ToolResult({"formalized_content": text}, answer=text)


def _checked(url: str) -> str:
    """Return a valid http or https address, before anything is requested. Raises AddressRefused for any other."""
    url_of(url)
    return url


# -- fetching ---------------------------------------------------------------------------------------------------------
async def _by_http(url: str, params: CrawlerParams, ctx: NodeContext) -> Page:
    call = Call("GET", url, headers={"Accept": _ACCEPTED}, proxy=params.proxy or None, most_bytes=LARGEST)
    reply = await http.fetch(ctx, CRAWLER.name, call, http.WHO_ASKS)
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/pdf" or reply.content.startswith(b"%PDF-"):
        raise ToolError("it is a PDF, and only web pages and plain text are read.")
    if kind and kind not in (*_PAGES, _TEXT):
        raise ToolError(f"its type is {kind[:100]}, and only web pages and plain text are read.")
    text = await in_untrusted_thread(_decoded, reply)
    is_mirrored = http.named_place(ctx.services.base_urls, CRAWLER.name, url_of(url).host) is not None
    return Page(url if is_mirrored else reply.url, text, is_html=kind in _PAGES or (not kind and "<" in text))


def _decoded(reply: Reply) -> str:
    """Decode the body with the charset of the reply's header, else the one that it declares or seems to have."""
    if "charset" in reply.headers.get("content-type", "").lower():
        return http.text_of(reply)
    return charsets.decoded(reply.content, may_declare=True)


async def _by_browser(url: str, params: CrawlerParams, ctx: NodeContext) -> Page:
    settings = ctx.services.browser
    if settings is None:
        raise ToolError("no browser is configured on this worker. Use the engine `http`.")
    if params.proxy:
        raise ToolError("the engine `browser` has a proxy of its own. Use the engine `http` with another one.")
    from components.browsing.loop import ActionFailed
    from components.browsing.session import Wanted, opened

    place = url_of(url)
    port = place.port or (443 if place.scheme == "https" else 80)
    await addresses_of(place.host, port, settings.guard, subject="URL", of_the_web=True)
    scratch = Path(mkdtemp(prefix="easel-crawler-"))
    try:
        async with opened(settings, Wanted(scratch), ctx.log) as (page, _):
            loaded = await page.read(url, LARGEST)
    except ActionFailed as error:
        raise ToolError(str(error)) from error
    finally:
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
    if loaded.status >= 400:
        raise HttpFailed(f"HTTP {loaded.status}", retryable=loaded.status >= 500, status=loaded.status)
    return Page(loaded.url, loaded.html, is_html=True)


# -- extraction -------------------------------------------------------------------------------------------------------
def extracted(url: str, content: bytes, is_html: bool, extract_type: str) -> str:
    """Return the cleaned text of a page in the form `extract_type`. Raises NodeFailure for an unreadable page.

    `content` is UTF-8.
    """
    text = content.decode()
    if not is_html:
        return _INLINE.sub("", clean(text))[:LONGEST]
    tree = page_text.tree_of(text)
    if tree.body is None:
        return ""
    match extract_type:
        case "html":
            text = page_html.cleaned(tree.body)
        case "markdown":
            text = page_markdown.markdown_of(tree.body, _base(tree, url))
        case _:
            text = page_markdown.markdown_of(main_content.main_part(tree.body), url, with_links=False)
    return _INLINE.sub("", clean(text))[:LONGEST].strip()


def _base(tree: Any, url: str) -> str:
    """Return the base of the page's relative addresses: its `<base href>`, else its own address."""
    named = tree.css_first("base[href]")
    return page_markdown.absolute(url, named.attributes.get("href") or "") or url if named is not None else url


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
