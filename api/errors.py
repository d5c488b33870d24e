"""From what went wrong to an HTTP reply. Statuses and codes are chosen here alone.

RAGFlow's routes answer 200 with a code in an envelope, unless the client asks for real statuses with the header
`X-Http-Status: strict` (http-api 1.3). A body or canvas that makes no sense is a 400 in every case, in the same
envelope. Our own routes, those about runs, answer with real statuses and
`{"code", "message", "details"}`. What is nobody's fault but ours carries a request id and no text.
"""

import re
from typing import Any
from uuid import uuid4

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.replies import json_reply
from canvas.errors import Conflict, ExecutorError, InvalidRequest, NotAllowed, NotFound, ValueGone
from store.outages import is_outage, trouble

log = structlog.get_logger()

_OURS = re.compile(r"/api/v1/(runs|agents/[^/]+/runs)(/|$)")

ARGUMENT, DATA, FORBIDDEN, CONNECTION = 101, 102, 103, 105
INTERNAL, UNAUTHORIZED, CONFLICT, SERVER = 100, 401, 409, 500

_STRICT = {ARGUMENT: 400, DATA: 400, FORBIDDEN: 403, CONFLICT: 409, INTERNAL: 500, SERVER: 500, CONNECTION: 503}

NO_ACCESS = "Make sure you have permission to access the agent."


class Refused(Exception):
    """A reply in RAGFlow's words. `status`: an HTTP status that holds in every case; `is_absent`: 404 where strict."""

    def __init__(
        self, code: int, message: str, *, data: Any = None, status: int | None = None, is_absent: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        self.is_absent = is_absent


class Answered(Exception):
    """A request with the same idempotency key was carried out before, and got this reply (api/once.py)."""

    def __init__(self, reply: Response) -> None:
        super().__init__("The request was carried out before.")
        self.reply = reply


UNKNOWN_TOKEN = "Authorization is not valid!"  # noqa: S105 (what is said of one)


class Unauthorized(Exception):
    """Nobody we know is asking, or with a token that opens nothing any more."""

    def __init__(self, message: str = UNKNOWN_TOKEN) -> None:
        super().__init__(message)
        self.message = message


class TokenEnded(Unauthorized):
    """The token of a stream was revoked or has expired while the stream was open."""

    def __init__(self) -> None:
        super().__init__("The token of this stream was revoked or has expired.")

    @property
    def body(self) -> dict[str, Any]:
        """The last frame of the stream."""
        return {"code": UNAUTHORIZED, "message": self.message, "data": False}


def no_access() -> Refused:
    """The caller has no such canvas: missing and foreign ones answer alike."""
    return Refused(FORBIDDEN, NO_ACCESS, data=False)


def absent(message: str) -> Refused:
    """There is no such thing for this caller."""
    return Refused(DATA, message, is_absent=True)


def add_handlers(app: FastAPI) -> None:
    """Give every exception its reply."""
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(Unauthorized, _unauthorized)
    app.add_exception_handler(Answered, _answered)
    app.add_exception_handler(ExecutorError, _executor_error)
    app.add_exception_handler(RequestValidationError, _invalid_parameters)
    app.add_exception_handler(HTTPException, _http)
    for away in (DBAPIError, PoolTimeout):
        app.add_exception_handler(away, _database)
    app.add_exception_handler(DataError, _unstorable)
    app.add_middleware(_Guard)


class _Guard:
    """Answers for what nobody has foreseen; a reply that has begun is cut."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def watched(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if has_begun or scope["type"] != "http":
                raise
            await _unexpected(Request(scope), error)(scope, receive, send)


def is_ours(request: Request) -> bool:
    """Whether the route answers errors in our own shape."""
    return _OURS.match(request.url.path) is not None


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    if is_ours(request):
        status = error.status or (404 if error.is_absent or error.message == NO_ACCESS else _STRICT[error.code])
        code = "not_found" if status == 404 else "invalid_request"
        return _own(status, code, error.message, error.data if isinstance(error.data, dict) else {})
    return _wire(request, error)


def _answered(_: Request, error: Exception) -> Response:
    assert isinstance(error, Answered)
    return error.reply


def _unauthorized(_: Request, error: Exception) -> Response:
    assert isinstance(error, Unauthorized)
    body = {"code": UNAUTHORIZED, "message": error.message, "data": None}
    return json_reply(body, 401, {"WWW-Authenticate": "Bearer"})


def _executor_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ExecutorError)
    if isinstance(error, ValueGone):  # what it says is for the caller as well: nothing here will bring the value back
        log.error("value_gone", error=error.message)
        if is_ours(request):
            return _own(500, error.code, error.message, {})
        return _refused(request, Refused(SERVER, error.message))
    if not isinstance(error, InvalidRequest):
        return _unexpected(request, error)
    if is_ours(request):
        match error:
            case NotFound():
                status = 404
            case Conflict():
                status = 409
            case NotAllowed():
                status = 403
            case _:
                status = 400
        return _own(status, error.code, error.message, dict(error.details))
    match error:
        case NotFound():
            refused = absent(error.message)
        case Conflict() if "session_id" in error.details:
            refused = Refused(FORBIDDEN, error.message, data=dict(error.details), status=409)
        case Conflict():
            refused = Refused(CONFLICT, error.message, status=409)
        case NotAllowed():
            refused = Refused(FORBIDDEN, error.message, data=False)
        case _:
            found = error.details.get("findings")
            refused = Refused(ARGUMENT, error.message, data={"findings": found} if found else None, status=400)
    return _wire(request, refused)


def _invalid_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    message = f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
    if is_ours(request):
        return _own(400, InvalidRequest.code, message, {})
    return _wire(request, Refused(ARGUMENT, message))


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    body = {"code": error.status_code, "message": f"{error.detail}: {request.url.path}", "data": None}
    return json_reply(body, error.status_code, error.headers)


def _database(request: Request, error: Exception) -> Response:
    if not is_outage(error):
        return _unexpected(request, error)
    cause = trouble(error)
    log.warning("database_failed", cause=cause, error=str(error).splitlines()[0], path=request.url.path)
    message = f"The database {cause}. Try again."
    headers = {"Retry-After": "1"}
    if is_ours(request):
        return json_reply({"code": "unavailable", "message": message, "details": {}}, 503, headers)
    return json_reply({"code": CONNECTION, "message": message, "data": None}, 503, headers)


def _unstorable(request: Request, _: Exception) -> Response:
    return _executor_error(request, InvalidRequest("A text or number of the request cannot be stored."))


def _unexpected(request: Request, error: Exception) -> Response:
    request_id = uuid4().hex
    log.error("request_failed", request_id=request_id, path=request.url.path, exc_info=error)
    message = f"Something went wrong here. Name the request id {request_id} when you report it."
    if is_ours(request):
        return _own(500, "internal", message, {"request_id": request_id})
    return _wire(request, Refused(INTERNAL, message))


def _own(status: int, code: str, message: str, details: Any) -> Response:
    return json_reply({"code": code, "message": message, "details": details}, status)


def _wire(request: Request, refused: Refused) -> Response:
    body = {"code": refused.code, "message": refused.message, "data": refused.data}
    return json_reply(body, refused.status or strict_status(request, refused.code, is_absent=refused.is_absent))


def strict_status(request: Request, code: int, *, is_absent: bool = False) -> int:
    """The HTTP status of a code: 200, or the real one for clients that ask for it."""
    if request.headers.get("x-http-status", "").lower() != "strict":
        return 200
    return 404 if is_absent else _STRICT.get(code, 200)
