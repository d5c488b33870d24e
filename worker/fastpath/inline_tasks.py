"""Celery tasks without a message: the node that a thread continues with looks like any other task from outside.

Flower, `inspect` and Celery's signals see such a task received, started and done, under an id of its own; only the way
through the broker is missing. Celery calls `on_success` of a request on the pool's thread, and the next task begins
there.

This relies on parts of Celery that are no public interface, as Celery 5.7 has them:

- `celery.worker.request.create_request_cls` derives a class from the task's `Request` and defines `on_success` in it,
  which does not call the method of the base class. `__init_subclass__` wraps it.
- A pool of threads calls `on_accepted` and `on_success` on the thread that executes the task; a pool of processes calls
  them in the parent.
- `celery.app.trace.fast_trace_task` and `trace_task_ret` execute a task from its request, id, headers and body.
- `celery.worker.state` lists the requests that were received and those that are active.

tests/unit/worker/fastpath/test_celery_contract.py fails, and names the part, if a new version of Celery differs. Until
this module follows, `EASEL_CONTINUE_LOCALLY_FOR=0` and `EASEL_ADMISSION_CONTROL=0` keep a worker from using it.
"""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import structlog
from celery.app.trace import fast_trace_task, trace_task_ret
from celery.concurrency.base import apply_target
from celery.worker import state

from canvas.ids import ActivationId
from scheduler.messaging.celery_app import NODES
from scheduler.messaging.celery_message import shown_node, task_body, task_headers
from worker.celery_requests import NodeRequest
from worker.fastpath.continuation import Continuation, LocalContinuation
from worker.fastpath.switches import FastPath
from worker.threads.computing_threads import COMPUTING_THREADS

log = structlog.get_logger()


class _NoMessage:
    """Stands for the message of a request that came without one."""

    delivery_info: Mapping[str, Any] = {"exchange": "", "routing_key": NODES}
    properties: Mapping[str, Any] = {}


_NO_MESSAGE = _NoMessage()


class _ThreadState(threading.local):
    """What one thread of the pool executes."""

    process_id = 0  # the process in which a request of this class was accepted; a process forked from it has another
    continuation: LocalContinuation | None = None
    is_continuing = False


_thread = _ThreadState()


def request_class(fast_path: FastPath, stop: Callable[[ActivationId], bool]) -> type[NodeRequest]:
    """Return the class of the requests of the task that executes nodes; `stop`: NodeRequest.stop_activation."""
    base: Any = InlineTaskRequest if fast_path.continues_locally or fast_path.admission_control else NodeRequest

    class ProcessRequest(base):
        """A request in a process that can stop its attempts."""

        stop_activation = staticmethod(stop)

    return ProcessRequest


def thread_continuation(make: Callable[[], LocalContinuation]) -> LocalContinuation | None:
    """Return this thread's continuation, made at its first node; None where nothing would execute what it claims."""
    if _thread.process_id == os.getpid() and _thread.continuation is None:
        _thread.continuation = make()
    return _thread.continuation


class InlineTaskRequest(NodeRequest):
    """A request to execute a node. Nodes that the thread continues with are executed behind it."""

    def after_task(self) -> None:
        """Show the advance, then execute what the thread has claimed."""
        try:
            super().after_task()
        finally:
            self.continue_run()

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Note that a thread of the pool begins. A pool of processes calls this in the parent."""
        COMPUTING_THREADS.task_started()
        _thread.process_id = os.getpid()
        super().on_accepted(pid, time_accepted)

    def continue_run(self) -> None:
        """Execute what the thread has claimed, and what it claims then. Not recursive, however long the chain is."""
        if _thread.is_continuing:
            return
        continuation = _thread.continuation
        if continuation is None:
            COMPUTING_THREADS.task_finished()
            return
        _thread.is_continuing = True
        before = ActivationId(UUID(self.args[1]))
        try:
            while (claimed := continuation.next) is not None:
                self._execute_claimed(claimed, before)
                before = claimed.attempt.activation_id
                if continuation.next is claimed:
                    raise RuntimeError(f"The task of activation {claimed.attempt.activation_id} did not execute it.")
        except Exception:  # Celery's pool would swallow it
            log.exception("continuation_failed")
        finally:
            continuation.release()
            _thread.continuation, _thread.is_continuing = None, False
            COMPUTING_THREADS.task_finished()

    def _execute_claimed(self, claimed: Continuation, before: ActivationId) -> None:
        """Execute a claimed activation as a task of its own, the child of the one before."""
        attempt = claimed.attempt
        args = str(attempt.run_id), str(attempt.activation_id)
        request: Any = type(self)(
            _NO_MESSAGE,
            app=self.app,
            hostname=self.hostname,
            eventer=self.eventer,
            task=self.task,
            headers=task_headers(
                self.type,
                args,
                shown_node(
                    attempt.run_id,
                    attempt.activation_id,
                    claimed.component,
                    claimed.node_id,
                    is_first=True,
                    parent=before,
                ),
            ),
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
            parent_id=request.parent_id,
            retries=0,
            eta=None,
            expires=None,
        )
        app: Any = self.app
        trace = fast_trace_task if app.use_fast_trace_task else trace_task_ret
        arguments = request.type, request.id, request.request_dict, request.body, None, None
        apply_target(trace, arguments, {}, request.on_success, request.on_accepted)
