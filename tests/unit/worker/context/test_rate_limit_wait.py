"""Who waits for an allowance in place, and who gives its place up."""

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
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limit_wait, "RETRY_INTERVAL", 0.01)


def test_long_wait_reschedules_the_activation():
    made = an_attempts()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(waiting(made, LONG))

    assert made.is_postponed
    assert made.attempt.postponed is not None
    assert made.attempt.postponed[1] == "Acme (default)"
    assert LONG - RESCHEDULE_EARLY - 1 < reschedule_delay(made.attempt) <= LONG - RESCHEDULE_EARLY


def test_short_wait_happens_in_place_and_extends_the_deadline():
    made = an_attempts()
    made.attempt.deadline = before = time.monotonic() + 5

    asyncio.run(waiting(made, MAX_WAIT_IN_PLACE))

    assert not made.is_postponed
    assert made.attempt.deadline >= before + 0.01


def test_deadline_is_extended_by_the_time_that_was_waited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rate_limit_wait, "RETRY_INTERVAL", 1.0)
    made = an_attempts()
    made.attempt.deadline = before = time.monotonic() + 5

    async def cut_short() -> float | None:
        task = asyncio.create_task(waiting(made, MAX_WAIT_IN_PLACE))
        await asyncio.sleep(0.01)
        meanwhile = made.attempt.deadline
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return meanwhile

    began = time.monotonic()
    assert asyncio.run(cut_short()) == before + 1.0
    assert before < made.attempt.deadline <= before + (time.monotonic() - began)


def test_unrecorded_request_keeps_the_wait_in_place():
    made = an_attempts()
    made.mark_sent()

    asyncio.run(waiting(made, LONG))
    made.mark_recorded()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(waiting(made, LONG))


def test_unrepeatable_work_keeps_the_wait_in_place():
    made = an_attempts()
    made.side_effects.declare_effect("unsafe")

    asyncio.run(waiting(made, LONG))

    assert not made.is_postponed


def test_attempt_that_was_stopped_is_not_rescheduled():
    made = an_attempts()
    made.attempt.stopped = AttemptStopped("user")

    asyncio.run(waiting(made, LONG))

    assert not made.is_postponed


def test_wait_during_a_shutdown_keeps_its_place():
    made = an_attempts()
    made.attempt.stopped = AttemptStopped("shutdown")

    assert made.is_postponed


async def waiting(made: AttemptRateLimitWait, seconds: float) -> None:
    """Wait on a task that a stop cancels, as the worker's loop does."""
    task = asyncio.current_task()
    assert task is not None

    def stop(reason: str) -> None:
        if made.attempt.stopped is None:
            made.attempt.stopped = AttemptStopped(reason)
            task.cancel()

    made.stop = stop
    await made.wait(seconds, "Acme (default)")


def an_attempts() -> AttemptRateLimitWait:
    return AttemptRateLimitWait(Attempt(uuid4(), uuid4(), uuid4()), SideEffectGuard(lambda _: None), lambda _: None)
