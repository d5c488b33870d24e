"""Pools SDK clients, and with them the connections to providers, for each event loop.

A client belongs to one event loop, one base URL and one key, so tenants never share connections, cookies or keys. If
there are too many clients, unused ones are closed, the least recently used first. All clients share one TLS context,
since loading the certificate authorities takes 20 ms and 0.8 MB.

Requests use the transport of `providers/models/transport/transport.py`, which checks addresses. A proxy from the
environment is used only if the deployment allows it; the proxy then resolves the names.
"""

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

from providers.errors import ErrorCode, ProviderError
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.types.chat import ModelSpec

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic
    from google.genai import Client as GeminiClient
    from openai import AsyncOpenAI

ANTHROPIC_MISSING = 'Anthropic\'s models need the extra "anthropic" on every worker: pip install easel[anthropic]'
GEMINI_MISSING = 'Gemini\'s models need the extra "google-genai" on every worker: pip install easel[google-genai]'

_MAX_CLIENTS = 64  # clients per loop; more are closed when unused, since each holds a few sockets
_NO_KEY = "none"  # for an empty key the SDK would use a key from the environment
_AZURE_API_VERSION = "2024-02-01"

ClientKey: TypeAlias = tuple[Hashable, ...]


@dataclass(slots=True)
class _PooledClient:
    client: Any  # AsyncOpenAI, AsyncAnthropic, genai.Client, or httpx2.AsyncClient for vendors without an SDK
    close: Callable[[], Awaitable[None]]
    borrowers: int = 0


@dataclass(slots=True)
class _ClientPool:
    """The clients of one event loop, the most recently used last."""

    clients: "OrderedDict[ClientKey, _PooledClient]" = field(
        default_factory=lambda: OrderedDict[ClientKey, _PooledClient]()
    )

    def borrow(self, place: ClientKey, new: Callable[[], _PooledClient]) -> _PooledClient:
        """Return the client of a key, created on first use, and count the borrower."""
        entry = self.clients.get(place)
        if entry is None:
            entry = self.clients[place] = new()
        self.clients.move_to_end(place)
        entry.borrowers += 1
        return entry

    def pop_surplus(self) -> list[_PooledClient]:
        """Remove idle clients above the limit and return them."""
        surplus = len(self.clients) - _MAX_CLIENTS
        if surplus <= 0:
            return []
        idle = [place for place, entry in self.clients.items() if not entry.borrowers]
        return [self.clients.pop(place) for place in idle[:surplus]]


_pools: "WeakKeyDictionary[asyncio.AbstractEventLoop, _ClientPool]" = WeakKeyDictionary()


@asynccontextmanager
async def borrow_client(
    spec: ModelSpec, hosts: ModelAddressPolicy | None = None, *, is_azure: bool = False
) -> AsyncGenerator["AsyncOpenAI"]:
    """Borrow the SDK client of a model's account on this event loop for one request. Raises ProviderError."""
    version = str(spec.extra.get("api_version") or _AZURE_API_VERSION) if is_azure else ""
    group = str(spec.extra.get("group_id") or "")

    def new() -> _PooledClient:
        import httpx2

        try:
            client = _new_client(spec, hosts, version, group)
        except httpx2.InvalidURL as problem:
            raise ProviderError(
                ErrorCode.MODEL_ERROR, f"The base URL of {spec.factory} is not valid: {problem}"
            ) from problem
        return _PooledClient(client, client.close)

    async with _borrow((*_account_key(spec), hosts, version, group), new) as client:
        yield client


@asynccontextmanager
async def borrow_anthropic_client(
    spec: ModelSpec, hosts: ModelAddressPolicy | None = None
) -> AsyncGenerator["AsyncAnthropic"]:
    """Borrow Anthropic's client of a model's account on this event loop for one request. Raises ProviderError."""

    def new() -> _PooledClient:
        import httpx2

        try:
            client = _new_anthropic_client(spec, hosts)
        except ImportError as error:
            raise ProviderError(ErrorCode.MODEL_ERROR, ANTHROPIC_MISSING) from error
        except httpx2.InvalidURL as problem:
            raise ProviderError(
                ErrorCode.MODEL_ERROR, f"The base URL of {spec.factory} is not valid: {problem}"
            ) from problem
        return _PooledClient(client, client.close)

    async with _borrow((*_account_key(spec), hosts, "anthropic"), new) as client:
        yield client


@asynccontextmanager
async def borrow_gemini_client(
    spec: ModelSpec, hosts: ModelAddressPolicy | None = None
) -> AsyncGenerator["GeminiClient"]:
    """Borrow Gemini's client of a model's account on this event loop for one request. Raises ProviderError."""

    def new() -> _PooledClient:
        try:
            return _new_gemini_client(spec, hosts)
        except ImportError as error:
            raise ProviderError(ErrorCode.MODEL_ERROR, GEMINI_MISSING) from error

    async with _borrow((*_account_key(spec), hosts, "gemini"), new) as client:
        yield client


@asynccontextmanager
async def borrow_http_client(
    spec: ModelSpec, hosts: ModelAddressPolicy | None = None
) -> AsyncGenerator["httpx2.AsyncClient"]:
    """Borrow a plain HTTP client of a model's account on this event loop for one request. It follows no redirects."""

    def new() -> _PooledClient:
        import httpx2

        client = httpx2.AsyncClient(**_client_arguments(spec.base_url or "", hosts))
        return _PooledClient(client, client.aclose)

    async with _borrow((*_account_key(spec), hosts, "plain"), new) as client:
        yield client


@asynccontextmanager
async def _borrow(place: ClientKey, new: Callable[[], _PooledClient]) -> AsyncGenerator[Any]:
    pool = _pools.setdefault(asyncio.get_running_loop(), _ClientPool())
    entry = pool.borrow(place, new)
    try:
        yield entry.client
    finally:
        entry.borrowers -= 1
        for each in pool.pop_surplus():
            await each.close()


def warm_up(sdk: str = "openai") -> None:
    """Import an SDK, which takes a second of CPU time; call it before the first request, and not on an event loop."""
    import_module(sdk)


async def close_connections() -> None:
    """Close all clients of this event loop, before its process ends."""
    pool = _pools.pop(asyncio.get_running_loop(), _ClientPool())
    for entry in pool.clients.values():
        await entry.close()


@cache
def tls_context() -> ssl.SSLContext:
    """Return the TLS context of all clients of the process, with the certificate authorities of this machine."""
    import httpx2

    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _account_key(spec: ModelSpec) -> tuple[str, str]:
    """Return the key of an account in the pool: its base URL, and a digest of all its secrets."""
    return spec.base_url or "", sha256("\n".join(spec.secrets).encode()).hexdigest()


def _client_arguments(base_url: str, hosts: ModelAddressPolicy | None) -> dict[str, Any]:
    """Return the arguments of a client: our transport or that of a proxy, and nothing from the environment."""
    from providers.models.transport.transport import PooledTransport  # loads httpx2, which not every process needs

    hosts = hosts or ModelAddressPolicy()
    proxy = proxy_for(base_url) if hosts.by_proxy else None
    if proxy is None:
        return {"transport": PooledTransport(tls_context(), hosts), "trust_env": False}
    return {"transport": _proxy_transport(proxy, hosts), "trust_env": False}


def _proxy_transport(proxy: str, hosts: ModelAddressPolicy) -> "httpx2.AsyncBaseTransport":
    from providers.models.transport.proxy_clients import ProxyTransport

    return ProxyTransport(proxy, tls_context(), hosts)


def _new_client(spec: ModelSpec, hosts: ModelAddressPolicy | None, version: str, group: str) -> "AsyncOpenAI":
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    key = spec.api_key or _NO_KEY
    query: dict[str, Any] | None = {"GroupId": group} if group else None
    # The operator chose the base URL, which may be private. Targets of redirects are not chosen, so none is followed.
    http = DefaultAsyncHttpxClient(**_client_arguments(spec.base_url or "", hosts), follow_redirects=False)
    client: AsyncOpenAI
    if version:
        client = AsyncAzureOpenAI(
            azure_endpoint=spec.base_url or "", api_key=key, api_version=version, max_retries=0, default_query=query,
            http_client=http,
        )  # fmt: skip
    else:
        bearer = {"Authorization": f"Bearer {key}"}  # explicit, so that OPENAI_CUSTOM_HEADERS cannot override it
        client = AsyncOpenAI(
            base_url=spec.base_url, api_key=key, max_retries=0, default_headers=bearer, default_query=query,
            http_client=http,
        )  # fmt: skip
    # The SDK reads these from the environment, but they belong to the operator's OpenAI account and not to this one.
    client.organization = client.project = client.admin_api_key = None
    return client


def _new_anthropic_client(spec: ModelSpec, hosts: ModelAddressPolicy | None) -> "AsyncAnthropic":
    """Create a client that reads no key, profile or address from the environment, since all are given."""
    from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

    http = DefaultAsyncHttpxClient(**_client_arguments(spec.base_url or "", hosts), follow_redirects=False)
    key = spec.api_key or _NO_KEY
    return AsyncAnthropic(
        base_url=spec.base_url, api_key=key, max_retries=0, http_client=http, open_telemetry=False,
        default_headers={"Authorization": f"Bearer {key}"},  # explicit, so that the environment cannot override it
    )  # fmt: skip


def _new_gemini_client(spec: ModelSpec, hosts: ModelAddressPolicy | None) -> _PooledClient:
    """Create a client that reads no key, mode or address from the environment, since all are given.

    Its synchronous client, which we do not use, refuses all requests.
    """
    import httpx2
    from google.genai import Client
    from google.genai.client import DebugConfig
    from google.genai.types import HttpOptions

    from providers.models.transport.open_responses import EVENT_HOOKS

    http = httpx2.AsyncClient(
        **_client_arguments(spec.base_url or "", hosts), follow_redirects=False,
        headers={"Accept-Encoding": "identity"}, event_hooks=EVENT_HOOKS,
    )  # fmt: skip
    client = Client(
        api_key=spec.api_key or _NO_KEY, enterprise=False, vertexai=False,
        http_options=HttpOptions(
            base_url=spec.base_url, api_version="", httpx_async_client=http,
            httpx_client=httpx2.Client(transport=httpx2.MockTransport(_refuse), trust_env=False),
            async_client_args={"ssl": tls_context()},
        ),
        debug_config=DebugConfig(client_mode="", replays_directory="", replay_id=""),
    )  # fmt: skip
    return _PooledClient(client, http.aclose)


def _refuse(request: "httpx2.Request") -> "httpx2.Response":
    raise RuntimeError("Gemini's SDK has sent a request by its synchronous client.")


def proxy_for(base_url: str) -> str | None:
    """Return the proxy of the environment for a URL (`HTTPS_PROXY`, `ALL_PROXY`), unless `NO_PROXY` excludes it."""
    parts = urlsplit(base_url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
