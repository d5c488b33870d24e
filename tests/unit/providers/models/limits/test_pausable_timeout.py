"""Timeouts that count work and not waits."""

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any

import pytest

from providers.models.limits.pausable_timeout import PausableTimeout, pause_timeouts

SHORT, LONG = 0.05, 0.15


def test_work_that_takes_too_long_is_ended():
    async def work() -> PausableTimeout:
        time = PausableTimeout(SHORT)
        with pytest.raises(TimeoutError):
            async with time:
                await asyncio.sleep(10)
        return time

    assert asyncio.run(work()).has_expired()


def test_a_wait_does_not_count_and_work_after_it_does():
    waited: list[float] = []

    async def work() -> None:
        async with PausableTimeout(LONG), PausableTimeout(SHORT) as time:
            with pause_timeouts():
                await asyncio.sleep(2 * LONG)
            waited.append(time.paused_seconds)
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        asyncio.run(work())
    assert waited[0] >= 2 * LONG * 0.9


def test_concurrent_waits_are_counted_once():
    async def wait(seconds: float) -> None:
        with pause_timeouts():
            await asyncio.sleep(seconds)

    async def work() -> tuple[float, float]:
        async with PausableTimeout(SHORT) as time:
            began = monotonic()
            await asyncio.gather(wait(LONG), wait(LONG / 2))
            return time.paused_seconds, monotonic() - began

    paused, passed = asyncio.run(work())

    assert LONG * 0.9 <= paused <= passed


def test_wait_in_an_unrelated_task_does_not_pause_the_timeout():
    async def wait() -> None:
        with pause_timeouts():
            await asyncio.sleep(10)

    async def work() -> None:
        elsewhere = asyncio.create_task(wait())
        try:
            async with PausableTimeout(SHORT):
                await asyncio.sleep(10)
        finally:
            elsewhere.cancel()

    with pytest.raises(TimeoutError):
        asyncio.run(work())


def test_cancel_during_a_wait_is_not_reported_as_a_timeout():
    async def wait() -> None:
        async with PausableTimeout(SHORT):
            with pause_timeouts():
                await asyncio.sleep(10)

    assert asyncio.run(cancelled(wait()))


def test_paused_seconds_are_measured_without_a_limit():
    async def work() -> tuple[float, float]:
        async with PausableTimeout(None) as time:
            began = monotonic()
            with pause_timeouts():
                await asyncio.sleep(SHORT)
            passed = monotonic() - began
            await asyncio.sleep(SHORT)
            return time.paused_seconds, passed

    paused, passed = asyncio.run(work())

    assert SHORT * 0.9 <= paused <= passed


async def cancelled(work: Coroutine[Any, Any, None]) -> bool:
    task = asyncio.create_task(work)
    await asyncio.sleep(LONG)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False
