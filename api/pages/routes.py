"""Routes of the web pages: the document at each page address, and its files below `/ui/`.

A page address answers only a GET or HEAD that accepts HTML; every other request to it stays the 404 of the API.
"""

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from api.http.replies import accepts_gzip
from api.pages.page_files import PageFile, PageFiles

PAGES = (
    "/", "/login", "/runs", "/runs/{run_id}", "/compare/{run_id}/{other_run_id}", "/agents", "/agents/{agent_id}",
    "/agents/{agent_id}/versions", "/agents/{agent_id}/edit", "/agents/{agent_id}/play", "/conversations",
    "/conversations/{session_id}", "/overview", "/system", "/settings", "/open", "/s",
)  # fmt: skip
"""Addresses of pages. The document is the same for all: the page finds out which one it is."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types default",
    )
)
DOCUMENT_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
FILE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
METHODS = ("GET", "HEAD")


class PageRoute(Route):
    """The route of a page address. It does not match a request that is not a browser's for a document."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the request is for this page."""
        if scope["type"] != "http" or scope["method"] not in METHODS or not _accepts_html(scope):
            return Match.NONE, {}
        return super().matches(scope)


def page_routes(pages: PageFiles, count: Callable[[str], None] = lambda page: None) -> Sequence[BaseRoute]:
    """Return the routes of the pages and of their files. `count` counts the documents of a page address."""

    def document_of(page: str) -> Callable[[Request], Awaitable[Response]]:
        async def document(_: Request) -> Response:
            count(page)
            return Response(pages.index, 200, DOCUMENT_HEADERS, "text/html")

        return document

    async def file(request: Request) -> Response:
        found = pages.files.get(request.path_params["path"])
        return _no_such_file() if found is None else _file_reply(request, found)

    return [
        *(PageRoute(path, document_of(path), methods=list(METHODS), include_in_schema=False) for path in PAGES),
        Route("/ui/{path:path}", file, methods=list(METHODS), include_in_schema=False),
    ]


def _accepts_html(scope: Scope) -> bool:
    accepted = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept")
    kinds = (part.partition(";")[0].strip().lower() for part in accepted.split(","))
    return any(kind in ("text/html", "application/xhtml+xml") for kind in kinds)


def _file_reply(request: Request, found: PageFile) -> Response:
    headers = {**FILE_HEADERS, "Cache-Control": found.cache_control, "ETag": found.etag}
    known = {tag.strip() for tag in request.headers.get("if-none-match", "").split(",")}
    if known & {found.etag, found.etag.removeprefix("W/"), "*"}:
        return Response(None, 304, headers)
    if found.compressed is not None and accepts_gzip(request):
        return Response(found.compressed, 200, {**headers, "Content-Encoding": "gzip"}, found.media_type)
    return Response(found.content, 200, headers, found.media_type)


def _no_such_file() -> Response:
    """Return the reply for a file of no build, or of another one: not HTML, which would be read as a script."""
    return PlainTextResponse("There is no such file.\n", 404, {**FILE_HEADERS, "Cache-Control": "no-store"})
