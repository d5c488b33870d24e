import asyncio
import ssl
from typing import Any

import pytest

from providers import connections, transport
from providers.chat import ModelSpec
from providers.connections import close_connections, lend_client
from providers.transport import Transport


def spec(key: str, base_url: str = "https://acme.example/v1") -> ModelSpec:
    return ModelSpec("m", "m", "Acme", base_url, api_key=key)


def test_a_client_is_shared_by_one_account_only():
    async def lent() -> list[object]:
        clients: list[object] = []
        for each in (spec("a"), spec("a"), spec("b"), spec("a", "https://other.example/v1")):
            async with lend_client(each) as client:
                clients.append(client)
        await close_connections()
        return clients

    first, again, other_key, other_url = asyncio.run(lent())

    assert first is again
    assert len({id(first), id(other_key), id(other_url)}) == 3


def test_clients_that_nobody_uses_are_closed_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_KEPT", 1)

    async def lent() -> list[bool]:
        async with lend_client(spec("a")) as busy:
            async with lend_client(spec("b")) as idle:
                pass
            async with lend_client(spec("c")) as newest:
                pass
            while_busy = [busy.is_closed(), idle.is_closed(), newest.is_closed()]
        await close_connections()
        return [*while_busy, busy.is_closed()]

    assert asyncio.run(lent()) == [False, True, True, True]


def test_every_event_loop_has_clients_of_its_own():
    async def lent() -> object:
        async with lend_client(spec("a")) as client:
            return client

    assert asyncio.run(lent()) is not asyncio.run(lent())


@pytest.mark.parametrize(
    ("name", "is_ours"), [("", True), ("https_proxy", False), ("all_proxy", False), ("http_proxy", True)]
)
def test_where_the_environment_names_a_proxy_the_sdks_own_transport_is_used(
    name: str, is_ours: bool, monkeypatch: pytest.MonkeyPatch
):
    for each in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(each.upper(), raising=False)
    if name:
        monkeypatch.setenv(name, "http://proxy.example:3128")
    made: list[Transport] = []

    def noted(tls: ssl.SSLContext) -> Transport:
        made.append(Transport(tls))
        return made[-1]

    monkeypatch.setattr(transport, "Transport", noted)

    async def lent() -> None:
        async with lend_client(spec("a")):
            pass
        await close_connections()

    asyncio.run(lent())

    assert bool(made) is is_ours


def test_all_clients_trust_the_same_authorities(monkeypatch: pytest.MonkeyPatch):
    loaded: list[ssl.SSLContext] = []
    load = ssl.create_default_context

    def counted(*given: Any, **named: Any) -> ssl.SSLContext:
        loaded.append(load(*given, **named))
        return loaded[-1]

    monkeypatch.setattr(ssl, "create_default_context", counted)
    connections.trusted.cache_clear()

    async def lent() -> None:
        for key in ("a", "b", "c"):
            async with lend_client(spec(key)):
                pass
        await close_connections()

    asyncio.run(lent())

    assert len(loaded) == 1
