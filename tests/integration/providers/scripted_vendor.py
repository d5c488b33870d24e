"""A chat model whose vendor is a local server with scripted replies."""

import asyncio
from dataclasses import replace
from typing import Any

from providers.models.chat.catalogue import RequestLimits, open_chat, resolve
from providers.models.chat.retrying_model import RetryPolicy
from providers.models.transport.clients import close_connections
from providers.models.types.chat import ChatRequest, Completion, Delta, UsageDelta
from providers.models.vendors.accounts import AccountModel, VendorAccount
from tests.vendor_server import Reply, VendorServer, vendor_server

MESSAGES = [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}]
PIXEL = "data:image/png;base64,iVBORw0KGgo="
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class Waits(list[float]):
    """A sleep that returns at once and records its seconds."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def conversation(extra: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return a conversation with two tool calls and their results."""
    calls: list[dict[str, Any]] = [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
        {"id": "c2", "type": "function", "function": {"name": "weather", "arguments": "{oops"}},
    ]
    if extra:
        calls[0]["extra_content"] = extra
    return [
        *MESSAGES,
        {"role": "assistant", "content": "Looking.", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "c2", "content": ""},
        {"role": "user", "content": "And?"},
    ]


class ScriptedVendor:
    """Send one request to a vendor's server; the server records it, and the method returns the answer."""

    def __init__(self, factory: str, model: str, key: str, **account: Any) -> None:
        self._account = {"factory": factory, "api_key": key, **account}
        self._model = model
        self.waits = Waits()
        self.server = VendorServer([])

    def stream(self, *plays: Reply, **request: Any) -> list[Delta]:
        async def read(server: VendorServer) -> list[Delta]:
            return [delta async for delta in self._open(server).stream(_request(request))]

        return self._run(plays, read)

    def complete(self, *plays: Reply, **request: Any) -> Completion:
        async def read(server: VendorServer) -> Completion:
            return await self._open(server).complete(_request(request))

        return self._run(plays, read)

    def cancel_after_first_delta(self, *plays: Reply) -> None:
        """Read the first delta, cancel the reader, and wait until the connection is closed."""

        async def read(server: VendorServer) -> None:
            first = asyncio.Event()

            async def read_all() -> None:
                async for _ in self._open(server).stream(_request({})):
                    first.set()

            reading = asyncio.create_task(read_all())
            await asyncio.wait_for(first.wait(), 10)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await asyncio.wait_for(server.disconnected.wait(), 10)

        self._run(plays, read)

    def leave_after_first_delta(self, *plays: Reply) -> None:
        """Read the first delta, close the stream without reading on, and wait until the connection is closed."""

        async def read(server: VendorServer) -> None:
            deltas = self._open(server).stream(_request({}))
            await anext(deltas)
            await deltas.aclose()
            await asyncio.wait_for(server.disconnected.wait(), 10)

        self._run(plays, read)

    def _open(self, server: VendorServer) -> Any:
        models = {self._model: AccountModel(is_tools=True, kinds=frozenset({"chat", "vision"}))}
        fields: dict[str, Any] = {"base_url": server.url, "models": models, **self._account}
        account = VendorAccount(**fields)
        if "sts_url" in account.extra:
            account = replace(account, extra={**account.extra, "sts_url": f"{server.url}/sts"})
        spec = resolve(f"{self._model}@{account.factory}", [account])
        return open_chat(spec, RequestLimits(), retry_policy=RetryPolicy(self.waits, lambda: 1.0))

    def _run(self, plays: tuple[Reply, ...], read: Any) -> Any:
        async def run() -> Any:
            async with vendor_server(*plays) as self.server:
                try:
                    return await read(self.server)
                finally:
                    await close_connections()

        return asyncio.run(run())


def without_usage(deltas: list[Delta]) -> list[Delta]:
    return [delta for delta in deltas if not isinstance(delta, UsageDelta)]


def _request(request: dict[str, Any]) -> ChatRequest:
    fields: dict[str, Any] = {"messages": MESSAGES, "retry_delay": 1.0, **request}
    return ChatRequest(**fields)
