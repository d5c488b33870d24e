"""An attempt's word on what it may be doing outside."""

import asyncio
from contextlib import suppress

import pytest

from canvas.errors import AttemptStopped
from worker.context.side_effects import SideEffectGuard


def test_only_keyed_and_unsafe_effects_are_recorded():
    written: list[str] = []
    for effect in ("pure", "idempotent", "keyed", "unsafe"):
        SideEffectGuard(written.append).declare_effect(effect)

    assert written == ["keyed", "unsafe"]


def test_overlapping_unrepeatable_work_is_unsafe_until_the_last_record():
    written: list[str] = []
    acting = SideEffectGuard(written.append)

    async def work(pause: float) -> None:
        async with acting.non_repeatable():
            assert acting.is_unsafe
            await asyncio.sleep(pause)

    async def all_of_it() -> None:
        acting.declare_effect("keyed")
        await asyncio.gather(work(0.01), work(0.02), work(0))
        assert not acting.is_unsafe
        await work(0)

    asyncio.run(all_of_it())

    assert written == ["keyed", "unsafe", "keyed", "unsafe", "keyed"]


@pytest.mark.parametrize("end", [asyncio.CancelledError(), OSError("the database is away"), AttemptStopped("lease")])
def test_work_without_a_record_stays_unsafe(end: BaseException):
    written: list[str] = []
    acting = SideEffectGuard(written.append)

    async def work() -> None:
        with suppress(type(end)):
            async with acting.non_repeatable():
                raise end

    asyncio.run(work())

    assert (acting.is_unsafe, written) == (True, ["unsafe"])


def test_work_that_never_began_is_not_unsafe():
    def refused(effect: str) -> None:
        raise AttemptStopped("lease")

    acting = SideEffectGuard(refused)

    with pytest.raises(AttemptStopped):
        acting.declare_effect("unsafe")

    assert not acting.is_unsafe


def test_unrepeatable_work_in_an_unsafe_node_records_nothing():
    written: list[str] = []
    acting = SideEffectGuard(written.append)

    async def work() -> None:
        acting.declare_effect("unsafe")
        async with acting.non_repeatable():
            pass

    asyncio.run(work())

    assert (acting.is_unsafe, written) == (True, ["unsafe"])
