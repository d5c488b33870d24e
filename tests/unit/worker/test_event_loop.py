"""One event loop a process, in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from worker.event_loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


def test_coroutines_of_all_callers_run_on_one_thread_that_is_not_the_callers(loop: Loop):
    async def where() -> int:
        await asyncio.sleep(0)
        return threading.get_ident()

    threads = {loop.submit(where()).result(5) for _ in range(2)}

    assert len(threads) == 1
    assert threads != {threading.get_ident()}


def test_what_a_coroutine_raises_comes_out_where_it_was_handed_over(loop: Loop):
    async def broken() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop.submit(broken()).result(5)


def test_coroutines_of_several_threads_run_side_by_side(loop: Loop):
    async def meet(mine: asyncio.Event, others: asyncio.Event) -> str:
        mine.set()
        await others.wait()
        return "met"

    one, two = asyncio.Event(), asyncio.Event()
    met = [loop.submit(meet(one, two)), loop.submit(meet(two, one))]

    assert [future.result(5) for future in met] == ["met", "met"]


def test_a_task_that_is_cancelled_from_another_thread_ends_there_too(loop: Loop):
    tasks: list[asyncio.Task[None]] = []
    begun = threading.Event()

    async def wait() -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        begun.set()
        await asyncio.sleep(60)

    future = loop.submit(wait())
    assert begun.wait(5)
    loop.call(tasks[0].cancel)

    with pytest.raises(CancelledError):
        future.result(5)


def test_a_loop_that_ends_closes_what_lives_on_it_first():
    closed: list[int] = []

    async def where() -> int:
        return threading.get_ident()

    async def close() -> None:
        await asyncio.sleep(0)
        closed.append(threading.get_ident())

    loop = Loop()
    its_thread = loop.submit(where()).result(5)
    loop.stop(close())

    assert closed == [its_thread]


def test_it_tells_when_the_first_coroutine_begins_and_when_the_last_one_is_over() -> None:
    loop, told = Loop(), list[bool]()
    loop.tells = told.append

    async def until(event: asyncio.Event) -> None:
        await event.wait()

    first, second = asyncio.Event(), asyncio.Event()

    waiting = [loop.submit(until(first)), loop.submit(until(second))]
    loop.call(first.set)
    waiting[0].result(timeout=5)
    assert told == [True]

    waiting[1].cancel()
    assert told == [True, False]
    loop.call(second.set)
    loop.submit(asyncio.sleep(0)).result(timeout=5)  # it has seen that
    loop.stop()
