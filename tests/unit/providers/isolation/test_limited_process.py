"""Child processes with limits: what they give back, what they refuse, and that nothing of them is left."""

import asyncio
import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canvas.errors import NodeFailure, ToolError
from components.text.extraction.file_kinds import FileUnreadable
from providers.isolation.limited_process import OWNER, ProcessLimits, ProcessPool, ResourceLimitExceeded
from tests import limited_work as work

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
SOON = 60.0  # seconds; far more than anything here takes on a machine that has nothing else to do
LIMITS = ProcessLimits(memory=1024 * MIB, seconds=SOON, reply=16 * MIB)


@contextmanager
def pool_of(size: int, limits: ProcessLimits = LIMITS) -> Generator[ProcessPool]:
    pool = ProcessPool(size, limits)
    try:
        yield pool
    finally:
        pool.close()


@pytest.fixture
def pool() -> Iterator[ProcessPool]:
    with pool_of(1) as pool:
        yield pool


def is_running(process: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def await_end(process: int) -> None:
    give_up = time.monotonic() + SOON
    while is_running(process):
        assert time.monotonic() < give_up, "the child process is still there"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "value", [None, "héé\u2028", {"a": [1, 2.5, True, None]}, b"", b"\x00\xff" * 70_000, "\ud800", 2**80, "a" * MIB]
)
async def test_a_value_comes_back_from_a_child_process_as_it_was(pool: ProcessPool, value: object):
    assert await pool.run(work.returned, value) == value


async def test_bytes_and_named_arguments_reach_a_child_process(pool: ProcessPool):
    assert await pool.run(work.length, bytes(3 * MIB), twice=True) == 6 * MIB


async def test_one_child_process_serves_many_calls(pool: ProcessPool):
    served = {await pool.run(work.process_id) for _ in range(3)}

    assert len(served) == 1
    assert os.getpid() not in served


async def test_a_child_process_sees_no_secrets_of_its_parent(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_SECRET", "s3cret")

    assert not [name for name in await pool.run(work.variables) if name.startswith(("EASEL", "PYTEST", "DATABASE"))]


async def test_a_call_that_holds_the_interpreters_lock_is_ended_after_its_time(pool: ProcessPool):
    before = await pool.run(work.process_id)

    with pytest.raises(ResourceLimitExceeded, match=r"longer than 0.5 s"):
        await pool.run_within(0.5, work.holding_the_lock)

    assert await pool.run(work.process_id) != before
    await_end(before)


async def test_a_call_that_wants_too_much_memory_is_refused_and_the_next_one_works(pool: ProcessPool):
    with pytest.raises(ResourceLimitExceeded, match=r"more than 1,024 MiB of memory"):
        await pool.run(work.hungry)

    assert await pool.run(work.returned, 1) == 1


@pytest.mark.parametrize(("ends", "message"), [(work.crashing, "signal 11"), (work.leaving, "no valid reply")])
async def test_a_call_that_ends_its_process_is_refused_and_the_next_one_works(
    pool: ProcessPool, ends: object, message: str
):
    with pytest.raises(ResourceLimitExceeded, match=message):
        await pool.run(ends)  # pyright: ignore[reportArgumentType]

    assert await pool.run(work.returned, 1) == 1


async def test_a_result_that_is_too_large_is_refused():
    with pool_of(1, ProcessLimits(reply=MIB)) as pool:
        with pytest.raises(ResourceLimitExceeded, match=r"larger than 1 MiB"):
            await pool.run(work.verbose, 2 * MIB)

        assert await pool.run(work.verbose, 3) == "aaa"


async def test_a_failure_keeps_its_kind_and_its_details(pool: ProcessPool):
    with pytest.raises(FileUnreadable, match="is damaged") as unreadable:
        await pool.run(work.unreadable, "a.pdf")
    with pytest.raises(ToolError) as retryable:
        await pool.run(work.retryable)
    with pytest.raises(NodeFailure, match=r"^LookupError: nobody is here$"):
        await pool.run(work.failing)
    with pytest.raises(NodeFailure, match="not JSON serializable"):
        await pool.run(work.unsendable)

    assert unreadable.value.details == {"file": "a.pdf"}
    assert retryable.value.retryable
    assert retryable.value.details == {}


async def test_cancelling_a_call_ends_its_process(pool: ProcessPool):
    process = await pool.run(work.process_id)
    call = asyncio.create_task(pool.run(work.holding_the_lock))
    while not pool.is_busy:
        await asyncio.sleep(0.01)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await_end(process)
    assert await pool.run(work.returned, 1) == 1


async def test_a_call_that_waits_can_be_cancelled_and_is_never_made(pool: ProcessPool, tmp_path: Path):
    first = asyncio.create_task(pool.run(work.sleeping, 0.5))
    second = asyncio.create_task(pool.run(os.mkdir, str(tmp_path / "made")))
    await asyncio.sleep(0)

    second.cancel()
    await first
    await pool.run(work.process_id)

    assert not (tmp_path / "made").exists()


async def test_one_owner_never_occupies_all_child_processes():
    with pool_of(2) as pool:
        OWNER.set("greedy")
        greedy = [asyncio.create_task(pool.run(work.holding_the_lock)) for _ in range(8)]
        while not pool.is_busy:
            await asyncio.sleep(0.01)

        OWNER.set("other")
        assert await asyncio.wait_for(pool.run(work.returned, 1), SOON) == 1

        for each in greedy:
            each.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)


async def test_owners_take_turns_for_a_child_process(pool: ProcessPool):
    order: list[str] = []

    async def ask(owner: str) -> None:
        OWNER.set(owner)
        await pool.run(work.sleeping, 0.01)
        order.append(owner)

    busy = asyncio.create_task(pool.run(work.sleeping, 1.0))  # so that all of them wait before one is served
    while not pool.is_busy:
        await asyncio.sleep(0.01)
    asked = [asyncio.create_task(ask(owner)) for owner in ("a", "a", "a", "b")]
    await asyncio.gather(busy, *asked)

    assert order == ["a", "b", "a", "a"]


async def test_a_child_process_without_work_ends_and_another_takes_its_place():
    with pool_of(1, ProcessLimits(idle=0.05)) as pool:
        process = await pool.run(work.process_id)
        await_end(process)

        assert await pool.run(work.process_id) != process


async def test_a_closed_pool_leaves_neither_processes_nor_threads():
    before = set(threading.enumerate())
    pool = ProcessPool(2, LIMITS)
    process = await pool.run(work.process_id)
    busy = asyncio.create_task(pool.run(work.holding_the_lock))
    while not pool.is_busy:
        await asyncio.sleep(0.01)

    await asyncio.to_thread(pool.close)

    with pytest.raises(ResourceLimitExceeded):
        await busy
    with pytest.raises(ResourceLimitExceeded, match="shutting down"):
        await pool.run(work.process_id)
    await_end(process)
    assert "easel-limited" not in [thread.name for thread in set(threading.enumerate()) - before]
