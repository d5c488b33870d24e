"""The watchdog of the event loop finds and logs a component that blocks it."""

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import structlog
from structlog.testing import capture_logs

from worker.leases import loop_watchdog as watchdog_module
from worker.leases.attempt_handle import Attempt
from worker.leases.loop_watchdog import EventLoopWatchdog
from worker.threads.event_loop import WorkerLoop


class FakeLeases:
    """The leases of these attempts."""

    def __init__(self, *attempts: Attempt) -> None:
        self._attempts = list(attempts)

    def attempts(self) -> list[Attempt]:
        return self._attempts

    def forget(self, attempt: Attempt) -> None:
        self._attempts.remove(attempt)


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    loop = WorkerLoop()
    yield loop
    loop.stop()


def watchdog_of(loop: WorkerLoop, leases: Any) -> EventLoopWatchdog:
    return EventLoopWatchdog(loop, leases, blocked_after=30.0)


def test_working_loop_is_never_reported(loop: WorkerLoop) -> None:
    watchdog = watchdog_of(loop, FakeLeases())
    waiting = loop.submit(asyncio.sleep(3600))

    for _ in range(10):
        assert watchdog.check(10.0) is None
        loop.submit(asyncio.sleep(0)).result(timeout=5)
    waiting.cancel()


def test_attempt_that_blocks_the_loop_is_logged_and_not_released(
    loop: WorkerLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = structlog.make_filtering_bound_logger(0)  # at any configured level
    monkeypatch.setattr(
        watchdog_module, "log", structlog.wrap_logger(structlog.ReturnLogger(), wrapper_class=everything)
    )
    blocking, other = (Attempt(uuid4(), uuid4(), uuid4()) for _ in range(2))
    leases, may_continue = FakeLeases(blocking, other), list[bool]()
    watchdog = watchdog_of(loop, leases)
    watchdog.check(1.0)

    with structlog.contextvars.bound_contextvars(activation_id=str(blocking.activation_id), node="Agent:0"):
        blocked = loop.submit(block(may_continue))
    wait_until_in(loop, "block_deep_down")
    with capture_logs() as logs:
        watchdog.check(1.0)
        early = [watchdog.check(6.0), watchdog.check(6.0)]
        late = watchdog.check(30.0)
    may_continue.append(True)
    blocked.result(timeout=5)

    assert early == [None, None]
    assert late is not None
    assert late.startswith("its event loop has been blocked for")
    assert [(line["event"], line["node"]) for line in logs] == [("loop_blocked", "Agent:0")]
    assert "block_deep_down" in logs[0]["at"]
    assert leases.attempts() == [other]
    assert blocking.is_reported, "its lease has to expire"


async def block(may_continue: list[bool]) -> None:
    """An Agent's tool that blocks the event loop while other tools run."""
    await asyncio.gather(asyncio.sleep(0), block_deep_down(may_continue))


async def block_deep_down(may_continue: list[bool]) -> None:
    while not may_continue:  # calls no Python function, so that the loop is always found here
        time.sleep(0.001)


def wait_until_in(loop: WorkerLoop, function: str) -> None:
    """Wait until the loop's thread executes a function."""
    deadline = time.monotonic() + 5
    while True:
        frame = sys._current_frames().get(loop.thread_id or 0)  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            if frame.f_code.co_name == function:
                return
            frame = frame.f_back
        assert time.monotonic() < deadline
        time.sleep(0.002)
