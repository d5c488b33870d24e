"""Who may go on with what he takes: a thread that hears of the end of its tasks, in the process of that thread."""

import os
from typing import Any

import pytest
from celery import Celery

from scheduler.messaging.celery_app import EXECUTE
from scheduler.messaging.celery_message import body_of, headers_of
from worker.fastpath import inline_tasks
from worker.fastpath.continuation import Eager
from worker.fastpath.inline_tasks import NodeRequest, eager

ARGS = ("a run", "an activation")


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline_tasks, "_here", inline_tasks._Here())  # pyright: ignore[reportPrivateUsage]


def test_a_thread_that_nobody_tells_of_the_end_of_its_tasks_takes_nothing():
    assert eager(an_eager) is None


def test_a_thread_that_hears_of_the_end_of_its_tasks_goes_on():
    a_request().on_accepted(os.getpid(), 0.0)

    assert eager(an_eager) is not None


def test_a_process_that_is_forked_by_one_that_hears_of_its_tasks_takes_nothing(monkeypatch: pytest.MonkeyPatch):
    a_request().on_accepted(os.getpid() + 1, 0.0)  # a pool's parent hears of a task in one of its children

    monkeypatch.setattr(os, "getpid", lambda: os.getppid())  # and forks another, with all that its thread has at hand

    assert eager(an_eager) is None


def an_eager() -> Eager:
    leases: Any = None
    return Eager(leases, until=0.0)


def a_request() -> NodeRequest:
    """What Celery makes of a hint."""
    app: Any = Celery()
    return NodeRequest(
        inline_tasks._NO_MESSAGE,  # pyright: ignore[reportPrivateUsage]
        app=app,
        hostname="here",
        task=app.task(name=EXECUTE, shared=False)(never_carried_out),
        headers=headers_of(EXECUTE, ARGS),
        body=body_of(ARGS),
        decoded=True,
    )


def never_carried_out() -> None:
    """Stands where the task is."""
