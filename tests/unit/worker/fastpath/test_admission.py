"""How many task messages a process accepts: as many as may compute, beside those that wait."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery.worker import state

from worker.fastpath import admission
from worker.fastpath.admission import MAX_IDLE, Admission, computing_limit
from worker.threads import computing_threads
from worker.threads.computing_threads import ComputingThreads


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(admission, "monotonic", clock)
    monkeypatch.setattr(computing_threads, "monotonic", clock)
    return clock


@pytest.fixture
def on_other_thread() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Return a function that runs a callable on another thread, always the same one."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda work: pool.submit(work).result(5) and None


@pytest.fixture
def threads() -> ComputingThreads:
    return ComputingThreads()


def fail_if_called() -> None:
    raise AssertionError("There was room.")


def test_capacity_is_the_number_of_threads_that_may_still_compute(clock: Clock, threads: ComputingThreads):
    slots = Admission(threads, 2)

    assert slots.capacity(fail_if_called) == 2
    threads.task_started()
    assert slots.capacity(fail_if_called) == 1


def test_thread_that_continues_is_counted_once(clock: Clock, threads: ComputingThreads):
    slots = Admission(threads, 2)
    threads.task_started()
    threads.task_started()

    assert slots.capacity(fail_if_called) == 1


def test_thread_that_ends_makes_room_and_calls_the_consumer(clock: Clock, threads: ComputingThreads):
    slots, calls = Admission(threads, 1), list[str]()
    threads.task_started()

    assert slots.capacity(lambda: calls.append("room")) == 0
    threads.task_finished()
    threads.task_finished()

    assert calls == ["room"]
    assert slots.capacity(fail_if_called) == 1


def test_waiting_thread_makes_room_until_it_continues(clock: Clock, threads: ComputingThreads):
    slots, calls = Admission(threads, 1), list[str]()
    threads.task_started()
    assert slots.capacity(lambda: calls.append("room")) == 0

    with threads.waiting():
        assert calls == ["room"]
        assert slots.capacity(fail_if_called) == 1

    assert slots.capacity(lambda: None) == 0


def test_thread_whose_wait_ends_in_an_error_is_counted_again(clock: Clock, threads: ComputingThreads):
    slots = Admission(threads, 1)
    threads.task_started()

    with pytest.raises(ZeroDivisionError), threads.waiting():
        raise ZeroDivisionError

    assert slots.capacity(lambda: None) == 0


def test_uncounted_thread_is_not_counted_after_a_wait(clock: Clock, threads: ComputingThreads):
    slots = Admission(threads, 1)

    with threads.waiting():
        pass

    assert slots.capacity(fail_if_called) == 1


def test_threads_are_counted_separately(
    clock: Clock, threads: ComputingThreads, on_other_thread: Callable[[Callable[[], object]], None]
):
    slots = Admission(threads, 3)
    threads.task_started()
    on_other_thread(threads.task_started)

    assert slots.capacity(fail_if_called) == 1
    on_other_thread(threads.task_finished)
    assert slots.capacity(fail_if_called) == 2


def test_received_task_that_has_not_begun_takes_room(
    clock: Clock, threads: ComputingThreads, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(state, "reserved_requests", {"one", "two"})
    monkeypatch.setattr(state, "active_requests", {"one"})

    assert Admission(threads, 3).capacity(fail_if_called) == 2


def test_abandoned_thread_takes_no_room(
    clock: Clock, threads: ComputingThreads, on_other_thread: Callable[[Callable[[], object]], None]
):
    slots, calls, numbers = Admission(threads, 1), list[str](), list[int]()

    def begin() -> None:
        threads.task_started()
        numbers.append(threading.get_ident())

    on_other_thread(begin)
    assert slots.capacity(lambda: calls.append("room")) == 0

    threads.thread_abandoned(numbers[0])
    assert (calls, slots.capacity(fail_if_called)) == (["room"], 1)
    on_other_thread(threads.task_finished)  # the thread has returned and begins another task
    on_other_thread(begin)
    assert slots.capacity(lambda: None) == 0


def test_one_more_task_is_accepted_after_an_idle_interval(clock: Clock, threads: ComputingThreads):
    slots = Admission(threads, 1)
    threads.task_started()

    clock.now += MAX_IDLE / 2
    assert slots.capacity(lambda: None) == 0
    clock.now += MAX_IDLE
    assert slots.capacity(fail_if_called) == 1


def test_additional_room_of_an_idle_interval_ends_when_a_thread_begins(
    clock: Clock, threads: ComputingThreads, on_other_thread: Callable[[Callable[[], object]], None]
):
    slots = Admission(threads, 1)
    threads.task_started()
    clock.now += MAX_IDLE
    on_other_thread(threads.task_started)

    assert slots.capacity(lambda: None) == 0


def test_thread_that_continues_does_not_restart_the_idle_interval(clock: Clock, threads: ComputingThreads):
    slots = Admission(threads, 1)
    threads.task_started()
    clock.now += MAX_IDLE
    threads.task_started()

    assert slots.capacity(fail_if_called) == 1


def test_consumer_is_called_on_the_thread_that_makes_room(
    clock: Clock, threads: ComputingThreads, on_other_thread: Callable[[Callable[[], object]], None]
):
    slots, called_by = Admission(threads, 1), list[int]()
    on_other_thread(threads.task_started)
    assert slots.capacity(lambda: called_by.append(threading.get_ident())) == 0

    on_other_thread(threads.task_finished)

    assert called_by
    assert called_by[0] != threading.get_ident()


@pytest.mark.parametrize(("connections", "limit"), [(1, 1), (4, 4), (8, 4), (64, 4)])
def test_four_threads_compute_at_most_and_never_more_than_there_are_connections(connections: int, limit: int):
    assert computing_limit(connections) == limit
