"""Celery tasks without a message: a node that a thread goes on with is a task like any other to everyone who watches.

Flower, `inspect` and Celery's signals see it received, started and done, under an id of its own; only the way through
the broker is missing. Celery tells a request of its end on the pool's thread, so the next one begins right behind it.
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from celery.app.trace import fast_trace_task, trace_task_ret
from celery.concurrency.base import apply_target
from celery.worker import state
from celery.worker.request import Request

from scheduler.messaging.celery_app import NODES
from scheduler.messaging.celery_message import task_body, task_headers
from scheduler.messaging.dispatch import flower_task_name
from worker.fastpath.admission import ADMISSION
from worker.fastpath.continuation import Continuation, LocalContinuation

log = structlog.get_logger()


class _NoMessage:
    """What stands for the message of a request that came with none."""

    delivery_info: Mapping[str, Any] = {"exchange": "", "routing_key": NODES}
    properties: Mapping[str, Any] = {}


_NO_MESSAGE = _NoMessage()


class _Here(threading.local):
    """What the thread of a pool is at."""

    driven_in = 0  # the process in which a request goes on with what was taken; not one that was forked from it
    eager: LocalContinuation | None = None
    goes_on = False


_here = _Here()


def thread_continuation(make: Callable[[], LocalContinuation]) -> LocalContinuation | None:
    """The eagerness of this thread, made at its first node; None where nobody would go on with what is taken."""
    if _here.driven_in == os.getpid() and _here.eager is None:
        _here.eager = make()
    return _here.eager


class InlineTaskRequest(Request):
    """A request to carry out a node; those that follow from it run behind it, on the same thread."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Celery makes a class of its own from this one, with a way to end that calls no method of ours."""
        super().__init_subclass__(**given)
        made: Any = cls
        ends = made.on_success

        def on_success(self: "InlineTaskRequest", result: Any, **given: Any) -> None:
            try:
                ends(self, result, **given)
            finally:
                self.go_on()

        made.on_success = on_success

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """A thread of the pool begins; in a pool of processes this is not told to who does the work."""
        ADMISSION.begins()
        _here.driven_in = os.getpid()
        super().on_accepted(pid, time_accepted)

    def go_on(self) -> None:
        """Carry out what was taken, and what is taken then. Not recursive, however long the chain is."""
        if _here.goes_on:
            return
        eager = _here.eager
        if eager is None:
            ADMISSION.ends()
            return
        _here.goes_on = True
        try:
            while (taken := eager.next) is not None:
                self._follow(taken)
                if eager.next is taken:
                    raise RuntimeError("A task that was begun has not carried out what it was begun for.")
        except Exception:  # Celery's pool would keep it to itself
            log.exception("continuation_failed")
        finally:
            eager.let_go()
            _here.eager, _here.goes_on = None, False
            ADMISSION.ends()

    def _follow(self, taken: Continuation) -> None:
        args = str(taken.attempt.run_id), str(taken.attempt.activation_id)
        request: Any = type(self)(
            _NO_MESSAGE,
            app=self.app,
            hostname=self.hostname,
            eventer=self.eventer,
            task=self.task,
            headers=task_headers(self.type, args, flower_task_name(taken.component)),
            body=task_body(args),
            decoded=True,
        )
        state.task_reserved(request)
        request.send_event(
            "task-received",
            name=request.name,
            args=request.argsrepr,
            kwargs=request.kwargsrepr,
            root_id=request.root_id,
            parent_id=None,
            retries=0,
            eta=None,
            expires=None,
        )
        app: Any = self.app
        trace = fast_trace_task if app.use_fast_trace_task else trace_task_ret
        given = request.type, request.id, request.request_dict, request.body, None, None
        apply_target(trace, given, {}, request.on_success, request.on_accepted)
