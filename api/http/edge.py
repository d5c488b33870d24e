"""What every reply of the API has: the id of its request, headers about limits, and headers for other origins.

A request is named by its `X-Request-Id`, else by the trace id of its `traceparent`, else by an id that is made here.
The reply repeats the name, and every log line that is written for the request has it as `request_id`, beside `trace_id`
if the request has one.
"""

import re
from collections.abc import Sequence
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HEADERS = "easel.reply_headers"  # in the scope of a request
_ID = "easel.request_id"

ALLOWED_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
ALLOWED_HEADERS = (
    "Accept", "Authorization", "Content-Type", "Idempotency-Key", "If-Match", "If-None-Match", "If-Range",
    "Last-Event-ID", "Mcp-Protocol-Version", "Mcp-Session-Id", "Prefer", "Range", "traceparent", "tracestate",
    "X-Cancel-On-Disconnect", "X-Http-Status", "X-Request-Id",
)  # fmt: skip
EXPOSED_HEADERS = (
    "Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Location", "RateLimit-Limit",
    "RateLimit-Remaining", "RateLimit-Reset", "Retry-After", "X-Ignored-Parameters", "X-Request-Id", "X-Run-Id",
    "X-Session-Id", "traceparent",
)  # fmt: skip
PREFLIGHT_SECONDS = 600


class RequestIds:
    """Middleware that names requests, in replies and in logs."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        traceparent = headers.get("traceparent", "")
        traced = _TRACEPARENT.fullmatch(traceparent)
        written = headers.get("x-request-id", "")
        fields = {"trace_id": traced[1]} if traced else {}
        request_id = written if _REQUEST_ID.fullmatch(written) else fields.get("trace_id") or uuid4().hex
        added = {"X-Request-Id": request_id} | ({"traceparent": traceparent} if traced else {})
        scope[_ID], scope[_HEADERS] = request_id, added

        async def add_and_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply = MutableHeaders(scope=message)
                for name, value in added.items():
                    reply[name] = value
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id, **fields):
            await self._app(scope, receive, add_and_send)


def request_id_of(request: Request) -> str:
    """Return the id of a request."""
    found: str | None = request.scope.get(_ID)
    return found or uuid4().hex


def add_reply_header(request: Request, name: str, value: str) -> None:
    """Add a header to the reply of a request, whatever it will be."""
    request.scope.setdefault(_HEADERS, {})[name] = value


class CrossOrigin:
    """Middleware that lets pages of other origins call the API with a token (CORS). Our own pages are left out.

    Cookies are never allowed: a page of another origin has a token, or a share link.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str], paths: tuple[str, ...]) -> None:
        self._app, self._paths = app, paths
        self._api = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=ALLOWED_METHODS,
            allow_headers=ALLOWED_HEADERS,
            expose_headers=EXPOSED_HEADERS,
            max_age=PREFLIGHT_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = str(scope.get("path", "")).removeprefix(scope.get("root_path", ""))
        await (self._api if path.startswith(self._paths) else self._app)(scope, receive, send)
