"""One request through the SDK's client, and what its failures mean.

The SDK is asked by its door for any path. Its type of error and the HTTP status tell what went wrong; the words of a
message are looked at last (`providers/errors.py`).
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from canvas.errors import AddressRefused
from providers.errors import Code, ProviderError, failure, retry_after
from providers.models.transport.clients import borrow_client
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.types.chat import ModelSpec
from providers.models.wires.event_stream import json_of
from providers.models.wires.openai_responses import field_of, message_in

if TYPE_CHECKING:
    import httpx2
    from openai import APIError, Timeout


HeaderObserver: TypeAlias = Callable[[Mapping[str, str]], None]
"""Who is told the headers of an answer, in which vendors say what is left of a limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long one request may take (LLM_TIMEOUT_SECONDS): until it begins to answer, and between two pieces; and where
    it may lead."""

    request_timeout: timedelta = timedelta(seconds=600)
    connect_timeout: timedelta = timedelta(seconds=10)
    hosts: ModelAddressPolicy = field(default_factory=ModelAddressPolicy)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that goes along with a request."""

    field: str
    name: str
    data: bytes
    mime_type: str


async def ask(
    spec: ModelSpec,
    path: str,
    body: dict[str, Any],
    limits: Limits,
    *,
    is_azure: bool = False,
    upload: Upload | None = None,
    hears: HeaderObserver | None = None,
) -> "httpx2.Response":
    """Send one request, once; its whole answer. `path` may be a URL of its own. Raises CallFailed."""
    import httpx2

    options: Any = {"timeout": timeout_of(limits)}
    files = None
    if upload is not None:
        files = [(upload.field, (upload.name, upload.data, upload.mime_type))]
        options["headers"] = {"Content-Type": "multipart/form-data"}  # the SDK adds where one part ends
    async with borrow_client(spec, limits.hosts, is_azure=is_azure) as client:
        try:
            reply = await client.post(path, cast_to=httpx2.Response, body=body, files=files, options=options)
        except request_errors() as problem:
            raise failure_of(problem, spec.base_url) from problem
    if hears is not None:
        hears(reply.headers)
    return reply


def answer_of(reply: "httpx2.Response") -> Any:
    """The JSON of a whole reply; None for a page that was never meant to be one. Raises CallFailed."""
    kind = reply.headers.get("content-type", "json").partition(";")[0].strip().lower()
    return json_of(reply.content) if kind.endswith("json") else None


def timeout_of(limits: Limits) -> "Timeout":
    """The limits as the SDK takes them."""
    from openai import Timeout

    seconds = limits.request_timeout.total_seconds()
    return Timeout(seconds, connect=min(seconds, limits.connect_timeout.total_seconds()))


def request_errors() -> tuple[type[Exception], ...]:
    """What a request, or the stream it opened, raises when the provider or the way to it fails."""
    import httpx2

    return (_api_error(), httpx2.RequestError, ssl.SSLError, AddressRefused)


def failure_of(problem: Exception, base_url: str | None) -> ProviderError:
    """What an error of the SDK, or of the stream it opened, means. Type and status speak first, words last."""
    import httpx2
    from openai import APIConnectionError, APIError, APIStatusError, APITimeoutError

    match problem:
        case APITimeoutError() | httpx2.TimeoutException():
            return ProviderError(Code.TIMEOUT, f"{host_of(base_url)} did not answer in time.")
        case AddressRefused():
            return ProviderError(Code.MODEL_ERROR, f"{host_of(base_url)}: {problem.message}")
        case APIConnectionError() | httpx2.RequestError() | ssl.SSLError():
            cause = problem.__cause__ or problem
            return ProviderError(Code.CONNECTION_ERROR, f"{host_of(base_url)}: {str(cause) or type(cause).__name__}")
        case APIStatusError() if problem.response.is_redirect:
            told = f"{host_of(base_url)} redirects, and redirects are not followed. Set the base URL that it means."
            return ProviderError(Code.MODEL_ERROR, told)
        case APIStatusError():
            return failure(
                message_in(problem.body) or problem.message,
                status=problem.status_code,
                names=_names(problem.body),
                retry_after=retry_after(problem.response.headers, datetime.now(UTC)),
            )
        case APIError():
            return failure(problem.message, names=_names(problem.body))
        case _:
            raise AssertionError("no error of a provider") from problem


def host_of(base_url: str | None) -> str:
    """Where requests go, without what a URL may hold beside it (a password, a query)."""
    parts = urlsplit(base_url or "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _api_error() -> type["APIError"]:
    from openai import APIError

    return APIError


def _names(body: object) -> list[object]:
    inner = field_of(body, "error")
    source = inner if isinstance(inner, dict) else body
    return [field_of(source, "code"), field_of(source, "type")]
