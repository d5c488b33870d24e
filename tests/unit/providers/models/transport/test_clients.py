import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from canvas.errors import AddressRefused
from providers.models.transport import clients as model_clients
from providers.models.transport.clients import borrow_client, borrow_http_client, close_connections, proxy_for
from providers.models.transport.connect import ModelAddressPolicy
from providers.models.transport.proxy_clients import ProxyTransport
from providers.models.transport.transport import PooledTransport
from providers.models.types.chat import ModelSpec


def spec(key: str, base_url: str = "https://acme.example/v1") -> ModelSpec:
    return ModelSpec("m", "m", "Acme", base_url, api_key=key)


def test_a_client_is_shared_by_one_account_only():
    async def borrow() -> list[object]:
        clients: list[object] = []
        for each in (spec("a"), spec("a"), spec("b"), spec("a", "https://other.example/v1")):
            async with borrow_client(each) as client:
                clients.append(client)
        await close_connections()
        return clients

    first, again, other_key, other_url = asyncio.run(borrow())

    assert first is again
    assert len({id(first), id(other_key), id(other_url)}) == 3


def test_unused_clients_are_closed_above_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(model_clients, "_MAX_CLIENTS", 1)

    async def borrow() -> list[bool]:
        async with borrow_client(spec("a")) as busy:
            async with borrow_client(spec("b")) as idle:
                pass
            async with borrow_client(spec("c")) as newest:
                pass
            while_busy = [busy.is_closed(), idle.is_closed(), newest.is_closed()]
        await close_connections()
        return [*while_busy, busy.is_closed()]

    assert asyncio.run(borrow()) == [False, True, True, True]


def test_every_event_loop_has_clients_of_its_own():
    async def borrow() -> object:
        async with borrow_client(spec("a")) as client:
            return client

    assert asyncio.run(borrow()) is not asyncio.run(borrow())


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without proxy variables."""
    for each in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(each, raising=False)
        monkeypatch.delenv(each.upper(), raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("lend", [borrow_client, borrow_http_client])
def test_proxy_of_the_environment_is_used_only_if_the_deployment_allows_it(
    lend: Any, name: str, environment: pytest.MonkeyPatch
):
    environment.setenv(name, "http://proxy.example:3128")

    async def borrow(hosts: ModelAddressPolicy) -> list[object]:
        async with lend(spec("a"), hosts) as client:
            inside = getattr(client, "_client", client)  # the SDK client wraps one of httpx2
            transports = [inside._transport, *inside._mounts.values()]
        await close_connections()
        return [type(transport) for transport in transports if transport is not None]

    assert asyncio.run(borrow(ModelAddressPolicy())) == [PooledTransport]
    assert asyncio.run(borrow(ModelAddressPolicy(by_proxy=True))) == [ProxyTransport]


@pytest.mark.parametrize(
    ("variables", "base_url", "proxy"),
    [
        ({}, "https://a.example/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a.example/v1", "http://p:1"),
        ({"HTTPS_PROXY": "p:1"}, "https://a.example/v1", "http://p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://a.example/v1", None),
        ({"ALL_PROXY": "http://p:1"}, "http://a.example/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.example,a.example"}, "https://user@a.example:8000/v1", None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://a.example/v1", None),
    ],
)
def test_proxy_comes_from_the_environment(
    variables: dict[str, str], base_url: str, proxy: str | None, environment: pytest.MonkeyPatch
):
    for name, value in variables.items():
        environment.setenv(name, value)

    assert proxy_for(base_url) == proxy


@pytest.mark.parametrize("host", ["169.254.169.254", "0xa9fea9fe", "[::ffff:a9fe:a9fe]", "metadata.google.internal"])
def test_proxy_is_not_used_for_forbidden_addresses(host: str):
    async def send() -> None:
        async with httpx2.AsyncClient(
            transport=ProxyTransport("http://127.0.0.1:9", ssl.create_default_context(), ModelAddressPolicy())
        ) as client:
            await client.post(f"http://{host}/")

    with pytest.raises(AddressRefused):
        asyncio.run(send())


def test_all_clients_share_one_tls_context(monkeypatch: pytest.MonkeyPatch):
    loaded: set[ssl.SSLContext] = set()

    def recording(name: str) -> Callable[..., None]:
        load = getattr(ssl.SSLContext, name)

        def record_load(context: ssl.SSLContext, *args: Any, **kwargs: Any) -> None:
            loaded.add(context)
            load(context, *args, **kwargs)

        return record_load

    for name in ("load_verify_locations", "load_default_certs"):  # which of them depends on SSL_CERT_FILE
        monkeypatch.setattr(ssl.SSLContext, name, recording(name))
    model_clients.tls_context.cache_clear()

    async def borrow() -> None:
        for key in ("a", "b", "c"):
            async with borrow_client(spec(key)):
                pass
        await close_connections()

    asyncio.run(borrow())

    assert loaded == {model_clients.tls_context()}
