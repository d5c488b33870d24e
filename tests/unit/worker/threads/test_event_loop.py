"""The event loop of a worker process, in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from worker.threads.event_loop import WorkerLoop


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    loop = WorkerLoop()
    yield loop
    loop.stop()


def test_coroutines_of_all_callers_run_on_one_thread_of_the_loop(loop: WorkerLoop):
    async def thread_of_the_loop() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    threads = {loop.submit(thread_of_the_loop()).result(5) for _ in range(2)}

    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_exception_of_a_coroutine_is_raised_in_the_calling_thread(loop: WorkerLoop):
    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.submit(broken()).result(5)


def test_coroutines_of_several_threads_run_concurrently(loop: WorkerLoop):
    async def meet(mine: asyncio.Event, others: asyncio.Event) -> str:
        mine.set()
        await others.wait()
        return "met"

    one, two = asyncio.Event(), asyncio.Event()
    met = [loop.submit(meet(one, two)), loop.submit(meet(two, one))]

    assert [future.result(5) for future in met] == ["met", "met"]


def test_task_cancelled_from_another_thread_is_cancelled_for_its_caller(loop: WorkerLoop):
    tasks: list[asyncio.Task[None]] = []
    has_begun = threading.Event()

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        has_begun.set()
        await asyncio.sleep(60)

    future = loop.submit(wait())
    assert has_begun.wait(30)
    loop.call(tasks[0].cancel)

    with pytest.raises(CancelledError):
        future.result(5)


def test_stopping_loop_runs_the_closing_coroutine_first():
    closed: list[int] = []

    async def thread_of_the_loop() -> int:
        return threading.get_ident()

    async def close() -> None:
        await asyncio.sleep(0)
        closed.append(threading.get_ident())

    loop = WorkerLoop()
    its_thread = loop.submit(thread_of_the_loop()).result(5)
    loop.stop(close())

    assert closed == [its_thread]


def test_loop_reports_its_first_and_its_last_coroutine() -> None:
    loop, changes = WorkerLoop(), list[bool]()
    loop.on_busy_change = changes.append

    async def wait_for(event: asyncio.Event) -> None:
        await event.wait()

    first, second = asyncio.Event(), asyncio.Event()

    waiting = [loop.submit(wait_for(first)), loop.submit(wait_for(second))]
    loop.call(first.set)
    waiting[0].result(timeout=5)
    assert changes == [True]

    waiting[1].cancel()
    assert changes == [True, False]
    loop.call(second.set)
    loop.submit(asyncio.sleep(0)).result(timeout=5)  # the loop has handled the event
    loop.stop()
