"""Who waits for the one place of a process for what may kill it."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from worker.leases.attempt_handle import Attempt
from worker.leases.poison_tasks import PoisonTaskSlot, TaskRef


def an_attempt(hint: TaskRef | None = None) -> Attempt:
    return Attempt(*(hint or (uuid4(), uuid4())), uuid4())


def hint_of(attempt: Attempt) -> TaskRef:
    return attempt.run_id, attempt.activation_id


def test_second_poison_task_is_set_aside_until_the_first_leaves():
    place = PoisonTaskSlot()
    first, second = an_attempt(), an_attempt()
    assert place.acquire(first)

    is_taken = place.acquire(second)

    assert not is_taken
    assert place.release(first) == hint_of(second)
    assert place.acquire(an_attempt())


def test_attempt_without_the_slot_frees_nothing():
    place = PoisonTaskSlot()
    holder, stranger = an_attempt(), an_attempt()
    place.acquire(holder)

    assert place.release(stranger) is None
    assert not place.acquire(an_attempt())


def test_task_that_comes_twice_is_set_aside_once():
    place = PoisonTaskSlot()
    first, second = an_attempt(), an_attempt()
    place.acquire(first)
    place.acquire(second)
    place.acquire(an_attempt(hint_of(second)))

    assert place.release(first) == hint_of(second)
    place.acquire(second)
    assert place.release(second) is None


def test_abandoned_attempt_does_not_keep_the_slot():
    place = PoisonTaskSlot()
    stuck, other = an_attempt(), an_attempt()
    place.acquire(stuck)
    place.acquire(other)
    stuck.is_abandoned = True

    again = an_attempt(hint_of(other))
    assert place.acquire(again)
    assert place.release(stuck) is None
    assert not place.acquire(an_attempt())


@given(st.lists(st.integers(0, 5), max_size=40))
def test_at_most_one_attempt_has_the_slot_and_every_task_is_executed(comers: list[int]):
    place = PoisonTaskSlot()
    hints = [(uuid4(), uuid4()) for _ in range(6)]
    holder: Attempt | None = None
    aside: set[TaskRef] = set()

    for comer in comers:
        attempt = an_attempt(hints[comer])
        if place.acquire(attempt):
            assert holder is None
            holder = attempt
        else:
            assert holder is not None
            aside.add(hints[comer])
    while holder is not None:
        following = place.release(holder)
        assert (following is None) == (not aside)
        aside.discard(following or hints[0])
        holder = an_attempt(following) if following else None
        assert holder is None or place.acquire(holder)
