"""Which threads fetch their next message when they send some, and what becomes of it."""

import os
from collections.abc import Callable
from typing import Any

import pytest
from celery.worker import state

from canvas.ids import RunId
from scheduler.messaging.celery_app import EXECUTE, NODES, make_app
from store.primitives.ids import new_id
from worker.fastpath import message_fetcher
from worker.fastpath.continuation import Continuation, LocalContinuation
from worker.fastpath.message_fetcher import MessageFetcher, ThreadTasks
from worker.threads.computing_threads import ComputingThreads


class Returned(list[bytes]):
    """The messages that were put back."""


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> ComputingThreads:
    threads = ComputingThreads()
    monkeypatch.setattr(message_fetcher, "COMPUTING_THREADS", threads)
    return threads


@pytest.fixture
def returned() -> Returned:
    return Returned()


@pytest.fixture
def fetcher(returned: Returned) -> MessageFetcher:
    return MessageFetcher(returned.append, most=1)


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch, threads: ComputingThreads) -> ThreadTasks:
    """This thread, as one of the pool that executes a node."""
    monkeypatch.setattr(message_fetcher, "received_tasks", lambda: 0)
    tasks = ThreadTasks()
    monkeypatch.setattr(message_fetcher, "THREAD_TASKS", tasks)
    tasks.process_id, tasks.request = os.getpid(), Request()
    threads.task_started()
    return tasks


class Request:
    """Celery's request of a node, as far as a fetcher reads it."""

    def __init__(self) -> None:
        self.app: Any = make_app("redis://nowhere.test")
        self.app.amqp.queues.select([NODES])
        self.task = self.app.task(name=EXECUTE, shared=False)(do_nothing)


def do_nothing() -> None:
    """Stand for a node."""


def test_thread_that_executes_a_node_wants_the_next_message(fetcher: MessageFetcher, thread: ThreadTasks):
    assert fetcher.wants_next()


def test_thread_that_keeps_a_message_wants_no_other(fetcher: MessageFetcher, thread: ThreadTasks):
    fetcher.keep(b"next")

    assert not fetcher.wants_next()
    assert [message.raw for message in (thread.take_message(), thread.take_message()) if message] == [b"next"]
    assert fetcher.wants_next()


def test_requeued_message_is_put_back_once(fetcher: MessageFetcher, thread: ThreadTasks, returned: Returned):
    fetcher.keep(b"next")

    thread.requeue_message()
    thread.requeue_message()

    assert returned == [b"next"]
    assert thread.message is None


def test_thread_that_continues_locally_wants_no_message(fetcher: MessageFetcher, thread: ThreadTasks):
    leases: Any = None
    thread.continuation = LocalContinuation(leases, until=0.0)
    assert fetcher.wants_next()

    thread.continuation.next = Continuation(thread.continuation, "here", RunId(new_id()))

    assert not fetcher.wants_next()


def _leave_pool(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    thread.request = None


def _fork(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    thread.process_id += 1


def _receive_another(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(message_fetcher, "received_tasks", lambda: 1)


def _shut_down(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state, "should_stop", 0)  # the exit code


def _terminate(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state, "should_terminate", True)


def _limit_rate(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    thread.request.task.rate_limit = "1/m"


def _stop_consuming(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    thread.request.app.amqp.queues.deselect(NODES)


def _compute_elsewhere(thread: ThreadTasks, threads: ComputingThreads, patch: pytest.MonkeyPatch) -> None:
    threads._computing.add(0)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "happens",
    [
        _leave_pool,
        _fork,
        _receive_another,
        _shut_down,
        _terminate,
        _limit_rate,
        _stop_consuming,
        _compute_elsewhere,
    ],
)
def test_thread_does_not_want_the_next_message_if_it_should_end(
    fetcher: MessageFetcher,
    thread: ThreadTasks,
    threads: ComputingThreads,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[..., None],
):
    happens(thread, threads, monkeypatch)

    assert not fetcher.wants_next()


@pytest.mark.parametrize("limit", [None, 0, "0", "0/s"])
def test_thread_fetches_under_a_rate_limit_that_celery_reads_as_none(
    fetcher: MessageFetcher, thread: ThreadTasks, limit: object
):
    thread.request.task.rate_limit = limit

    assert fetcher.wants_next()


def test_any_number_of_threads_may_fetch_without_admission_control(
    thread: ThreadTasks, threads: ComputingThreads, monkeypatch: pytest.MonkeyPatch, returned: Returned
):
    _compute_elsewhere(thread, threads, monkeypatch)

    assert MessageFetcher(returned.append, most=None).wants_next()
