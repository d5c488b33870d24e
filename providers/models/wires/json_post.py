"""Sends one POST with JSON, once, to a vendor that needs no SDK, and converts failures to ProviderError.

    async with post_json(spec, url, headers, body, limits) as response:
        ...  # a response with status 2xx and an unread body

Uses the same connections, timeouts and error codes as requests of the SDK.
"""

import ssl
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from canvas.errors import AddressRefused
from providers.errors import ErrorCode, ProviderError, provider_error, retry_after
from providers.models.transport.clients import borrow_http_client
from providers.models.types.chat import ModelSpec
from providers.models.wires.event_stream import parse_json
from providers.models.wires.openai_responses import field_of, message_in
from providers.models.wires.openai_sdk import HeaderObserver, RequestLimits, host_of

if TYPE_CHECKING:
    import httpx2

_MAX_ERROR_BYTES = 64 * 1024  # bytes of an error response that are read
_RETRY_INFO = "google.rpc.RetryInfo"


@asynccontextmanager
async def post_json(
    spec: ModelSpec,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    limits: RequestLimits,
    *,
    observe_headers: HeaderObserver | None = None,
) -> AsyncGenerator["httpx2.Response"]:
    """Send a request and return the response with its body unread.

    Raises ProviderError if the request fails, or if the connection breaks while the caller reads the body.
    `observe_headers` is called with the headers of the response.
    """
    import httpx2

    seconds = limits.request_timeout.total_seconds()
    timeout = httpx2.Timeout(seconds, connect=min(seconds, limits.connect_timeout.total_seconds()))
    named = {"content-type": "application/json", **headers}
    async with borrow_http_client(spec, limits.hosts) as client:
        with connection_errors(url):
            request = client.build_request("POST", url, content=body, headers=named, timeout=timeout)
            response = await client.send(request, stream=True)
            try:
                if not response.is_success:
                    raise error_from_response(response.status_code, response.headers, await _read_beginning(response))
                if observe_headers is not None:
                    observe_headers(response.headers)
                yield response
            finally:
                await response.aclose()


@contextmanager
def connection_errors(url: str | None) -> Generator[None]:
    """Convert errors of a connection to ProviderError; its text names scheme, host and port of the URL."""
    import httpx2

    try:
        yield
    except AddressRefused as refused:
        raise ProviderError(ErrorCode.MODEL_ERROR, f"{host_of(url)}: {refused.message}") from refused
    except httpx2.TimeoutException as problem:
        raise ProviderError(ErrorCode.TIMEOUT, f"{host_of(url)} did not answer in time.") from problem
    except (httpx2.RequestError, httpx2.InvalidURL, ssl.SSLError) as problem:
        detail = f"{host_of(url)}: {str(problem) or type(problem).__name__}"
        raise ProviderError(ErrorCode.CONNECTION_ERROR, detail) from problem


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON bytes; values that JSON cannot represent, such as lone surrogates, are escaped."""
    try:
        return orjson.dumps(body)
    except TypeError:
        import json

        return json.dumps(body, ensure_ascii=True, default=str).encode()


async def read_json(response: "httpx2.Response") -> Any:
    """Read a whole reply and return its JSON; None if its content type is not JSON. Raises ProviderError."""
    content = await response.aread()
    kind = response.headers.get("content-type", "json").partition(";")[0].strip().lower()
    return parse_json(content) if kind.endswith("json") else None


def error_from_response(status: int, headers: Mapping[str, str], content: bytes) -> ProviderError:
    """Return the error of a response whose status is not 2xx."""
    body: Any = None
    with suppress(ProviderError):
        body = parse_json(content)
    body = body[0] if isinstance(body, list) and body else body  # Gemini's error for a request with a list as answer
    error = field_of(body, "error")
    source = error if isinstance(error, dict) else body
    names = [field_of(source, name) for name in ("type", "status", "__type", "code")]
    names += [field_of(detail, "reason") for detail in _details(source)]
    kind = headers.get("x-amzn-errortype", "").partition(":")[0]
    seconds = retry_after(headers, datetime.now(UTC))
    return provider_error(
        message_in(body) or field_of(body, "Message") or content.decode(errors="replace") or f"HTTP {status}",
        status=status,
        names=[*names, kind],
        retry_after=_retry_delay(source) if seconds is None else seconds,
    )


async def _read_beginning(response: "httpx2.Response") -> bytes:
    parts: list[bytes] = []
    async for part in response.aiter_bytes():
        parts.append(part)
        if sum(map(len, parts)) > _MAX_ERROR_BYTES:
            break
    return b"".join(parts)


def _retry_delay(error: Any) -> float | None:
    """Return the seconds to wait from the details of a Google error ("34.5s"), if there are any."""
    for detail in _details(error):
        delay = field_of(detail, "retryDelay")
        if str(field_of(detail, "@type")).endswith(_RETRY_INFO) and isinstance(delay, str):
            with suppress(ValueError):
                return max(0.0, float(delay.removesuffix("s")))
    return None


def _details(error: Any) -> list[Any]:
    details = field_of(error, "details")
    return details if isinstance(details, list) else []
