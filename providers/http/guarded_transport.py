"""A transport for libraries that make their own requests over httpx2, with the address checks of `HttpClient`.

    httpx2.AsyncClient(transport=http.transport(max_bytes), ...)

Host names are resolved, checked and pinned as in all our requests. A redirect is an error, because a library that
follows redirects would send its headers to the new address. Bodies other than event streams have a size limit. The
first error is stored in `failure`, because libraries often hide an exception that was raised in one of their tasks.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import httpcore2
import httpx2

from canvas.errors import ExecutorError, HttpFailed
from providers.http.redirects import REDIRECT_STATUSES, origin_of

SendRequest = Callable[[httpcore2.Request], Awaitable[httpcore2.Response]]
TranslateError = Callable[[str, Exception], Exception]

EVENT_STREAM = "text/event-stream"
_ACCEPT_ENCODING = b"accept-encoding"


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The transport of one httpx2 client. `handle` sends a request; `translate` turns its errors into ours."""

    def __init__(self, handle: SendRequest, translate: TranslateError, max_bytes: int) -> None:
        self._handle = handle
        self._translate = translate
        self._max_bytes = max_bytes
        self.failure: ExecutorError | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        place = origin_of(request.url)
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        sent = httpcore2.Request(
            request.method,
            httpcore2.URL(
                scheme=request.url.raw_scheme,
                host=request.url.raw_host,
                port=request.url.port,
                target=request.url.raw_path,
            ),
            headers=[
                *(each for each in request.headers.raw if each[0].lower() != _ACCEPT_ENCODING),
                (_ACCEPT_ENCODING, b"identity"),
            ],
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            answer = await self._handle(sent)
        except Exception as error:
            raise self._record_failure(self._translate(place, error)) from error
        if answer.status in REDIRECT_STATUSES:
            await answer.aclose()
            raise self._record_failure(
                HttpFailed(f"{place} redirects, and redirects are not followed. Use the address that it redirects to.")
            )
        return httpx2.Response(answer.status, headers=answer.headers, stream=self._body(answer, place))

    def _body(self, answer: httpcore2.Response, place: str) -> httpx2.AsyncByteStream:
        headers = {name.lower(): value.decode("latin-1") for name, value in answer.headers}
        if headers.get(b"content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise self._record_failure(
                HttpFailed(f"{place}: the answer is compressed, which the request did not allow.")
            )
        is_stream = headers.get(b"content-type", "").lower().startswith(EVENT_STREAM)
        return _LimitedBody(
            answer, place, None if is_stream else self._max_bytes, self._record_failure, self._translate
        )

    def _record_failure(self, error: Exception) -> Exception:
        if self.failure is None and isinstance(error, ExecutorError):
            self.failure = error
        return error


class _LimitedBody(httpx2.AsyncByteStream):
    """The body of a response, with a limit in bytes."""

    def __init__(
        self,
        answer: httpcore2.Response,
        place: str,
        max_bytes: int | None,
        record_failure: Callable[[Exception], Exception],
        translate: TranslateError,
    ) -> None:
        self._answer = answer
        self._place = place
        self._max_bytes = max_bytes
        self._record_failure = record_failure
        self._translate = translate

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        try:
            async for part in self._answer.aiter_stream():
                size += len(part)
                if self._max_bytes is not None and size > self._max_bytes:
                    raise HttpFailed(f"{self._place}: the answer is larger than {self._max_bytes:,} bytes.")
                yield part
        except Exception as error:
            raise self._record_failure(self._translate(self._place, error)) from error

    async def aclose(self) -> None:
        await self._answer.aclose()
