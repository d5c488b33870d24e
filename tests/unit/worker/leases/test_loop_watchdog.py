"""A component that blocks the event loop is found, and named."""

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import structlog
from structlog.testing import capture_logs

from worker.event_loop import WorkerLoop
from worker.leases import loop_watchdog as turning_module
from worker.leases.attempt_handle import Attempt
from worker.leases.loop_watchdog import EventLoopWatchdog


class Held:
    """Stands where leases are."""

    def __init__(self, *attempts: Attempt) -> None:
        self._held = list(attempts)

    def attempts(self) -> list[Attempt]:
        return self._held

    def forget(self, attempt: Attempt) -> None:
        self._held.remove(attempt)


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    loop = WorkerLoop()
    yield loop
    loop.stop()


def turning_of(loop: WorkerLoop, leases: Any) -> EventLoopWatchdog:
    return EventLoopWatchdog(loop, leases, blocked_after=30.0)


def test_working_loop_is_never_reported(loop: WorkerLoop) -> None:
    turning = turning_of(loop, Held())
    waiting = loop.submit(asyncio.sleep(3600))

    for _ in range(10):
        assert turning.check(10.0) is None
        loop.submit(asyncio.sleep(0)).result(timeout=5)
    waiting.cancel()


def test_attempt_that_blocks_the_loop_is_logged_and_not_released(
    loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = structlog.make_filtering_bound_logger(0)  # whatever level somebody has configured
    monkeypatch.setattr(
        turning_module, "log", structlog.wrap_logger(structlog.ReturnLogger(), wrapper_class=everything)
    )
    guilty, innocent = (Attempt(uuid4(), uuid4(), uuid4()) for _ in range(2))
    leases, goes_on = Held(guilty, innocent), list[bool]()
    turning = turning_of(loop, leases)
    turning.check(1.0)

    with structlog.contextvars.bound_contextvars(activation_id=str(guilty.activation_id), node="Agent:0"):
        blocked = loop.submit(block(goes_on))
    until_in(loop, "block_deep_down")
    with capture_logs() as logs:
        turning.check(1.0)
        early = [turning.check(6.0), turning.check(6.0)]
        late = turning.check(30.0)
    goes_on.append(True)
    blocked.result(timeout=5)

    assert early == [None, None]
    assert late is not None
    assert late.startswith("its event loop has been blocked for")
    assert [(line["event"], line["node"]) for line in logs] == [("loop_blocked", "Agent:0")]
    assert "block_deep_down" in logs[0]["at"]
    assert leases.attempts() == [innocent]
    assert guilty.is_reported, "nobody reports in its name: its lease runs out"


async def block(goes_on: list[bool]) -> None:
    """A tool that an Agent calls beside others, and that waits where it should not."""
    await asyncio.gather(asyncio.sleep(0), block_deep_down(goes_on))


async def block_deep_down(goes_on: list[bool]) -> None:
    while not goes_on:  # no call into Python code, so that this is always where the loop is
        time.sleep(0.001)


def until_in(loop: WorkerLoop, function: str) -> None:
    """Wait until the loop's thread is in a function."""
    deadline = time.monotonic() + 5
    while True:
        frame = sys._current_frames().get(loop.thread_id or 0)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            if frame.f_code.co_name == function:
                return
            frame = frame.f_back
        assert time.monotonic() < deadline
        time.sleep(0.002)
