"""Sends one request with the client of the `openai` SDK, and converts its errors to ProviderError.

Requests use the generic `post` of the SDK. Errors are classified by the SDK's error type and the HTTP status, and by
the words of the message only if there is nothing else (`providers/errors.py`).
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from canvas.errors import AddressRefused
from providers.errors import ErrorCode, ProviderError, provider_error, retry_after
from providers.models.transport.clients import borrow_client
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.types.chat import ModelSpec
from providers.models.wires.event_stream import parse_json
from providers.models.wires.openai_responses import field_of, message_in

if TYPE_CHECKING:
    import httpx2
    from openai import APIError, Timeout


HeaderObserver: TypeAlias = Callable[[Mapping[str, str]], None]
"""Receives the headers of a response, in which vendors report what is left of a rate limit."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Timeouts of one request, and the addresses that it may use.

    `request_timeout` (LLM_TIMEOUT_SECONDS) applies until the answer begins, and between two parts of it.
    """

    request_timeout: timedelta = timedelta(seconds=600)
    connect_timeout: timedelta = timedelta(seconds=10)
    hosts: ModelAddressPolicy = field(default_factory=ModelAddressPolicy)


@dataclass(frozen=True, slots=True)
class FileUpload:
    """A file that is sent with a request."""

    field: str
    name: str
    data: bytes
    mime_type: str


async def send_request(
    spec: ModelSpec,
    path: str,
    body: dict[str, Any],
    limits: RequestLimits,
    *,
    is_azure: bool = False,
    upload: FileUpload | None = None,
    observe_headers: HeaderObserver | None = None,
) -> "httpx2.Response":
    """Send one request, once, and return the response. `path` may be a whole URL. Raises ProviderError."""
    import httpx2

    options: Any = {"timeout": timeout_of(limits)}
    files = None
    if upload is not None:
        files = [(upload.field, (upload.name, upload.data, upload.mime_type))]
        options["headers"] = {"Content-Type": "multipart/form-data"}  # the SDK adds the boundary
    async with borrow_client(spec, limits.hosts, is_azure=is_azure) as client:
        try:
            reply = await client.post(path, cast_to=httpx2.Response, body=body, files=files, options=options)
        except request_errors() as problem:
            raise convert_error(problem, spec.base_url) from problem
    if observe_headers is not None:
        observe_headers(reply.headers)
    return reply


def read_answer(reply: "httpx2.Response") -> Any:
    """Return the JSON of a whole reply; None if its content type is not JSON. Raises ProviderError."""
    kind = reply.headers.get("content-type", "json").partition(";")[0].strip().lower()
    return parse_json(reply.content) if kind.endswith("json") else None


def timeout_of(limits: RequestLimits) -> "Timeout":
    """Return the timeouts as a value of the SDK."""
    from openai import Timeout

    seconds = limits.request_timeout.total_seconds()
    return Timeout(seconds, connect=min(seconds, limits.connect_timeout.total_seconds()))


def request_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a request or its stream raises if the provider or the connection fails."""
    import httpx2

    return (_api_error(), httpx2.RequestError, ssl.SSLError, AddressRefused)


def convert_error(problem: Exception, base_url: str | None) -> ProviderError:
    """Convert an error of the SDK, or of the stream it opened; type and status come before the words of the message."""
    import httpx2
    from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

    match problem:
        case APITimeoutError() | httpx2.TimeoutException():
            return ProviderError(ErrorCode.TIMEOUT, f"{host_of(base_url)} did not answer in time.")
        case AddressRefused():
            return ProviderError(ErrorCode.MODEL_ERROR, f"{host_of(base_url)}: {problem.message}")
        case APIConnectionError() | httpx2.RequestError() | ssl.SSLError():
            cause = problem.__cause__ or problem
            return ProviderError(
                ErrorCode.CONNECTION_ERROR, f"{host_of(base_url)}: {str(cause) or type(cause).__name__}"
            )
        case APIStatusError() if problem.response.is_redirect:
            detail = (
                f"{host_of(base_url)} redirects, and redirects are not followed. Set the base URL that it redirects to."
            )
            return ProviderError(ErrorCode.MODEL_ERROR, detail)
        case APIStatusError():
            return provider_error(
                message_in(problem.body) or problem.message,
                status=problem.status_code,
                names=_names(problem.body),
                retry_after=retry_after(problem.response.headers, datetime.now(UTC)),
            )
        case APIError():
            return provider_error(problem.message, names=_names(problem.body))
        case _:
            raise AssertionError("not an error of a provider") from problem


def host_of(base_url: str | None) -> str:
    """Return scheme, host and port of a URL, without a password or query."""
    parts = urlsplit(base_url or "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _api_error() -> type["APIError"]:
    from openai import APIError

    return APIError


def _names(body: object) -> list[object]:
    inner = field_of(body, "error")
    source = inner if isinstance(inner, dict) else body
    return [field_of(source, "code"), field_of(source, "type")]
