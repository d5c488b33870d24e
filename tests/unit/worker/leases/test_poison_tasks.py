"""The one slot of a process for tasks that may crash it."""

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from worker.leases.attempt_handle import Attempt
from worker.leases.poison_tasks import PoisonTaskSlot, TaskRef


def an_attempt(task: TaskRef | None = None) -> Attempt:
    return Attempt(*(task or (uuid4(), uuid4())), uuid4())


def task_of(attempt: Attempt) -> TaskRef:
    return attempt.run_id, attempt.activation_id


def test_second_poison_task_is_set_aside_until_the_first_leaves():
    slot = PoisonTaskSlot()
    first, second = an_attempt(), an_attempt()
    assert slot.acquire(first)

    is_acquired = slot.acquire(second)

    assert not is_acquired
    assert slot.release(first) == task_of(second)
    assert slot.acquire(an_attempt())


def test_attempt_without_the_slot_frees_nothing():
    slot = PoisonTaskSlot()
    holder, other = an_attempt(), an_attempt()
    slot.acquire(holder)

    assert slot.release(other) is None
    assert not slot.acquire(an_attempt())


def test_task_that_comes_twice_is_set_aside_once():
    slot = PoisonTaskSlot()
    first, second = an_attempt(), an_attempt()
    slot.acquire(first)
    slot.acquire(second)
    slot.acquire(an_attempt(task_of(second)))

    assert slot.release(first) == task_of(second)
    slot.acquire(second)
    assert slot.release(second) is None


def test_abandoned_attempt_does_not_keep_the_slot():
    slot = PoisonTaskSlot()
    stuck, other = an_attempt(), an_attempt()
    slot.acquire(stuck)
    slot.acquire(other)
    stuck.is_abandoned = True

    again = an_attempt(task_of(other))
    assert slot.acquire(again)
    assert slot.release(stuck) is None
    assert not slot.acquire(an_attempt())


@given(st.lists(st.integers(0, 5), max_size=40))
def test_at_most_one_attempt_has_the_slot_and_every_task_is_executed(arrivals: list[int]):
    slot = PoisonTaskSlot()
    tasks = [(uuid4(), uuid4()) for _ in range(6)]
    holder: Attempt | None = None
    set_aside: set[TaskRef] = set()

    for number in arrivals:
        attempt = an_attempt(tasks[number])
        if slot.acquire(attempt):
            assert holder is None
            holder = attempt
        else:
            assert holder is not None
            set_aside.add(tasks[number])
    while holder is not None:
        following = slot.release(holder)
        assert (following is None) == (not set_aside)
        set_aside.discard(following or tasks[0])
        holder = an_attempt(following) if following else None
        assert holder is None or slot.acquire(holder)
