"""Which threads may continue locally: those of a thread pool, in the process of that pool."""

import os
from typing import Any

import pytest
from celery import Celery

from scheduler.messaging.celery_app import EXECUTE
from scheduler.messaging.celery_message import task_body, task_headers
from worker.fastpath import inline_tasks
from worker.fastpath.continuation import LocalContinuation
from worker.fastpath.inline_tasks import InlineTaskRequest, thread_continuation
from worker.fastpath.message_fetcher import ThreadTasks

ARGS = ("a run", "an activation")


@pytest.fixture(autouse=True)
def fresh_thread_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_tasks, "THREAD_TASKS", ThreadTasks())


def test_thread_outside_a_thread_pool_has_no_continuation():
    assert thread_continuation(make_continuation) is None


def test_thread_of_a_thread_pool_has_a_continuation():
    make_request().on_accepted(os.getpid(), 0.0)

    assert thread_continuation(make_continuation) is not None


def test_forked_pool_process_has_no_continuation(monkeypatch: pytest.MonkeyPatch):
    make_request().on_accepted(os.getpid() + 1, 0.0)  # a process pool calls this in the parent for a task of a child

    monkeypatch.setattr(os, "getpid", lambda: os.getppid())  # another child is forked with the state of that thread

    assert thread_continuation(make_continuation) is None


def make_continuation() -> LocalContinuation:
    leases: Any = None
    return LocalContinuation(leases, until=0.0)


def make_request() -> InlineTaskRequest:
    """Return the request that Celery creates for a task message."""
    app: Any = Celery()
    return InlineTaskRequest(
        inline_tasks._NO_MESSAGE,  # pyright: ignore[reportPrivateUsage]
        app=app,
        hostname="here",
        task=app.task(name=EXECUTE, shared=False)(never_executed),
        headers=task_headers(EXECUTE, ARGS),
        body=task_body(ARGS),
        decoded=True,
    )


def never_executed() -> None:
    """A task that is not executed in these tests."""
