"""How many hints a process takes: as many as may compute beside those that wait."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.worker import state

from worker.fastpath import admission
from worker.fastpath.admission import MAX_IDLE, Admission, ComputingThreads


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


@pytest.fixture
def threads() -> ComputingThreads:
    return ComputingThreads()


def not_called() -> None:
    raise AssertionError("There was room.")


def test_there_is_room_for_as_many_as_may_compute(clock: Clock, threads: ComputingThreads):
    at_work = Admission(threads, 2)

    assert at_work.capacity(not_called) == 2
    threads.task_started()
    assert at_work.capacity(not_called) == 1


def test_thread_that_continues_is_counted_once(clock: Clock, threads: ComputingThreads):
    at_work = Admission(threads, 2)
    threads.task_started()
    threads.task_started()

    assert at_work.capacity(not_called) == 1


def test_thread_that_ends_makes_room_and_calls_the_consumer(clock: Clock, threads: ComputingThreads):
    at_work, calls = Admission(threads, 1), list[str]()
    threads.task_started()

    assert at_work.capacity(lambda: calls.append("room")) == 0
    threads.task_finished()
    threads.task_finished()

    assert calls == ["room"]
    assert at_work.capacity(not_called) == 1


def test_waiting_thread_makes_room_until_it_continues(clock: Clock, threads: ComputingThreads):
    at_work, calls = Admission(threads, 1), list[str]()
    threads.task_started()
    assert at_work.capacity(lambda: calls.append("room")) == 0

    with threads.waiting():
        assert calls == ["room"]
        assert at_work.capacity(not_called) == 1

    assert at_work.capacity(lambda: None) == 0


def test_a_wait_that_ends_in_an_error_is_over(clock: Clock, threads: ComputingThreads):
    at_work = Admission(threads, 1)
    threads.task_started()

    with pytest.raises(ZeroDivisionError), threads.waiting():
        raise ZeroDivisionError

    assert at_work.capacity(lambda: None) == 0


def test_uncounted_thread_is_not_counted_after_a_wait(clock: Clock, threads: ComputingThreads):
    at_work = Admission(threads, 1)

    with threads.waiting():
        pass

    assert at_work.capacity(not_called) == 1


def test_threads_are_counted_separately(
    clock: Clock, threads: ComputingThreads, elsewhere: Callable[[Callable[[], object]], None]
):
    at_work = Admission(threads, 3)
    threads.task_started()
    elsewhere(threads.task_started)

    assert at_work.capacity(not_called) == 1
    elsewhere(threads.task_finished)
    assert at_work.capacity(not_called) == 2


def test_received_task_that_has_not_begun_takes_room(
    clock: Clock, threads: ComputingThreads, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(state, "reserved_requests", {"one", "two"})
    monkeypatch.setattr(state, "active_requests", {"one"})

    assert Admission(threads, 3).capacity(not_called) == 2


def test_abandoned_thread_takes_no_room(
    clock: Clock, threads: ComputingThreads, elsewhere: Callable[[Callable[[], object]], None]
):
    at_work, calls, numbers = Admission(threads, 1), list[str](), list[int]()

    def begin() -> None:
        threads.task_started()
        numbers.append(threading.get_ident())

    elsewhere(begin)
    assert at_work.capacity(lambda: calls.append("room")) == 0

    threads.thread_abandoned(numbers[0])
    assert (calls, at_work.capacity(not_called)) == (["room"], 1)
    elsewhere(threads.task_finished)  # it is back, and takes up something else
    elsewhere(begin)
    assert at_work.capacity(lambda: None) == 0


def test_one_more_task_is_taken_after_an_idle_interval(clock: Clock, threads: ComputingThreads):
    at_work = Admission(threads, 1)
    threads.task_started()

    clock.now += MAX_IDLE / 2
    assert at_work.capacity(lambda: None) == 0
    clock.now += MAX_IDLE
    assert at_work.capacity(not_called) == 1


def test_room_of_the_idle_interval_is_gone_when_a_thread_begins(
    clock: Clock, threads: ComputingThreads, elsewhere: Callable[[Callable[[], object]], None]
):
    at_work = Admission(threads, 1)
    threads.task_started()
    clock.now += MAX_IDLE
    elsewhere(threads.task_started)

    assert at_work.capacity(lambda: None) == 0


def test_thread_that_continues_does_not_restart_the_idle_interval(clock: Clock, threads: ComputingThreads):
    at_work = Admission(threads, 1)
    threads.task_started()
    clock.now += MAX_IDLE
    threads.task_started()

    assert at_work.capacity(not_called) == 1


def test_consumer_is_called_on_the_thread_that_makes_room(
    clock: Clock, threads: ComputingThreads, elsewhere: Callable[[Callable[[], object]], None]
):
    at_work, called_by = Admission(threads, 1), list[int]()
    elsewhere(threads.task_started)
    assert at_work.capacity(lambda: called_by.append(threading.get_ident())) == 0

    elsewhere(threads.task_finished)

    assert called_by
    assert called_by[0] != threading.get_ident()
