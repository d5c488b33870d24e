"""When an attempt waits for a rate limit in place, and when it is rescheduled."""

import asyncio
import time
from uuid import uuid4

import pytest

from canvas.errors import AttemptStopped
from worker.context import rate_limit_wait
from worker.context.rate_limit_wait import MAX_WAIT_IN_PLACE, RESCHEDULE_EARLY, AttemptRateLimitWait, reschedule_delay
from worker.context.side_effects import SideEffectGuard
from worker.leases.attempt_handle import Attempt

LONG = 30.0


@pytest.fixture(autouse=True)
def short_retry_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit_wait, "RETRY_INTERVAL", 0.01)


def test_long_wait_reschedules_the_activation():
    limit_wait = make_limit_wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(wait_in_task(limit_wait, LONG))

    assert limit_wait.is_postponed
    assert limit_wait.attempt.postponed is not None
    assert limit_wait.attempt.postponed[1] == "Acme (default)"
    assert LONG - RESCHEDULE_EARLY - 1 < reschedule_delay(limit_wait.attempt) <= LONG - RESCHEDULE_EARLY


def test_short_wait_happens_in_place_and_extends_the_deadline():
    limit_wait = make_limit_wait()
    limit_wait.attempt.deadline = before = time.monotonic() + 5

    asyncio.run(wait_in_task(limit_wait, MAX_WAIT_IN_PLACE))

    assert not limit_wait.is_postponed
    assert limit_wait.attempt.deadline >= before + 0.01


def test_deadline_is_extended_by_the_time_that_was_waited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rate_limit_wait, "RETRY_INTERVAL", 1.0)
    limit_wait = make_limit_wait()
    limit_wait.attempt.deadline = before = time.monotonic() + 5

    async def cut_short() -> float | None:
        task = asyncio.create_task(wait_in_task(limit_wait, MAX_WAIT_IN_PLACE))
        await asyncio.sleep(0.01)
        meanwhile = limit_wait.attempt.deadline
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return meanwhile

    began = time.monotonic()
    assert asyncio.run(cut_short()) == before + 1.0
    assert before < limit_wait.attempt.deadline <= before + (time.monotonic() - began)


def test_unrecorded_request_keeps_the_wait_in_place():
    limit_wait = make_limit_wait()
    limit_wait.mark_sent()

    asyncio.run(wait_in_task(limit_wait, LONG))
    limit_wait.mark_recorded()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(wait_in_task(limit_wait, LONG))


def test_unrepeatable_work_keeps_the_wait_in_place():
    limit_wait = make_limit_wait()
    limit_wait.side_effects.declare_effect("unsafe")

    asyncio.run(wait_in_task(limit_wait, LONG))

    assert not limit_wait.is_postponed


def test_attempt_that_was_stopped_is_not_rescheduled():
    limit_wait = make_limit_wait()
    limit_wait.attempt.stopped = AttemptStopped("user")

    asyncio.run(wait_in_task(limit_wait, LONG))

    assert not limit_wait.is_postponed


def test_wait_during_a_shutdown_is_postponed():
    limit_wait = make_limit_wait()
    limit_wait.attempt.stopped = AttemptStopped("shutdown")

    assert limit_wait.is_postponed


async def wait_in_task(limit_wait: AttemptRateLimitWait, seconds: float) -> None:
    """Wait in a task that a stop cancels, as the worker's loop does."""
    task = asyncio.current_task()
    assert task is not None

    def stop(reason: str) -> None:
        if limit_wait.attempt.stopped is None:
            limit_wait.attempt.stopped = AttemptStopped(reason)
            task.cancel()

    limit_wait.stop = stop
    await limit_wait.wait(seconds, "Acme (default)")


def make_limit_wait() -> AttemptRateLimitWait:
    return AttemptRateLimitWait(Attempt(uuid4(), uuid4(), uuid4()), SideEffectGuard(lambda _: None), lambda _: None)
