"""Which address of a model's server a connection is opened to."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import AddressRefused, ToolError
from providers.address_policy import Guard
from providers.models.transport import connect
from providers.models.transport.connect import (
    ModelAddressPolicy,
    connect_first,
    interleave_families,
    open_checked_socket,
)

T = TypeVar("T")
HERE = "127.0.0.1"


def within_seconds(steps: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(steps, 10))


@asynccontextmanager
async def listening() -> AsyncGenerator[int]:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Network:
    """Sockets that open when a test calls `finish`. `tried` has the addresses in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tried: list[str] = []
        self.answers: dict[str, asyncio.Future[socket.socket]] = {}
        self.opened: list[socket.socket] = []
        monkeypatch.setattr(connect, "_connect", self._open)

    async def _open(self, address: str, port: int) -> socket.socket:
        self.tried.append(address)
        answer = self.answers.setdefault(address, asyncio.get_running_loop().create_future())
        return await asyncio.shield(answer)

    def finish(self, address: str, answer: Exception | None = None) -> socket.socket:
        future = self.answers.setdefault(address, asyncio.get_running_loop().create_future())
        opened = socket.socket()
        if answer is not None:
            future.set_exception(answer)
        else:
            future.set_result(opened)
        return opened


async def wait_until_tried(network: Network, tried: int) -> None:
    while len(network.tried) < tried:
        await asyncio.sleep(0)


async def run_callbacks() -> None:
    """Run the callbacks of all tasks that are done."""
    for _ in range(5):
        await asyncio.sleep(0)


@given(st.lists(st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2"]), unique=True))
def test_address_families_alternate_and_no_address_is_lost(addresses: list[str]):
    interleaved = interleave_families(addresses)

    assert sorted(interleaved) == sorted(addresses)
    assert interleaved[:1] == addresses[:1]
    for family in (True, False):
        assert [each for each in interleaved if (":" in each) is family] == [
            each for each in addresses if (":" in each) is family
        ]
    both = 2 * min(sum(":" in each for each in addresses), sum(":" not in each for each in addresses))
    assert all((":" in left) is not (":" in right) for left, right in pairwise(interleaved[:both]))


def test_the_next_address_is_tried_at_once_when_one_refuses(monkeypatch: pytest.MonkeyPatch):
    async def steps() -> None:
        network = Network(monkeypatch)
        network.finish("10.0.0.1", ConnectionRefusedError("no"))
        second = network.finish("10.0.0.2")

        opened = await connect_first(["10.0.0.1", "10.0.0.2", "10.0.0.3"], 80, wait=60)

        assert opened is second
        assert network.tried == ["10.0.0.1", "10.0.0.2"]

    within_seconds(steps())


def test_the_next_address_is_tried_beside_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch):
    async def steps() -> None:
        network = Network(monkeypatch)
        fast = network.finish("10.0.0.1")

        assert await connect_first(["fd00::1", "10.0.0.1"], 80, wait=0.01) is fast
        late = network.finish("fd00::1")
        await run_callbacks()

        assert late.fileno() >= 0  # its attempt was cancelled before, so connect_first does not own this socket

    within_seconds(steps())


def test_second_of_two_simultaneous_connections_is_closed(monkeypatch: pytest.MonkeyPatch):
    async def steps() -> None:
        network = Network(monkeypatch)
        connecting = asyncio.create_task(connect_first(["fd00::1", "10.0.0.1"], 80, wait=0))
        await wait_until_tried(network, 2)

        both = [network.finish("fd00::1"), network.finish("10.0.0.1")]
        chosen = await connecting
        await run_callbacks()

        assert chosen in both
        assert [each.fileno() >= 0 for each in both].count(True) == 1
        assert chosen.fileno() >= 0

    within_seconds(steps())


def test_last_error_is_raised_if_no_address_answers(monkeypatch: pytest.MonkeyPatch):
    async def steps() -> None:
        network = Network(monkeypatch)
        network.finish("10.0.0.1", ConnectionRefusedError("first"))
        network.finish("10.0.0.2", OSError("last"))

        with pytest.raises(OSError, match="last"):
            await connect_first(["10.0.0.1", "10.0.0.2"], 80, wait=60)

    within_seconds(steps())


def test_cancelled_connect_leaves_no_attempt_running(monkeypatch: pytest.MonkeyPatch):
    async def steps() -> None:
        network = Network(monkeypatch)
        before = asyncio.all_tasks()
        work = asyncio.create_task(connect_first(["10.0.0.1", "10.0.0.2"], 80, wait=0))
        await wait_until_tried(network, 2)

        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        await run_callbacks()

        assert asyncio.all_tasks() == before

    within_seconds(steps())


def test_name_is_resolved_once_and_the_checked_address_is_used():
    lookups: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        lookups.append(name)
        return [HERE] if len(lookups) == 1 else ["169.254.169.254"]

    async def steps() -> str:
        async with listening() as port:
            with await open_checked_socket("ollama.internal", port, ModelAddressPolicy(), resolve) as opened:
                return str(opened.getpeername()[0])

    assert within_seconds(steps()) == HERE
    assert lookups == ["ollama.internal"]


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
def test_deployment_decides_which_addresses_models_may_have(
    hosts: ModelAddressPolicy, address: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
):
    async def resolve(name: str, port: int) -> Sequence[str]:
        return [address]

    async def steps() -> list[str]:
        network = Network(monkeypatch)
        network.finish(address)
        with pytest.raises(AddressRefused, match=r"^The base URL ") if is_refused else nullcontext():
            (await open_checked_socket("models.example", 443, hosts, resolve)).close()
        return network.tried

    assert within_seconds(steps()) == ([] if is_refused else [address])


def test_unknown_name_is_a_retryable_error():
    async def unknown(name: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(ToolError) as failed:
        within_seconds(open_checked_socket("models.example", 443, ModelAddressPolicy(), unknown))

    assert failed.value.retryable
    assert not isinstance(failed.value, AddressRefused)
