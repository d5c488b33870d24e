"""SDK clients, and with them the connections to providers, kept for the next request.

A client belongs to one event loop, one base URL and one key, so no connection, cookie or key is ever shared between
tenants. When there are too many, the ones that nobody uses are closed, oldest first. What clients share is what they
trust: to load the authorities costs 20 ms and 0.8 MB.

A client looks at all of its connections whenever a request begins or ends, and it has no more than 1,000. So requests
go in lanes: a client takes so many at once, and then the account has another one. A request beside 900 that wait costs
as much as beside ten (with one client for all: twice as much), and has a connection at once.
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
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from providers.chat import ModelSpec

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_KEPT = 64  # clients per loop beyond which idle ones are closed; an idle client holds a few sockets
_LANE = 32  # requests of one client at once
_LANES_KEPT = 3  # of an account, with their idle connections; the others are closed as soon as nobody uses them
_NO_KEY = "none"  # the SDK would look for a key in the environment if it were given an empty one
_AZURE_API_VERSION = "2024-02-01"


@dataclass(slots=True)
class _Kept:
    client: "AsyncOpenAI"
    lane: int
    borrowers: int = 0


@dataclass(slots=True)
class _Shelf:
    """The clients of one event loop, the most recently used last."""

    clients: "OrderedDict[tuple[str | int, ...], _Kept]" = field(
        default_factory=lambda: OrderedDict[tuple[str | int, ...], _Kept]()
    )

    def borrow(self, spec: ModelSpec, *, is_azure: bool) -> _Kept:
        """The client of the first lane of an account that has room."""
        version = str(spec.extra.get("api_version") or _AZURE_API_VERSION) if is_azure else ""
        group = str(spec.extra.get("group_id") or "")
        account = (spec.base_url or "", sha256(spec.api_key.encode()).hexdigest(), version, group)
        for lane in count():
            place = (*account, lane)
            kept = self.clients.get(place)
            if kept is None:
                kept = self.clients[place] = _Kept(_new_client(spec, version, group), lane)
            if kept.borrowers < _LANE:
                self.clients.move_to_end(place)
                kept.borrowers += 1
                return kept
        raise AssertionError("unreachable: counting has no end")

    def surplus(self) -> list["AsyncOpenAI"]:
        """Take idle clients off the shelf until few enough are left, and lanes that were for a rush."""
        idle = [place for place, kept in self.clients.items() if not kept.borrowers]
        beyond = max(0, len(self.clients) - _KEPT)
        rushed = [place for place in idle[beyond:] if self.clients[place].lane >= _LANES_KEPT]
        return [self.clients.pop(place).client for place in (*idle[:beyond], *rushed)]


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

    return httpx2.create_ssl_context()


def _new_client(spec: ModelSpec, version: str, group: str) -> "AsyncOpenAI":
    from openai import AsyncAzureOpenAI, AsyncOpenAI, DefaultAsyncHttpxClient

    key = spec.api_key or _NO_KEY
    query: dict[str, Any] | None = {"GroupId": group} if group else None
    http = DefaultAsyncHttpxClient(verify=trusted())
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
