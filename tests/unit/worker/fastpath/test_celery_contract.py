"""What worker/fastpath/inline_tasks.py relies on in Celery although Celery does not promise it.

If one of these tests fails, a new version of Celery has changed an item of the list at the head of that module.
"""

import inspect
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from celery import Celery
from celery.app import trace
from celery.concurrency.thread import TaskPool
from celery.worker import state
from celery.worker.request import Request, create_request_cls

CHANGED = "Celery has changed what worker/fastpath/inline_tasks.py relies on: "


def do_nothing() -> None:
    """A task without an effect."""


@pytest.fixture
def task() -> Any:
    app: Any = Celery()
    return app.task(name="a task", shared=False)(do_nothing)


def test_celery_derives_a_request_class_with_an_on_success_of_its_own(task: Any):
    ends: list[str] = []

    class OurRequest(Request):
        def __init_subclass__(cls, **options: Any) -> None:
            super().__init_subclass__(**options)
            assert "on_success" in vars(cls), CHANGED + "the derived class has no `on_success` when it is made"
            ends.append(cls.__name__)

        def on_success(self, failed__retval__runtime: Any, **options: Any) -> None:
            raise AssertionError(CHANGED + "the derived `on_success` calls the one of its base class")

    derived: Any = create_request_cls(OurRequest, task, SimpleNamespace(apply_async=None), "here", None)
    derived.on_success(Mock(id="1"), (False, None, 0.0))

    assert ends == ["Request"]


def test_a_pool_of_threads_calls_both_callbacks_on_the_thread_that_executes_the_task(task: Any):
    threads: list[int] = []
    done = threading.Event()
    pool: Any = TaskPool(1, app=task.app)
    pool.on_start()

    def record_thread(*_: Any, **__: Any) -> None:
        threads.append(threading.get_ident())

    def end(*_: Any, **__: Any) -> None:
        record_thread()
        done.set()

    pool.on_apply(record_thread, (), {}, callback=end, accept_callback=record_thread)

    assert done.wait(30), CHANGED + "a pool of threads calls no callback"
    pool.on_stop()
    assert len(threads) == 3, CHANGED + "`accept_callback`, the task and `callback` are not called once each"
    assert len(set(threads)) == 1, CHANGED + "callbacks come on another thread than the task"


@pytest.mark.parametrize(("function", "first"), [(trace.fast_trace_task, "task"), (trace.trace_task_ret, "name")])
def test_a_task_is_traced_by_its_id_request_body_and_encoding(function: Callable[..., Any], first: str):
    names = list(inspect.signature(function).parameters)[:6]

    assert names == [first, "uuid", "request", "body", "content_type", "content_encoding"], (
        f"{CHANGED}{function.__name__} takes {names}"
    )


def test_the_state_of_a_worker_lists_received_and_active_requests():
    for name in ("reserved_requests", "active_requests"):
        assert hasattr(getattr(state, name, None), "__len__"), f"{CHANGED}celery.worker.state.{name}"
    assert callable(getattr(state, "task_reserved", None)), f"{CHANGED}celery.worker.state.task_reserved"
