"""Turn exceptions into HTTP replies. Only this module chooses statuses and codes.

Every exception becomes a Failure, which each reply style words in its own way (api/http/reply_styles.py). RAGFlow's
routes answer 200 with a code in an envelope, unless the client asks for real statuses with the header
`X-Http-Status: strict`. An invalid query, body or canvas is a 400 in every case (of datasets and documents for strict
clients only), and a body that is too large is a 413, in the same envelope. Easel's own routes, and those for OpenAI
clients, answer with real statuses. The reply about an internal error has a request id and no details.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.edge import request_id_of
from api.http.replies import json_reply
from api.http.reply_styles import EnvelopeRoute, Style, is_share_link_route, style_of
from api.http.validation_words import describe_errors
from canvas.errors import Conflict, ExecutorError, InvalidRequest, NotAllowed, NotFound, ValueGone
from store.db.db_errors import is_outage, outage_reason

log = structlog.get_logger()

ARGUMENT, DATA, FORBIDDEN, CONNECTION, AUTHENTICATION = 101, 102, 103, 105, 109
INTERNAL, UNAUTHORIZED, ABSENT, CONFLICT, SERVER = 100, 401, 404, 409, 500

_STRICT = {
    ARGUMENT: 400,
    DATA: 400,
    AUTHENTICATION: 403,
    ABSENT: 404,
    FORBIDDEN: 403,
    CONFLICT: 409,
    INTERNAL: 500,
    SERVER: 500,
    CONNECTION: 503,
}

_CODES = {FORBIDDEN: "not_allowed", CONFLICT: "conflict", INTERNAL: "internal", SERVER: "internal"}
"""Easel's code for each of RAGFlow's codes; all others are `invalid_request`."""

_OPENAI_CODES = {"unauthorized": "invalid_api_key", "internal": "server_error"}
_OPENAI_TYPES = {"waiting_for_user": "waiting_for_user", "model_error": "model_error"}
_OPENAI_TYPES_OF_STATUSES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

NO_ACCESS = "Make sure you have permission to access the agent."


class RequestRefused(Exception):
    """A refusal with RAGFlow's message. `status`: the status in every case; `is_absent`: 404 for strict clients."""

    def __init__(
        self, code: int, message: str, *, data: Any = None, status: int | None = None, is_absent: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.status = status
        self.is_absent = is_absent


class NoAccess(RequestRefused):
    """The caller has no such canvas. The reply is the same for a missing canvas and for one of another tenant."""

    def __init__(self) -> None:
        super().__init__(FORBIDDEN, NO_ACCESS, data=False)


class UnknownParameter(InvalidRequest):
    """A request has an unknown field or query parameter; `field` names it."""

    code = "unknown_parameter"


class UnsupportedParameter(InvalidRequest):
    """A request has a parameter that would change the answer and is not supported; `field` names it."""

    code = "unsupported_parameter"


class RefusedAccess(NotAllowed):
    """A refusal that is a 403 in every reply style."""


class MissingScope(RefusedAccess):
    """The caller's token does not have the scope that the route needs, which `details` names."""

    code = "missing_scope"


class ReadOnly(MissingScope):
    """The caller may read and change nothing."""

    code = "read_only"


class CrossSiteRequest(RefusedAccess):
    """A request with a cookie does not come from the pages of this API."""

    code = "cross_site"


class DraftChanged(Conflict):
    """The draft is not the one that `If-Match` names. `details` says which it is, and when and by whom it was saved."""

    code = "draft_changed"


class PreconditionRequired(InvalidRequest):
    """A request that changes a draft does not say which draft its caller has seen."""

    code = "precondition_required"


class HasErrors(Conflict):
    """A draft cannot be published. `details` lists the findings."""

    code = "has_errors"


class NotShared(NotFound):
    """A visitor of a share asks for something else than the run that it opens: a 404 in every reply style."""


class NotOfAgent(NotFound):
    """A token of one agent is used for something else: a 404 in every reply style, as for what does not exist."""


class TooManyTries(InvalidRequest):
    """An address tries too often. `details` has `retry_after` in seconds."""

    code = "too_many_tries"


class TooManyRequests(TooManyTries):
    """A token sends too many requests, or has too many open streams."""

    code = "too_many_requests"


class UnknownSecret(InvalidRequest):
    """A secret with which a browser signs in is unknown, or over."""

    code = "unknown"


class RepeatedRequest(Exception):
    """An earlier request with the same idempotency key got this reply (api/requests/idempotency.py)."""

    def __init__(self, reply: Response) -> None:
        super().__init__("The request was executed before.")
        self.reply = reply


UNKNOWN_TOKEN = "Authorization is not valid!"  # noqa: S105 (a message)
RAGFLOW_UNAUTHORIZED = "<Unauthorized '401: Unauthorized'>"  # RAGFlow's words, which its clients compare


class Unauthorized(Exception):
    """The request has no token, or a token that is unknown, revoked or expired."""

    def __init__(self, message: str = UNKNOWN_TOKEN, challenge: str = "Bearer") -> None:
        """Refuse with a message, and with the `WWW-Authenticate` header that says how to sign in."""
        super().__init__(message)
        self.message, self.challenge = message, challenge


_ENDS = {
    None: "The token of this stream was revoked or has expired.",
    "signed_out": "The sign-in of this stream has ended.",
    "share_revoked": "The share of this stream was revoked or has expired.",
}


class TokenEnded(Unauthorized):
    """The token, sign-in or share of a stream has ended while the stream was open.

    `reason`: `signed_out` or `share_revoked`; None for a token.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(_ENDS[reason])
        self.reason = reason

    @property
    def body(self) -> dict[str, Any]:
        """Return the last frame of the stream."""
        reason = {"reason": self.reason} if self.reason is not None else {}
        return {"code": UNAUTHORIZED, "message": self.message, "data": False, **reason}


def no_access() -> RequestRefused:
    """Return the refusal of a canvas that the caller does not have."""
    return NoAccess()


def not_found(message: str) -> RequestRefused:
    """Return the refusal of something that this caller does not have."""
    return RequestRefused(DATA, message, is_absent=True)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error with what each reply style needs.

    `status` is the real HTTP status. `wire_status` is the status of RAGFlow's envelope for all clients. Without it, the
    envelope has status 200, or `strict_status` for clients that ask for real statuses.
    """

    status: int
    code: str  # stable, for machines
    message: str
    wire_code: int
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])
    data: Any = None  # of RAGFlow's envelope
    wire_status: int | None = None
    strict_status: int | None = None  # None: `status`
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class RequestedRun:
    """The run that a request starts. An error may come before or after the run is accepted."""

    run_id: str
    session_id: str | None = None
    is_accepted: bool = False


def add_handlers(app: FastAPI) -> None:
    """Register the handlers that turn exceptions into replies."""
    app.add_exception_handler(RequestRefused, _handle_refusal)
    app.add_exception_handler(Unauthorized, _handle_unauthorized)
    app.add_exception_handler(RepeatedRequest, _handle_repeat)
    app.add_exception_handler(ExecutorError, _handle_executor_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_parameters)
    app.add_exception_handler(HTTPException, _handle_http_error)
    for away in (DBAPIError, PoolTimeout):
        app.add_exception_handler(away, _handle_database_error)
    app.add_exception_handler(DataError, _handle_unstorable)
    app.add_middleware(_ErrorMiddleware)


class _ErrorMiddleware:
    """Middleware that answers unexpected errors. A reply that has begun is cut off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def note_begin_and_send(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, note_begin_and_send)
        except Exception as error:
            if has_begun or scope["type"] != "http":
                raise
            await _handle_unexpected(Request(scope), error)(scope, receive, send)


# -- from exceptions to failures --------------------------------------------------------------------------------------


def _handle_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestRefused)
    if isinstance(error, NoAccess) and style_of(request) is Style.OPENAI:  # OpenAI clients call an agent a model
        return failure_reply(request, Failure(404, "model_not_found", error.message, error.code, {"field": "model"}))
    real = 404 if error.is_absent else _STRICT[error.code]
    failure = Failure(
        status=error.status or (404 if isinstance(error, NoAccess) else real),
        code="not_found"
        if error.is_absent or isinstance(error, NoAccess)
        else _CODES.get(error.code, "invalid_request"),
        message=error.message,
        wire_code=error.code,
        details=error.data if isinstance(error.data, dict) else {},
        data=error.data,
        wire_status=error.status or (real if error.code == ARGUMENT else None),
        strict_status=real,
    )
    return failure_reply(request, failure)


def _handle_repeat(_: Request, error: Exception) -> Response:
    assert isinstance(error, RepeatedRequest)
    return error.reply


def _handle_unauthorized(request: Request, error: Exception) -> Response:
    assert isinstance(error, Unauthorized)
    headers = {"WWW-Authenticate": error.challenge}
    if is_share_link_route(request):
        return failure_reply(request, Failure(401, "unauthorized", error.message, DATA, headers=headers))
    is_ragflows = error.message == UNKNOWN_TOKEN and style_of(request) is Style.RAGFLOW
    message = RAGFLOW_UNAUTHORIZED if is_ragflows else error.message
    return failure_reply(request, Failure(401, "unauthorized", message, UNAUTHORIZED, wire_status=401, headers=headers))


def _handle_executor_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ExecutorError)
    if isinstance(error, ValueGone):  # its message is for the caller too, since the value cannot be recovered
        log.error("value_gone", error=error.message)
        return failure_reply(request, Failure(500, error.code, error.message, SERVER))
    if not isinstance(error, InvalidRequest):
        return _handle_unexpected(request, error)
    return failure_reply(request, _failure_of(error))


def _failure_of(error: InvalidRequest) -> Failure:
    details = dict(error.details)
    match error:
        case NotShared() | NotOfAgent():
            return Failure(404, error.code, error.message, DATA, details, wire_status=404)
        case NotFound():
            return Failure(404, error.code, error.message, DATA, details)
        case DraftChanged():
            return Failure(412, error.code, error.message, CONFLICT, details, data=details, wire_status=412)
        case PreconditionRequired():
            return Failure(428, error.code, error.message, ARGUMENT, details, wire_status=428)
        case Conflict() if "session_id" in details:
            return Failure(409, error.code, error.message, FORBIDDEN, details, data=details, wire_status=409)
        case Conflict():
            return Failure(409, error.code, error.message, CONFLICT, details, wire_status=409)
        case RefusedAccess():
            return Failure(403, error.code, error.message, FORBIDDEN, details, data=False, wire_status=403)
        case UnknownSecret():
            return Failure(401, error.code, error.message, UNAUTHORIZED, details, wire_status=401)
        case TooManyTries():
            headers = {"Retry-After": str(details.get("retry_after", 1))}
            return Failure(429, error.code, error.message, ARGUMENT, details, wire_status=429, headers=headers)
        case NotAllowed():
            return Failure(403, error.code, error.message, FORBIDDEN, details, data=False)
        case _:
            found = details.get("findings")
            data = {"findings": found} if found else None
            return Failure(400, error.code, error.message, ARGUMENT, details, data=data, wire_status=400)


def _handle_invalid_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if is_envelope_route(request):
        return _handle_refusal(request, RequestRefused(ARGUMENT, describe_errors(error.errors(), skip=1)))
    first = error.errors()[0]
    where = ".".join(str(step) for step in first["loc"])
    details = {"field": str(first["loc"][-1])}
    return failure_reply(
        request, Failure(400, InvalidRequest.code, f"{where}: {first['msg']}", ARGUMENT, details, wire_status=400)
    )


def _handle_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    code = {404: "not_found", 405: "method_not_allowed"}.get(status, "invalid_request")
    message = f"{error.detail}: {request.url.path}"
    return failure_reply(
        request, Failure(status, code, message, status, wire_status=status, headers=error.headers or {})
    )


def _handle_database_error(request: Request, error: Exception) -> Response:
    if not is_outage(error):
        return _handle_unexpected(request, error)
    cause = outage_reason(error)
    log.warning("database_failed", cause=cause, error=str(error).splitlines()[0], path=request.url.path)
    message = f"The database {cause}. Try again."
    headers = {"Retry-After": "1"}
    return failure_reply(request, Failure(503, "unavailable", message, CONNECTION, wire_status=503, headers=headers))


def _handle_unstorable(request: Request, _: Exception) -> Response:
    return _handle_executor_error(request, InvalidRequest("A text or number of the request cannot be stored."))


def _handle_unexpected(request: Request, error: Exception) -> Response:
    request_id = request_id_of(request)
    log.error("request_failed", request_id=request_id, path=request.url.path, exc_info=error)
    message = f"An internal error occurred. Report it with the request id {request_id}."
    return failure_reply(request, Failure(500, "internal", message, INTERNAL, {"request_id": request_id}))


# -- from failures to replies -----------------------------------------------------------------------------------------


def failure_reply(request: Request, failure: Failure) -> Response:
    """Return the reply about a failure in the style of the request."""
    match style_of(request):
        case Style.OWN:
            body = {"code": failure.code, "message": failure.message, "details": failure.details}
            return json_reply(body, failure.status, failure.headers)
        case Style.OPENAI:
            return _openai(request, failure)
        case Style.RAGFLOW:
            body = {"code": failure.wire_code, "message": failure.message, "data": failure.data}
            real = failure.strict_status or failure.status
            needs_real = failure.status >= 500 and getattr(request.state, "uses_real_status_for_internal_errors", False)
            wire_status = failure.wire_status
            if is_envelope_route(request) and failure.status != UNAUTHORIZED:
                wire_status = None if wire_status in (400, 409) else wire_status
                body = {name: value for name, value in body.items() if value is not None}
            elif failure.wire_code == DATA:
                body = {name: value for name, value in body.items() if value is not None}
            status = wire_status or (real if needs_real or wants_real_statuses(request) else 200)
            return json_reply(body, status, failure.headers)


def is_envelope_route(request: Request) -> bool:
    """Return whether a request is one of datasets or documents, which refuse with status 200 and without `data`."""
    return isinstance(request.scope.get("route"), EnvelopeRoute)


def use_real_status_for_internal_errors(request: Request) -> None:
    """Answer internal errors of this request with a real status, since its sender takes a 200 for a delivery."""
    request.state.uses_real_status_for_internal_errors = True


def set_requested_run(request: Request, run: RequestedRun) -> None:
    """Record which run a request starts, for replies about later errors."""
    request.state.run = run


def _openai(request: Request, failure: Failure) -> Response:
    """Return an error in the format of OpenAI's API.

    OpenAI clients repeat a request after 409 and 5xx. If it may have started a run, a header tells them not to, since
    a second run would repeat its actions.
    """
    run: RequestedRun | None = getattr(request.state, "run", None)
    error: dict[str, Any] = {
        "message": failure.message,
        "type": _openai_type(failure),
        "param": failure.details.get("field"),
        "code": _OPENAI_CODES.get(failure.code, failure.code),
        **{name: value for name, value in failure.details.items() if name != "field"},
    }
    headers = dict(failure.headers)
    if run is not None and (run.is_accepted or failure.status >= 500):
        headers |= {"x-should-retry": "false", "X-Run-Id": run.run_id}
        headers.pop("Retry-After", None)
        error |= {"run_id": run.run_id}
        if run.session_id is not None:
            headers["X-Session-Id"] = run.session_id
            error["session_id"] = run.session_id
    return json_reply({"error": error}, failure.status, headers)


def _openai_type(failure: Failure) -> str:
    known = _OPENAI_TYPES.get(failure.code)
    if known is not None:
        return known
    if failure.status >= 500:
        return "server_error"
    return _OPENAI_TYPES_OF_STATUSES.get(failure.status, "invalid_request_error")


def wants_real_statuses(request: Request) -> bool:
    """Return whether a client of RAGFlow's routes asks for real HTTP statuses."""
    return request.headers.get("x-http-status", "").lower() == "strict"


def strict_status(request: Request, code: int) -> int:
    """Return the HTTP status for a RAGFlow code: 200, or the real one for clients that ask for it."""
    return _STRICT.get(code, 200) if wants_real_statuses(request) else 200
