"""SDK clients, and with them the connections to providers, kept for the next request.

A client belongs to one event loop, one base URL and one key, so no connection, cookie or key is ever shared between
tenants. When there are too many, the ones that nobody uses are closed, oldest first. What clients share is what they
trust: to load the authorities costs 20 ms and 0.8 MB.

Requests go through the transport of `providers/models/transport/transport.py`, which checks where they lead. A proxy
that the environment names is used only where the deployment has said so; what a name leads to is then the proxy's to
say.
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

from providers.errors import Code, ProviderError
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.types.chat import ModelSpec

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

_KEPT = 64  # clients per loop beyond which idle ones are closed; an idle client holds a few sockets
_NO_KEY = "none"  # the SDK would look for a key in the environment if it were given an empty one
_AZURE_API_VERSION = "2024-02-01"

Place: TypeAlias = tuple[Hashable, ...]


@dataclass(slots=True)
class _Kept:
    client: Any  # AsyncOpenAI, or httpx2.AsyncClient for vendors that are asked without an SDK
    close: Callable[[], Awaitable[None]]
    borrowers: int = 0


@dataclass(slots=True)
class _Shelf:
    """The clients of one event loop, the most recently used last."""

    clients: "OrderedDict[Place, _Kept]" = field(default_factory=lambda: OrderedDict[Place, _Kept]())

    def borrow(self, place: Place, new: Callable[[], _Kept]) -> _Kept:
        """The client that stands at a place."""
        kept = self.clients.get(place)
        if kept is None:
            kept = self.clients[place] = new()
        self.clients.move_to_end(place)
        kept.borrowers += 1
        return kept

    def surplus(self) -> list[_Kept]:
        """Take idle clients off the shelf until few enough are left."""
        beyond = len(self.clients) - _KEPT
        if beyond <= 0:
            return []
        idle = [place for place, kept in self.clients.items() if not kept.borrowers]
        return [self.clients.pop(place) for place in idle[:beyond]]


_shelves: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Shelf]" = WeakKeyDictionary()


@asynccontextmanager
async def borrow_client(
    spec: ModelSpec, hosts: ModelAddressPolicy | None = None, *, is_azure: bool = False
) -> AsyncGenerator["AsyncOpenAI"]:
    """The SDK client for a model's account on this event loop, for the time of one request. Raises CallFailed."""
    version = str(spec.extra.get("api_version") or _AZURE_API_VERSION) if is_azure else ""
    group = str(spec.extra.get("group_id") or "")

    def new() -> _Kept:
        import httpx2

        try:
            client = _new_client(spec, hosts, version, group)
        except httpx2.InvalidURL as problem:
            raise ProviderError(Code.MODEL_ERROR, f"The base URL of {spec.factory} is none: {problem}") from problem
        return _Kept(client, client.close)

    async with _lent((*_account(spec), hosts, version, group), new) as client:
        yield client


@asynccontextmanager
async def borrow_http_client(
    spec: ModelSpec, hosts: ModelAddressPolicy | None = None
) -> AsyncGenerator["httpx2.AsyncClient"]:
    """A plain HTTP client of a model's account on this event loop, for the time of one request. It follows nothing."""

    def new() -> _Kept:
        import httpx2

        client = httpx2.AsyncClient(**_way(spec.base_url or "", hosts))
        return _Kept(client, client.aclose)

    async with _lent((*_account(spec), hosts, "plain"), new) as client:
        yield client


@asynccontextmanager
async def _lent(place: Place, new: Callable[[], _Kept]) -> AsyncGenerator[Any]:
    shelf = _shelves.setdefault(asyncio.get_running_loop(), _Shelf())
    kept = shelf.borrow(place, new)
    try:
        yield kept.client
    finally:
        kept.borrowers -= 1
        for each in shelf.surplus():
            await each.close()


def warm_up() -> None:
    """Load the SDK, which takes a second of computing: before the first request, that is, and not on an event loop."""
    import_module("openai")


async def close_connections() -> None:
    """Close all clients of this event loop; for a process that ends."""
    shelf = _shelves.pop(asyncio.get_running_loop(), _Shelf())
    for kept in shelf.clients.values():
        await kept.close()


@cache
def trusted() -> ssl.SSLContext:
    """The authorities of this machine, for every client of the process."""
    import httpx2

    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _account(spec: ModelSpec) -> tuple[str, str]:
    """Whose connections may be shared. What else an account keeps secret belongs to its key."""
    return spec.base_url or "", sha256("\n".join(spec.secrets).encode()).hexdigest()


def _way(base_url: str, hosts: ModelAddressPolicy | None) -> dict[str, Any]:
    """How a client gets to an address: over connections of ours, or by a proxy. It heeds nothing else."""
    from providers.models.transport.transport import Transport  # loads httpx2, which not every process needs

    hosts = hosts or ModelAddressPolicy()
    proxy = proxy_for(base_url) if hosts.by_proxy else None
    if proxy is None:
        return {"transport": Transport(trusted(), hosts), "trust_env": False}
    return {"transport": _by_proxy(proxy, hosts), "trust_env": False}


def _by_proxy(proxy: str, hosts: ModelAddressPolicy) -> "httpx2.AsyncBaseTransport":
    from providers.models.transport.proxy_clients import ProxyTransport

    return ProxyTransport(proxy, trusted(), hosts)


def _new_client(spec: ModelSpec, hosts: ModelAddressPolicy | None, version: str, group: str) -> "AsyncOpenAI":
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    key = spec.api_key or _NO_KEY
    query: dict[str, Any] | None = {"GroupId": group} if group else None
    # An account's base URL is the operator's and may be private; where its server points to was chosen by nobody.
    http = DefaultAsyncHttpxClient(**_way(spec.base_url or "", hosts), follow_redirects=False)
    client: AsyncOpenAI
    if version:
        client = AsyncAzureOpenAI(
            azure_endpoint=spec.base_url or "", api_key=key, api_version=version, max_retries=0, default_query=query,
            http_client=http,
        )  # fmt: skip
    else:
        bearer = {"Authorization": f"Bearer {key}"}  # said aloud, so that OPENAI_CUSTOM_HEADERS cannot say otherwise
        client = AsyncOpenAI(
            base_url=spec.base_url, api_key=key, max_retries=0, default_headers=bearer, default_query=query,
            http_client=http,
        )  # fmt: skip
    # What the SDK found in the environment belongs to OpenAI and to the operator, not to this account.
    client.organization = client.project = client.admin_api_key = None
    return client


def proxy_for(base_url: str) -> str | None:
    """The proxy that the environment names for an address (`HTTPS_PROXY`, `ALL_PROXY`, not in `NO_PROXY`)."""
    parts = urlsplit(base_url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
