"""SDK clients, and with them the connections to providers, kept for the next request.

A client belongs to one event loop, one base URL and one key, so no connection, cookie or key is ever shared between
tenants. When there are too many, the ones that nobody uses are closed, oldest first. What clients share is what they
trust: to load the authorities costs 20 ms and 0.8 MB.

Requests go through the transport of `providers/transport.py`, unless the environment sends them through a proxy.
"""

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies
from weakref import WeakKeyDictionary

from providers.chat import ModelSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_KEPT = 64  # clients per loop beyond which idle ones are closed; an idle client holds a few sockets
_NO_KEY = "none"  # the SDK would look for a key in the environment if it were given an empty one
_AZURE_API_VERSION = "2024-02-01"


@dataclass(slots=True)
class _Kept:
    client: "AsyncOpenAI"
    borrowers: int = 0


@dataclass(slots=True)
class _Shelf:
    """The clients of one event loop, the most recently used last."""

    clients: "OrderedDict[tuple[str, ...], _Kept]" = field(
        default_factory=lambda: OrderedDict[tuple[str, ...], _Kept]()
    )

    def borrow(self, spec: ModelSpec, *, is_azure: bool) -> _Kept:
        """The client of an account."""
        version = str(spec.extra.get("api_version") or _AZURE_API_VERSION) if is_azure else ""
        group = str(spec.extra.get("group_id") or "")
        place = (spec.base_url or "", sha256(spec.api_key.encode()).hexdigest(), version, group)
        kept = self.clients.get(place)
        if kept is None:
            kept = self.clients[place] = _Kept(_new_client(spec, version, group))
        self.clients.move_to_end(place)
        kept.borrowers += 1
        return kept

    def surplus(self) -> list["AsyncOpenAI"]:
        """Take idle clients off the shelf until few enough are left."""
        beyond = len(self.clients) - _KEPT
        if beyond <= 0:
            return []
        idle = [place for place, kept in self.clients.items() if not kept.borrowers]
        return [self.clients.pop(place).client for place in idle[:beyond]]


_shelves: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Shelf]" = WeakKeyDictionary()


@asynccontextmanager
async def lend_client(spec: ModelSpec, *, is_azure: bool = False) -> AsyncGenerator["AsyncOpenAI"]:
    """The SDK client for a model's account on this event loop, for the time of one request."""
    shelf = _shelves.setdefault(asyncio.get_running_loop(), _Shelf())
    kept = shelf.borrow(spec, is_azure=is_azure)
    try:
        yield kept.client
    finally:
        kept.borrowers -= 1
        for client in shelf.surplus():
            await client.close()


def warm_up() -> None:
    """Load the SDK, which takes a second of computing: before the first request, that is, and not on an event loop."""
    import_module("openai")


async def close_connections() -> None:
    """Close all clients of this event loop; for a process that ends."""
    shelf = _shelves.pop(asyncio.get_running_loop(), _Shelf())
    for kept in shelf.clients.values():
        await kept.client.close()


@cache
def trusted() -> ssl.SSLContext:
    """The authorities of this machine, for every client of the process."""
    import httpx2

    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _new_client(spec: ModelSpec, version: str, group: str) -> "AsyncOpenAI":
    import httpx2
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    from providers.transport import KEPT, Transport  # loads httpx2, which not every process needs

    key = spec.api_key or _NO_KEY
    query: dict[str, Any] | None = {"GroupId": group} if group else None
    if _is_behind_proxy(spec.base_url or ""):
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT)
        http = DefaultAsyncHttpxClient(verify=trusted(), limits=limits)
    else:
        http = DefaultAsyncHttpxClient(transport=Transport(trusted()))
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


def _is_behind_proxy(base_url: str) -> bool:
    """Whether the environment may send requests through a proxy; the SDK's client then knows which."""
    return not {urlsplit(base_url).scheme, "all"}.isdisjoint(getproxies())
