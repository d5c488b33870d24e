"""The HTTP transport to one provider, for the client of the SDK: aiohttp's connections under the interface of httpx2.

A model call is one POST over one connection, and mostly waits for pieces of the answer. aiohttp parses responses in C
and reads them through one asyncio protocol; the general transport of `httpx2` takes twice its processor time (see
docs/decisions/0059-model-calls-over-aiohttp.md). Every connection goes to an address that
`providers/models/transport/connect.py` has checked. Proxies are handled elsewhere
(`providers/models/transport/clients.py`).

A connection whose response was not read to the end is closed, so that cancelling a call also stops the provider's work.
"""

import re
import ssl
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, TypeAlias

import aiohttp
import httpx2
from yarl import URL

from canvas.errors import AddressRefused, ToolError
from providers.address_policy import Resolve, is_address
from providers.models.transport.connect import CheckedResolver, ModelAddressPolicy, resolve_model_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

IDLE_TIMEOUT = 4.0  # s; many servers close idle connections after 5 s; a close during a write fails the request
MAX_HEADER_BYTES = 64 * 1024  # bytes of one line of a head
MAX_HEADERS = 128  # headers of a response, and trailers
MAX_UNREAD_BYTES = 256 * 1024  # unread bytes of a response after which reading from the socket pauses
MAX_SENDS = 3  # of a request whose connection is closed before all of it was written
UNWRITTEN = "Cannot write to closing transport"  # how aiohttp says that it has not written a part of a request
LARGE_BODY = 1024 * 1024  # bytes from which aiohttp wants a request as a file, to write it in parts

Timeouts: TypeAlias = Mapping[str, float | None]  # s, by the names of httpx2

_BEGIN = re.compile(rb"[A-Z]+ [!-~]+")
_HEADER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00\r\n]*")
_FRAMING = (b"content-length", b"transfer-encoding")


class PooledTransport(httpx2.AsyncBaseTransport):
    """The transport of one client on one event loop. It raises AddressRefused, and errors of httpx2."""

    def __init__(
        self, tls: ssl.SSLContext, hosts: ModelAddressPolicy | None = None, *, resolve: Resolve = resolve_model_host
    ) -> None:
        self._tls = tls
        self._resolver = CheckedResolver(hosts or ModelAddressPolicy(), resolve)
        self._session: aiohttp.ClientSession | None = None  # made at the first request, on the loop that it belongs to
        self._checked = set[bytes]()  # literal addresses with their ports: those of a client's few URLs
        self._is_closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        limits: Timeouts = request.extensions.get("timeout", {})
        if url.scheme not in ("http", "https") or not url.host:
            raise httpx2.UnsupportedProtocol(f"'{url.scheme}' is not a supported URL scheme")
        body = await request.aread()
        headers = checked_headers(request.method, url.raw_path, request.headers.raw)
        if self._is_closed:
            raise httpx2.ConnectError("the client is closed")
        with _errors_of_httpx2(limits):
            await self._check_literal(url)
            response = await self._send(request.method, url, headers, body, limits)
        if problem := _problem_of_head(response):
            response.close()
            raise httpx2.RemoteProtocolError(problem)
        return httpx2.Response(
            response.status,
            headers=list(response.raw_headers),
            stream=_Body(response, limits),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def aclose(self) -> None:
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def _check_literal(self, url: httpx2.URL) -> None:
        """Check an address in a URL, to which aiohttp connects without asking its resolver. It is checked once."""
        if url.netloc in self._checked:
            return
        if is_address(url.host):
            await self._resolver.check(url.host, url.port or (443 if url.scheme == "https" else 80))
            self._checked.add(url.netloc)
        elif ":" in url.host or url.host.replace(".", "").isdigit():  # aiohttp would take it for an address
            message = f"The base URL leads to '{url.host}', which is neither a name nor an address."
            raise AddressRefused(message, is_malformed=True)

    async def _send(
        self, method: str, url: httpx2.URL, headers: list[tuple[str, str]], body: bytes, limits: Timeouts
    ) -> aiohttp.ClientResponse:
        """Send a request, again if its connection was closed before all of it was written.

        The server of an idle connection may close it at any time. It has not received a whole request then.
        """
        target = URL(f"{url.scheme}://{url.netloc.decode('ascii')}{url.raw_path.decode('ascii')}", encoded=True)
        timeout = aiohttp.ClientTimeout(connect=limits.get("connect"), sock_read=limits.get("read"))
        sends = 0
        while True:
            sends += 1
            try:
                return await self._open_session().request(
                    method,
                    target,
                    headers=headers,
                    data=BytesIO(body) if len(body) >= LARGE_BODY else body or None,
                    allow_redirects=False,
                    timeout=timeout,
                )
            except aiohttp.ClientOSError as error:
                # "Connection lost" is raised after a write too: the server may have received all of the request then
                was_refused = UNWRITTEN in str(error.__cause__)
                if not was_refused or sends == MAX_SENDS:
                    raise

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                ssl=self._tls,
                limit=0,
                resolver=self._resolver,
                use_dns_cache=False,
                keepalive_timeout=IDLE_TIMEOUT,
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                read_bufsize=MAX_UNREAD_BYTES // 2,
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
                max_headers=MAX_HEADERS,
                trust_env=False,
            )
        return self._session


def checked_headers(method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """Return the headers of a request without those that say its length, which are aiohttp's to write.

    Raises LocalProtocolError for a target or a header that would be read as more than one.
    """
    if not _BEGIN.fullmatch(b"%s %s" % (method.encode("ascii", "replace"), target)):
        raise httpx2.LocalProtocolError("The method or the address of the request has invalid characters.")
    if not all(_HEADER.fullmatch(b"%s: %s" % header) for header in headers):
        message = "A header of the request is not valid. It must be one line with a name and a value."
        raise httpx2.LocalProtocolError(message)
    try:
        return [(name.decode("ascii"), value.decode()) for name, value in headers if name.lower() not in _FRAMING]
    except UnicodeDecodeError as error:  # aiohttp writes headers in UTF-8, so it would not send these bytes
        raise httpx2.LocalProtocolError("A header of the request is not valid. Its value must be in UTF-8.") from error


def _problem_of_head(response: aiohttp.ClientResponse) -> str:
    """Return what is wrong with the head of a response that aiohttp has accepted; "" if nothing is."""
    if response.status == 101:
        return "The server switches to another protocol, which was not requested."
    if response.status < 200 or response.version not in (aiohttp.HttpVersion10, aiohttp.HttpVersion11):
        return "The server does not answer in HTTP/1.1."
    if any(coding.lower() != "chunked" for coding in response.headers.getall("Transfer-Encoding", ())):
        return "The answer has a transfer encoding that was not requested."
    return ""


class _Body(httpx2.AsyncByteStream):
    """The body of a response. Its connection is reused after the end of the body, and closed if it ends earlier."""

    __slots__ = ("_limits", "_response")

    def __init__(self, response: aiohttp.ClientResponse, limits: Timeouts) -> None:
        self._response = response
        self._limits = limits

    async def __aiter__(self) -> "AsyncIterator[bytes]":
        with _errors_of_httpx2(self._limits):
            async for part in self._response.content.iter_any():
                yield part

    async def aclose(self) -> None:
        self._response.close()


@contextmanager
def _errors_of_httpx2(limits: Timeouts) -> Generator[None]:
    """Raise errors of aiohttp as those of httpx2. AddressRefused stays, unless the name may be resolved later."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        seconds = limits.get("connect")
        raise httpx2.ConnectTimeout(f"no connection within {seconds:g} s" if seconds else str(error)) from error
    except aiohttp.ServerTimeoutError as error:
        raise httpx2.ReadTimeout(f"no data was received for {limits.get('read') or 0:g} s") from error
    except AddressRefused as error:
        if isinstance(error.__cause__, OSError):  # the name could not be resolved, which may be temporary
            raise httpx2.ConnectError(error.message) from error
        raise
    except ToolError as error:
        raise httpx2.ConnectError(error.message) from error
    except (aiohttp.ClientConnectorError, aiohttp.ClientConnectorCertificateError, aiohttp.InvalidURL) as error:
        raise httpx2.ConnectError(str(error) or type(error).__name__) from error
    except aiohttp.ServerDisconnectedError as error:
        raise httpx2.RemoteProtocolError("The server closed the connection before its answer was complete.") from error
    except aiohttp.ClientResponseError as error:
        raise httpx2.RemoteProtocolError(f"The server does not answer in HTTP/1.1: {error.message}") from error
    except aiohttp.ClientPayloadError as error:
        raise httpx2.RemoteProtocolError(f"The answer is not complete: {error}") from error
    except (aiohttp.ClientError, OSError) as error:
        raise httpx2.ReadError(str(error) or type(error).__name__) from error
