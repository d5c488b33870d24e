import asyncio

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
