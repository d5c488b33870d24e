"""The only HTTP client for requests of canvases; implements `providers.interfaces.Http` and `StreamingHttp`.

    http = HttpClient(Guard.parse(allowed="searx.internal"))
    reply = await http.send(HttpCall("GET", "https://example.com", redirects=5))

A host name is resolved when a connection is opened, and the connection goes to an address that was checked; Host and
the TLS server name still contain the name. A pooled connection stays at its address. Trusted calls have a connection
pool of their own, so that other calls never use their connections. The client reads no environment variables, stores no
cookies and logs nothing.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import cast
from weakref import WeakKeyDictionary

import httpcore2
import httpx2

from canvas.errors import AddressRefused, AnswerTooLarge, HostUnknown, HttpFailed, ToolError
from providers import address_policy
from providers.address_policy import Guard, Resolve, resolve_checked
from providers.http.guarded_transport import GuardedTransport
from providers.http.redirects import (
    REDIRECT_STATUSES,
    HttpRequest,
    first_request,
    follow_redirect,
    mask_secrets,
    origin_of,
    parse_url,
)
from providers.interfaces import HttpCall, HttpResponse, StreamedResponse

BROWSER_USER_AGENT = (
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36"
)
"""The User-Agent of calls that are made `as_browser`."""
MAX_IDLE_CONNECTIONS = 32  # idle connections per event loop and pool
IDLE_TIMEOUT = 1.5  # servers close idle connections after 2 s or more; a close during a write would fail the call
FIRST_CONNECT_TIMEOUT = 4.0  # for each address of a host except the last, which may use the whole timeout
MAX_ADDRESSES = 4  # addresses of one host that are tried
MAX_ENCODINGS = 2  # nested encodings of one body; ordinary servers use one
YIELD_BYTES = 256 * 1024  # bytes decompressed at once after which the event loop may run other tasks

# compared by identity: this object is the default, a caller's own 15.0 is not
_DEFAULT_TIMEOUT = HttpCall("GET", "").timeout
_NETWORK_ERRORS = (
    httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.ProxyError,
    httpx2.DecodingError, OSError,
)  # fmt: skip


class HttpClient:
    """The HTTP client of a process, usable from each of its event loops.

    `timeout` is in seconds, for calls that set none. `user_agent` overrides the User-Agent of every request; without it
    requests name Easel and the `contact` of the deployment, or a browser if they are `as_browser`. `names_behind_proxy`
    False allows only IP addresses behind a proxy, for proxies whose network resolves names differently.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        timeout: float = _DEFAULT_TIMEOUT,
        user_agent: str | None = None,
        contact: str | None = None,
        names_behind_proxy: bool = True,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = address_policy.resolve_in_thread,
    ) -> None:
        self._guard = guard
        self._timeout = timeout
        self._user_agent = user_agent or default_user_agent(contact)
        self._browser_user_agent = user_agent or BROWSER_USER_AGENT
        self._names_behind_proxy = names_behind_proxy
        self._custom_tls = tls
        self._resolve = resolve
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, httpcore2.AsyncConnectionPool]] = (
            WeakKeyDictionary()
        )

    async def send(self, call: HttpCall) -> HttpResponse:
        """Send a request and return the response.

        Raises AddressRefused, and HttpFailed if no complete response came; its `retryable` says whether to try again.
        """
        hop = self._first_request(call)
        seconds = self._timeout if call.timeout is _DEFAULT_TIMEOUT else call.timeout
        try:
            async with asyncio.timeout(seconds):
                return await self._send_following(hop, call)
        except TimeoutError as error:
            raise HttpFailed(f"{hop.origin}: no complete answer within {seconds:g} seconds.", retryable=True) from error

    @asynccontextmanager
    async def stream(self, call: HttpCall) -> AsyncGenerator[StreamedResponse]:
        """Return the response without following redirects; `call.timeout` covers the whole body. Raises like `send`."""
        hop = self._first_request(call)
        callers_error: ToolError | None = None
        try:
            async with asyncio.timeout(call.timeout), self._open_response(hop, call.proxy, call.trusted) as response:
                try:
                    yield StreamedResponse(
                        response.status_code, dict(response.headers.items()), _stream_body(response, hop, call)
                    )
                except ToolError as error:  # raised in the caller's block, so not a failure of the connection
                    callers_error = error
        except TimeoutError as error:
            raise HttpFailed(
                f"{hop.origin}: no complete answer within {call.timeout:g} seconds.", retryable=True
            ) from error
        if callers_error is not None:
            raise callers_error

    def transport(self, max_bytes: int) -> GuardedTransport:
        """Return a guarded transport for a library's own httpx2 client; `max_bytes` limits each body."""
        return GuardedTransport(self._pool(trusted=False).handle_async_request, _translate_error, max_bytes)

    async def aclose(self) -> None:
        """Close the connections of the current event loop."""
        for pool in self._pools.pop(asyncio.get_running_loop(), {}).values():
            await pool.aclose()

    def _first_request(self, call: HttpCall) -> HttpRequest:
        return first_request(call, self._browser_user_agent if call.as_browser else self._user_agent)

    async def _send_following(self, hop: HttpRequest, call: HttpCall) -> HttpResponse:
        trusted = call.trusted
        for left in range(call.redirects, -1, -1):
            async with self._open_response(hop, call.proxy, trusted) as response:
                location = response.headers.get("location")
                if not call.redirects or location is None or response.status_code not in REDIRECT_STATUSES:
                    content = b"" if hop.method == "HEAD" else await _read_body(response, hop, call.max_bytes)
                    return HttpResponse(response.status_code, dict(response.headers.items()), content, str(hop.url))
            if left:
                hop, trusted = follow_redirect(hop, response.status_code, location), False
        raise HttpFailed(f"{hop.origin}: more than {call.redirects} redirects.")

    @asynccontextmanager
    async def _open_response(
        self, hop: HttpRequest, proxy: str | None, trusted: bool
    ) -> AsyncGenerator[httpx2.Response]:
        """Send one request and return the response with its body unread; leaving the block frees the connection."""
        try:
            pool = await self._proxy_pool(proxy, hop, trusted) if proxy else self._pool(trusted)
        except HostUnknown as error:
            raise _unknown_host(hop.origin, error) from error
        url = httpcore2.URL(
            scheme=hop.url.raw_scheme, host=hop.url.raw_host, port=hop.url.port, target=hop.url.raw_path
        )
        request = httpcore2.Request(hop.method, url, headers=hop.header_bytes(), content=hop.body)
        try:
            answer = await pool.handle_async_request(request)
            try:
                yield httpx2.Response(answer.status, headers=answer.headers, stream=_RawBody(answer))
            finally:
                await answer.aclose()
        except _NETWORK_ERRORS as error:
            if proxy and isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout):
                raise _http_failed(f"The proxy {origin_of(parse_url(proxy))}", error) from error
            raise _http_failed(hop.origin, error) from error
        except HostUnknown as error:
            raise _unknown_host(hop.origin, error) from error
        except (AddressRefused, HttpFailed):
            raise
        except ToolError as error:  # an unchecked host name could not be resolved
            raise HttpFailed(error.message, retryable=error.retryable) from error
        finally:
            if proxy:
                await pool.aclose()

    def _pool(self, trusted: bool) -> httpcore2.AsyncConnectionPool:
        pools = self._pools.setdefault(asyncio.get_running_loop(), {})
        if trusted not in pools:
            pools[trusted] = self._new_pool(_CheckedBackend(self._guard, self._resolve, "URL", trusted))
        return pools[trusted]

    async def _proxy_pool(self, proxy: str, hop: HttpRequest, trusted: bool) -> httpcore2.AsyncConnectionPool:
        """Return a pool for one request through a proxy. Both the proxy and the target host are checked."""
        if not self._names_behind_proxy and not address_policy.is_address(hop.url.host):
            raise AddressRefused("A request through a proxy must name its host by IP address, not by host name.")
        if not trusted and not self._guard.allow_any:  # otherwise only the proxy has to resolve the name
            await resolve_checked(
                hop.url.host, hop.port, self._guard, subject="URL", is_http=True, resolve=self._resolve
            )
        url = parse_url(proxy)
        via = httpcore2.Proxy(
            httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/"),
            auth=(url.username.encode(), url.password.encode()) if url.userinfo else None,
            ssl_context=self._tls if url.scheme == "https" else None,
        )
        return self._new_pool(_CheckedBackend(self._guard, self._resolve, "Proxy", trusted=False), via)

    def _new_pool(
        self, backend: "_CheckedBackend", proxy: httpcore2.Proxy | None = None
    ) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls,
            proxy=proxy,
            max_connections=None,  # the workers limit how many requests run at once
            max_keepalive_connections=MAX_IDLE_CONNECTIONS,
            keepalive_expiry=IDLE_TIMEOUT,
            network_backend=backend,
        )

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return self._custom_tls or httpcore2.default_ssl_context()


class _CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Resolves a host, checks its addresses and connects to one of them."""

    def __init__(self, guard: Guard, resolve: Resolve, subject: str, trusted: bool) -> None:
        self._guard = guard
        self._resolve = resolve
        self._subject = subject
        self._trusted = trusted
        self._network = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())  # httpcore2 declares it twice

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        addresses = await resolve_checked(
            host,
            port,
            self._guard,
            trusted=self._trusted,
            subject=self._subject,
            is_http=True,
            resolve=self._resolve,
        )
        *others, last = addresses[:MAX_ADDRESSES]
        for address in others:
            try:
                return await self._network.connect_tcp(
                    address, port, FIRST_CONNECT_TIMEOUT, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._network.connect_tcp(last, port, timeout, local_address, socket_options)


class _RawBody(httpx2.AsyncByteStream):
    """The undecoded body of a response, as input for the decoders of httpx2."""

    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._answer.aiter_stream():
            yield part


def default_user_agent(contact: str | None = None) -> str:
    """Return the default User-Agent of a deployment: product, version and contact."""
    try:
        product = f"easel/{version('easel')}"
    except PackageNotFoundError:  # running from a checkout that is not installed
        product = "easel"
    return f"{product} (+{contact})" if contact else product


async def _read_body(response: httpx2.Response, hop: HttpRequest, most: int) -> bytes:
    """Return the whole decompressed body. Raises HttpFailed as soon as it exceeds the limit."""
    if int(response.headers.get("content-length", "0")) > most:
        raise _too_large(hop, most)
    parts: list[bytes] = []
    async for part in _decompress(response, hop, most):
        parts.append(part)
        if len(part) >= YIELD_BYTES:
            await asyncio.sleep(0)
    return b"".join(parts)


async def _stream_body(response: httpx2.Response, hop: HttpRequest, call: HttpCall) -> AsyncGenerator[bytes]:
    """Yield the decompressed body while it is received. Raises the same errors as `send`."""
    try:
        async for part in _decompress(response, hop, call.max_bytes):
            yield part
    except _NETWORK_ERRORS as error:
        raise _http_failed(hop.origin, error) from error


async def _decompress(response: httpx2.Response, hop: HttpRequest, most: int) -> AsyncGenerator[bytes]:
    if response.headers.get("content-encoding", "").count(",") >= MAX_ENCODINGS:
        raise HttpFailed(f"{hop.origin}: the answer is compressed more than {MAX_ENCODINGS} times.")
    size = 0
    async with aclosing(response.aiter_bytes()) as parts:
        async for part in parts:
            size += len(part)
            if size > most:
                raise _too_large(hop, most)
            yield part


def _too_large(hop: HttpRequest, most: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"{hop.origin}: the answer is larger than {most:,} bytes.")


def _translate_error(place: str, error: Exception) -> Exception:
    """Return a network error as one of our errors; any other error is returned unchanged."""
    match error:
        case HostUnknown():
            return _unknown_host(place, error)
        case AddressRefused() | HttpFailed():
            return error
        case ToolError():
            return HttpFailed(error.message, retryable=error.retryable)
        case _:
            return _http_failed(place, error) if isinstance(error, _NETWORK_ERRORS) else error


def _unknown_host(place: str, error: HostUnknown) -> HttpFailed:
    """Return a retryable error for a host name that could not be resolved."""
    return HttpFailed(f"{place}: {error.message}", retryable=True)


def _http_failed(place: str, error: Exception) -> HttpFailed:
    """Return a network error as HttpFailed; invalid requests and untrusted certificates are not retryable."""
    text = mask_secrets(str(error)) or type(error).__name__
    if _caused_by(error, ssl.SSLCertVerificationError):
        return HttpFailed(f"{place}: its certificate is not trusted: {text}")
    match error:
        case httpx2.DecodingError():
            return HttpFailed(f"{place}: the answer cannot be decompressed: {text}")
        case httpcore2.LocalProtocolError():
            return HttpFailed(f"{place}: the request cannot be sent: {text}")
        case httpcore2.ConnectError() | httpcore2.ConnectTimeout():
            return HttpFailed(f"{place}: cannot connect: {text}", retryable=True)
        case httpcore2.ProxyError():
            return HttpFailed(f"{place}: the proxy refuses the request: {text}", retryable=True)
        case _:
            return HttpFailed(f"{place}: the connection broke: {text}", retryable=True)


def _caused_by(error: BaseException | None, kind: type[Exception]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
