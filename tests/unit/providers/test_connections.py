import asyncio
import ssl
from contextlib import AsyncExitStack
from typing import Any

import pytest

from providers import connections
from providers.chat import ModelSpec
from providers.connections import close_connections, lend_client


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


def test_requests_beyond_a_lane_get_a_client_of_their_own_and_leave_none_behind(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_LANE", 2)
    monkeypatch.setattr(connections, "_LANES_KEPT", 1)

    async def lent() -> tuple[list[object], list[bool]]:
        async with AsyncExitStack() as requests:
            clients = [await requests.enter_async_context(lend_client(spec("a"))) for _ in range(5)]
        closed = [client.is_closed() for client in clients]
        await close_connections()
        return list(clients), closed

    (first, second, third, fourth, fifth), closed = asyncio.run(lent())

    assert first is second
    assert third is fourth
    assert len({id(first), id(third), id(fifth)}) == 3
    assert closed == [False, False, True, True, True]


def test_a_lane_is_taken_again_as_soon_as_there_is_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(connections, "_LANE", 1)

    async def lent() -> tuple[object, object, object]:
        async with lend_client(spec("a")) as first, lend_client(spec("a")) as beyond:
            pass
        async with lend_client(spec("a")) as later:
            await close_connections()
            return first, beyond, later

    first, beyond, later = asyncio.run(lent())

    assert beyond is not first
    assert later is first


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
