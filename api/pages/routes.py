"""Routes of the web pages: the document at each page address, and its files below `/ui/`.

A page address answers only a GET or HEAD that accepts HTML; every other request to it stays the 404 of the API.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

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
CHAT_PAGE = "/chat/{agent_id}"
"""The address of the chat of a share link. Its document may be shown in frames of other sites, if they are set."""

_POLICY = "; ".join(
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
        "frame-ancestors {ancestors}",
        "object-src 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types default",
    )
)
DOCUMENT_HEADERS = {
    "Content-Security-Policy": _POLICY.format(ancestors="'none'"),
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


def chat_headers(embedders: Sequence[str]) -> Mapping[str, str]:
    """Return the headers of the chat's document, which these origins may show in a frame; `*`: every site.

    X-Frame-Options knows no list, so it is left out where there is one.
    """
    if not embedders:
        return DOCUMENT_HEADERS
    others = {name: value for name, value in DOCUMENT_HEADERS.items() if name != "X-Frame-Options"}
    return {**others, "Content-Security-Policy": _POLICY.format(ancestors=" ".join(embedders))}


def page_routes(
    pages: PageFiles, count: Callable[[str], None] = lambda page: None, *, embedders: Sequence[str] = ()
) -> Sequence[BaseRoute]:
    """Return the routes of the pages and of their files. `count` counts the documents of a page address.

    `embedders`: the origins whose pages may show the chat in a frame.
    """

    def document_of(
        page: str, headers: Mapping[str, str] = DOCUMENT_HEADERS
    ) -> Callable[[Request], Awaitable[Response]]:
        async def document(_: Request) -> Response:
            count(page)
            return Response(pages.index, 200, headers, "text/html")

        return document

    async def file(request: Request) -> Response:
        found = pages.files.get(request.path_params["path"])
        return _no_such_file() if found is None else _file_reply(request, found)

    documents = {
        **{path: document_of(path) for path in PAGES},
        CHAT_PAGE: document_of(CHAT_PAGE, chat_headers(embedders)),
    }
    return [
        *(PageRoute(path, sent, methods=list(METHODS), include_in_schema=False) for path, sent in documents.items()),
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
