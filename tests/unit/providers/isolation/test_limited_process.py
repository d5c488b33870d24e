"""Child processes with limits: their results, their limits and their cleanup."""

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
DEADLINE = 60.0  # seconds; far more than any call takes on an idle machine
LIMITS = ProcessLimits(memory=1024 * MIB, seconds=DEADLINE, reply=16 * MIB)


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
    deadline = time.monotonic() + DEADLINE
    while is_running(process):
        assert time.monotonic() < deadline, "the child process is still there"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "value", [None, "héé\u2028", {"a": [1, 2.5, True, None]}, b"", b"\x00\xff" * 70_000, "\ud800", 2**80, "a" * MIB]
)
async def test_value_is_returned_from_a_child_process_unchanged(pool: ProcessPool, value: object):
    assert await pool.run(work.return_value, value) == value


async def test_bytes_and_named_arguments_reach_a_child_process(pool: ProcessPool):
    assert await pool.run(work.length, bytes(3 * MIB), twice=True) == 6 * MIB


async def test_one_child_process_serves_many_calls(pool: ProcessPool):
    served = {await pool.run(work.process_id) for _ in range(3)}

    assert len(served) == 1
    assert os.getpid() not in served


async def test_a_child_process_sees_no_secrets_of_its_parent(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_SECRET", "s3cret")

    assert not [
        name for name in await pool.run(work.environment_variables) if name.startswith(("EASEL", "PYTEST", "DATABASE"))
    ]


async def test_call_that_holds_the_interpreter_lock_is_ended_at_its_timeout(pool: ProcessPool):
    before = await pool.run(work.process_id)

    with pytest.raises(ResourceLimitExceeded, match=r"longer than 0.5 s"):
        await pool.run_within(0.5, work.hold_interpreter_lock)

    assert await pool.run(work.process_id) != before
    await_end(before)


async def test_call_that_exceeds_its_memory_limit_fails_and_the_next_call_works(pool: ProcessPool):
    with pytest.raises(ResourceLimitExceeded, match=r"more than 1,024 MiB of memory"):
        await pool.run(work.allocate_8_gib)

    assert await pool.run(work.return_value, 1) == 1


@pytest.mark.parametrize(("ends", "message"), [(work.crash, "signal 11"), (work.exit_process, "no valid reply")])
async def test_call_that_ends_its_process_fails_and_the_next_call_works(pool: ProcessPool, ends: object, message: str):
    with pytest.raises(ResourceLimitExceeded, match=message):
        await pool.run(ends)  # pyright: ignore[reportArgumentType]

    assert await pool.run(work.return_value, 1) == 1


async def test_a_result_that_is_too_large_is_refused():
    with pool_of(1, ProcessLimits(reply=MIB)) as pool:
        with pytest.raises(ResourceLimitExceeded, match=r"larger than 1 MiB"):
            await pool.run(work.return_text, 2 * MIB)

        assert await pool.run(work.return_text, 3) == "aaa"


async def test_exception_in_a_child_process_keeps_its_type_and_details(pool: ProcessPool):
    with pytest.raises(FileUnreadable, match="is damaged") as unreadable:
        await pool.run(work.raise_file_unreadable, "a.pdf")
    with pytest.raises(ToolError) as retryable:
        await pool.run(work.raise_retryable)
    with pytest.raises(NodeFailure, match=r"^LookupError: nobody is here$"):
        await pool.run(work.raise_lookup_error)
    with pytest.raises(NodeFailure, match="not JSON serializable"):
        await pool.run(work.return_unpicklable)

    assert unreadable.value.details == {"file": "a.pdf"}
    assert retryable.value.retryable
    assert retryable.value.details == {}


async def test_cancelling_a_call_ends_its_process(pool: ProcessPool):
    process = await pool.run(work.process_id)
    call = asyncio.create_task(pool.run(work.hold_interpreter_lock))
    while not pool.is_busy:
        await asyncio.sleep(0.01)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    await_end(process)
    assert await pool.run(work.return_value, 1) == 1


async def test_cancelled_call_that_waits_for_a_process_is_never_made(pool: ProcessPool, tmp_path: Path):
    first = asyncio.create_task(pool.run(work.sleep_for, 0.5))
    second = asyncio.create_task(pool.run(os.mkdir, str(tmp_path / "made")))
    await asyncio.sleep(0)

    second.cancel()
    await first
    await pool.run(work.process_id)

    assert not (tmp_path / "made").exists()


async def test_one_owner_never_occupies_all_child_processes():
    with pool_of(2) as pool:
        OWNER.set("greedy")
        greedy = [asyncio.create_task(pool.run(work.hold_interpreter_lock)) for _ in range(8)]
        while not pool.is_busy:
            await asyncio.sleep(0.01)

        OWNER.set("other")
        assert await asyncio.wait_for(pool.run(work.return_value, 1), DEADLINE) == 1

        for each in greedy:
            each.cancel()
        await asyncio.gather(*greedy, return_exceptions=True)


async def test_child_process_serves_waiting_owners_in_rotation(pool: ProcessPool):
    order: list[str] = []

    async def call_as(owner: str) -> None:
        OWNER.set(owner)
        await pool.run(work.sleep_for, 0.01)
        order.append(owner)

    busy = asyncio.create_task(pool.run(work.sleep_for, 1.0))  # all owners wait before the first is served
    while not pool.is_busy:
        await asyncio.sleep(0.01)
    calls = [asyncio.create_task(call_as(owner)) for owner in ("a", "a", "a", "b")]
    await asyncio.gather(busy, *calls)

    assert order == ["a", "b", "a", "a"]


async def test_idle_child_process_ends_and_is_replaced_at_the_next_call():
    with pool_of(1, ProcessLimits(idle=0.05)) as pool:
        process = await pool.run(work.process_id)
        await_end(process)

        assert await pool.run(work.process_id) != process


async def test_a_closed_pool_leaves_neither_processes_nor_threads():
    before = set(threading.enumerate())
    pool = ProcessPool(2, LIMITS)
    process = await pool.run(work.process_id)
    busy = asyncio.create_task(pool.run(work.hold_interpreter_lock))
    while not pool.is_busy:
        await asyncio.sleep(0.01)

    await asyncio.to_thread(pool.close)

    with pytest.raises(ResourceLimitExceeded):
        await busy
    with pytest.raises(ResourceLimitExceeded, match="shutting down"):
        await pool.run(work.process_id)
    await_end(process)
    assert "easel-limited" not in [thread.name for thread in set(threading.enumerate()) - before]
