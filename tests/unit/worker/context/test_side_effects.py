"""The side effects that an attempt records."""

import asyncio
from contextlib import suppress

import pytest

from canvas.errors import AttemptStopped
from worker.context.side_effects import SideEffectGuard


def test_only_keyed_and_unsafe_effects_are_recorded():
    recorded: list[str] = []
    for effect in ("pure", "idempotent", "keyed", "unsafe"):
        SideEffectGuard(recorded.append).declare_effect(effect)

    assert recorded == ["keyed", "unsafe"]


def test_overlapping_unrepeatable_work_is_unsafe_until_the_last_record():
    recorded: list[str] = []
    guard = SideEffectGuard(recorded.append)

    async def work(pause: float) -> None:
        async with guard.non_repeatable():
            assert guard.is_unsafe
            await asyncio.sleep(pause)

    async def run_all() -> None:
        guard.declare_effect("keyed")
        await asyncio.gather(work(0.01), work(0.02), work(0))
        assert not guard.is_unsafe
        await work(0)

    asyncio.run(run_all())

    assert recorded == ["keyed", "unsafe", "keyed", "unsafe", "keyed"]


@pytest.mark.parametrize("end", [asyncio.CancelledError(), OSError("the database is away"), AttemptStopped("lease")])
def test_work_without_a_record_stays_unsafe(end: BaseException):
    recorded: list[str] = []
    guard = SideEffectGuard(recorded.append)

    async def work() -> None:
        with suppress(type(end)):
            async with guard.non_repeatable():
                raise end

    asyncio.run(work())

    assert (guard.is_unsafe, recorded) == (True, ["unsafe"])


def test_work_that_never_began_is_not_unsafe():
    def refuse(effect: str) -> None:
        raise AttemptStopped("lease")

    guard = SideEffectGuard(refuse)

    with pytest.raises(AttemptStopped):
        guard.declare_effect("unsafe")

    assert not guard.is_unsafe


def test_unrepeatable_work_in_an_unsafe_node_records_nothing():
    recorded: list[str] = []
    guard = SideEffectGuard(recorded.append)

    async def work() -> None:
        guard.declare_effect("unsafe")
        async with guard.non_repeatable():
            pass

    asyncio.run(work())

    assert (guard.is_unsafe, recorded) == (True, ["unsafe"])
