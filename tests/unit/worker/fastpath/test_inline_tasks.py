"""Who may go on with what he takes: a thread that hears of the end of its tasks, in the process of that thread."""

import os
from typing import Any

import pytest
from celery import Celery

from scheduler.messaging.celery_app import EXECUTE
from scheduler.messaging.celery_message import task_body, task_headers
from worker.fastpath import inline_tasks
from worker.fastpath.continuation import LocalContinuation
from worker.fastpath.inline_tasks import InlineTaskRequest, thread_continuation

ARGS = ("a run", "an activation")


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_tasks, "_thread", inline_tasks._ThreadState())  # pyright: ignore[reportPrivateUsage]


def test_thread_outside_a_thread_pool_has_no_continuation():
    assert thread_continuation(an_eager) is None


def test_thread_of_a_thread_pool_has_a_continuation():
    a_request().on_accepted(os.getpid(), 0.0)

    assert thread_continuation(an_eager) is not None


def test_forked_pool_process_has_no_continuation(monkeypatch: pytest.MonkeyPatch):
    a_request().on_accepted(os.getpid() + 1, 0.0)  # a pool's parent hears of a task in one of its children

    monkeypatch.setattr(os, "getpid", lambda: os.getppid())  # and forks another, with all that its thread has at hand

    assert thread_continuation(an_eager) is None


def an_eager() -> LocalContinuation:
    leases: Any = None
    return LocalContinuation(leases, until=0.0)


def a_request() -> InlineTaskRequest:
    """What Celery makes of a hint."""
    app: Any = Celery()
    return InlineTaskRequest(
        inline_tasks._NO_MESSAGE,  # pyright: ignore[reportPrivateUsage]
        app=app,
        hostname="here",
        task=app.task(name=EXECUTE, shared=False)(never_carried_out),
        headers=task_headers(EXECUTE, ARGS),
        body=task_body(ARGS),
        decoded=True,
    )


def never_carried_out() -> None:
    """Stands where the task is."""
