"""How many hints a process takes: as many as may compute beside those that wait."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.worker import state

from worker.fastpath import admission
from worker.fastpath.admission import PATIENCE, Admission


class Clock:
    """A time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(admission, "monotonic", clock)
    return clock


@pytest.fixture
def elsewhere() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Have something done by another thread, each time the same one."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result(5) and None


def not_called() -> None:
    raise AssertionError("There was room.")


def test_there_is_room_for_as_many_as_may_compute(clock: Clock):
    at_work = Admission(2)

    assert at_work.room(not_called) == 2
    at_work.begins()
    assert at_work.room(not_called) == 1


def test_going_on_with_the_next_task_takes_no_more_room(clock: Clock):
    at_work = Admission(2)
    at_work.begins()
    at_work.begins()

    assert at_work.room(not_called) == 1


def test_who_ends_makes_room_and_tells_the_one_who_asked(clock: Clock):
    at_work, calls = Admission(1), list[str]()
    at_work.begins()

    assert at_work.room(lambda: calls.append("room")) == 0
    at_work.ends()
    at_work.ends()

    assert calls == ["room"]
    assert at_work.room(not_called) == 1


def test_who_waits_makes_room_until_he_goes_on(clock: Clock):
    at_work, calls = Admission(1), list[str]()
    at_work.begins()
    assert at_work.room(lambda: calls.append("room")) == 0

    with at_work.waits():
        assert calls == ["room"]
        assert at_work.room(not_called) == 1

    assert at_work.room(lambda: None) == 0


def test_a_wait_that_ends_in_an_error_is_over(clock: Clock):
    at_work = Admission(1)
    at_work.begins()

    with pytest.raises(ZeroDivisionError), at_work.waits():
        raise ZeroDivisionError

    assert at_work.room(lambda: None) == 0


def test_a_thread_that_nobody_counts_waits_and_takes_no_room_afterwards(clock: Clock):
    at_work = Admission(1)

    with at_work.waits():
        pass

    assert at_work.room(not_called) == 1


def test_threads_are_told_apart(clock: Clock, elsewhere: Callable[[Callable[[], object]], None]):
    at_work = Admission(3)
    at_work.begins()
    elsewhere(at_work.begins)

    assert at_work.room(not_called) == 1
    elsewhere(at_work.ends)
    assert at_work.room(not_called) == 2


def test_what_was_received_and_not_begun_takes_room(clock: Clock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "reserved_requests", {"one", "two"})
    monkeypatch.setattr(state, "active_requests", {"one"})

    assert Admission(3).room(not_called) == 2


def test_a_thread_that_was_left_behind_takes_no_room(clock: Clock, elsewhere: Callable[[Callable[[], object]], None]):
    at_work, calls, threads = Admission(1), list[str](), list[int]()

    def begin() -> None:
        at_work.begins()
        threads.append(threading.get_ident())

    elsewhere(begin)
    assert at_work.room(lambda: calls.append("room")) == 0

    at_work.was_left_behind(threads[0])
    assert (calls, at_work.room(not_called)) == (["room"], 1)
    elsewhere(at_work.ends)  # it is back, and takes up something else
    elsewhere(begin)
    assert at_work.room(lambda: None) == 0


def test_whatever_the_threads_do_one_more_is_taken_after_a_while(clock: Clock):
    at_work = Admission(1)
    at_work.begins()

    clock.now += PATIENCE / 2
    assert at_work.room(lambda: None) == 0
    clock.now += PATIENCE
    assert at_work.room(not_called) == 1


def test_room_that_patience_gave_is_gone_when_another_thread_begins(
    clock: Clock, elsewhere: Callable[[Callable[[], object]], None]
):
    at_work = Admission(1)
    at_work.begins()
    clock.now += PATIENCE
    elsewhere(at_work.begins)

    assert at_work.room(lambda: None) == 0


def test_a_thread_that_only_goes_on_does_not_make_others_wait_longer(clock: Clock):
    at_work = Admission(1)
    at_work.begins()
    clock.now += PATIENCE
    at_work.begins()

    assert at_work.room(not_called) == 1


def test_calls_come_from_the_thread_that_makes_room(clock: Clock, elsewhere: Callable[[Callable[[], object]], None]):
    at_work, called_by = Admission(1), list[int]()
    elsewhere(at_work.begins)
    assert at_work.room(lambda: called_by.append(threading.get_ident())) == 0

    elsewhere(at_work.ends)

    assert called_by
    assert called_by[0] != threading.get_ident()
