"""Which addresses of a model's server connections may be opened to."""

import asyncio
import socket
import ssl
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import httpx2
import pytest

from canvas.errors import AddressRefused, ToolError
from providers.address_policy import Guard, Resolve
from providers.models.transport.connect import MAX_ADDRESSES, CheckedResolver, ModelAddressPolicy
from providers.models.transport.transport import PooledTransport

T = TypeVar("T")
HERE = "127.0.0.1"


def within_seconds(steps: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(steps, 10))


def resolves_to(*addresses: str) -> Resolve:
    async def resolve(name: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


async def post(port: int, host: str, resolve: Resolve, hosts: ModelAddressPolicy | None = None) -> int:
    transport = PooledTransport(ssl.create_default_context(), hosts, resolve=resolve)
    async with httpx2.AsyncClient(transport=transport, timeout=5) as http:
        return (await http.post(f"http://{host}:{port}/", json={})).status_code


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    writer.close()


def test_connection_goes_to_the_checked_address_of_a_name():
    lookups: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        lookups.append(name)
        return [HERE] if len(lookups) == 1 else ["169.254.169.254"]

    async def steps() -> int:
        async with await asyncio.start_server(serve, HERE, 0) as server:
            port: int = server.sockets[0].getsockname()[1]
            status = await post(port, "ollama.internal", resolve)
            with pytest.raises(AddressRefused):  # a connection of its own is checked anew
                await post(port, "ollama.internal", resolve)
            return status

    assert within_seconds(steps()) == 200
    assert lookups == ["ollama.internal"] * 2


def test_next_address_is_tried_when_one_refuses():
    async def steps() -> int:
        async with await asyncio.start_server(serve, HERE, 0) as server:
            port: int = server.sockets[0].getsockname()[1]
            return await post(port, "ollama.internal", resolves_to("127.0.0.2", "::1", HERE))

    assert within_seconds(steps()) == 200


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "2852039166", "0xa9fea9fe", "1.2.3.4.5"]
)
def test_literal_address_is_checked_though_nothing_is_resolved(host: str):
    with pytest.raises(AddressRefused, match=r"^The base URL "):
        within_seconds(post(80, host, resolves_to()))


def test_addresses_of_both_families_are_given_and_no_more_than_the_limit():
    addresses = [*(f"10.0.0.{number}" for number in range(1, 20)), "fd00::1"]

    found = within_seconds(CheckedResolver(ModelAddressPolicy(), resolves_to("fd00::1", *addresses)).resolve("x", 80))

    assert [each["host"] for each in found] == ["fd00::1", *addresses[: MAX_ADDRESSES - 1]]
    assert [each["family"] for each in found[:2]] == [socket.AF_INET6, socket.AF_INET]


def test_one_refused_address_refuses_the_name():
    with pytest.raises(AddressRefused):
        within_seconds(CheckedResolver(ModelAddressPolicy(), resolves_to(HERE, "169.254.169.254")).resolve("x", 80))


@pytest.mark.parametrize(
    ("hosts", "address", "is_refused"),
    [
        (ModelAddressPolicy(), "10.0.0.1", False),
        (ModelAddressPolicy(), "169.254.169.254", True),
        (ModelAddressPolicy(Guard(allowed=("169.254.169.254",))), "169.254.169.254", False),
        (ModelAddressPolicy(Guard(allow_any=True)), "169.254.169.254", False),
        (ModelAddressPolicy(private=False), "10.0.0.1", True),
        (ModelAddressPolicy(private=False), "127.0.0.1", True),
        (ModelAddressPolicy(private=False), "93.184.216.34", False),
        (ModelAddressPolicy(Guard(allowed=("10.0.0.0/8",)), private=False), "10.0.0.1", False),
    ],
)
def test_deployment_decides_which_addresses_models_may_have(hosts: ModelAddressPolicy, address: str, is_refused: bool):
    async def steps() -> list[str]:
        with pytest.raises(AddressRefused, match=r"^The base URL ") if is_refused else nullcontext():
            return [each["host"] for each in await CheckedResolver(hosts, resolves_to(address)).resolve("a.b", 443)]
        return []

    assert within_seconds(steps()) == ([] if is_refused else [address])


def test_unknown_name_is_a_retryable_error():
    async def unknown(name: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(ToolError) as failed:
        within_seconds(CheckedResolver(ModelAddressPolicy(), unknown).resolve("models.example", 443))

    assert failed.value.retryable
    assert not isinstance(failed.value, AddressRefused)
