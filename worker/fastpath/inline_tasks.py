"""Celery tasks that a thread executes behind the one that Celery gave it; from outside they look like any other.

Such a task is an activation that the thread has claimed (`continuation.py`), which has no message, or a message that it
has fetched (`message_fetcher.py`). Flower, `inspect` and Celery's signals see it received, started and done, under an
id of its own; only the way through Celery's event loop is missing. Celery calls `on_success` of a request on the pool's
thread, and the next task begins there.

This relies on parts of Celery that are no public interface, as Celery 5.7 has them:

- `celery.worker.request.create_request_cls` derives a class from the task's `Request` and defines `on_success` in it,
  which does not call the method of the base class. `__init_subclass__` wraps it.
- A pool of threads calls `on_accepted` and `on_success` on the thread that executes the task; a pool of processes calls
  them in the parent.
- `celery.app.trace.fast_trace_task` and `trace_task_ret` execute a task from its request, id, headers and body.
- `celery.worker.state` lists the requests that were received and those that are active.

tests/unit/worker/fastpath/test_celery_contract.py fails, and names the part, if a new version of Celery differs. Until
this module follows, `EASEL_CONTINUE_LOCALLY_FOR=0`, `EASEL_FETCH_NEXT=0` and `EASEL_ADMISSION_CONTROL=0` together keep
a worker from using it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog
from celery import signals
from celery.app.trace import fast_trace_task, trace_task_ret
from celery.concurrency.base import apply_target
from celery.worker import state

from canvas.ids import ActivationId
from scheduler.messaging.celery_app import NODES
from scheduler.messaging.celery_message import decode_node_message, shown_node, task_body, task_headers
from worker.celery_requests import NodeRequest
from worker.fastpath.continuation import Continuation, LocalContinuation
from worker.fastpath.message_fetcher import THREAD_TASKS, FetchedMessage
from worker.fastpath.switches import FastPath
from worker.threads.computing_threads import COMPUTING_THREADS

log = structlog.get_logger()


class _NoMessage:
    """Stands for the message of a request that came without one."""

    delivery_info: Mapping[str, Any] = {"exchange": "", "routing_key": NODES}
    properties: Mapping[str, Any] = {}


_NO_MESSAGE = _NoMessage()


@dataclass(frozen=True, slots=True)
class _Message:
    """What a request needs of a message that was fetched."""

    delivery_info: Mapping[str, Any]
    properties: Mapping[str, Any]


def request_class(fast_path: FastPath, stop: Callable[[ActivationId], bool]) -> type[NodeRequest]:
    """Return the class of the requests of the task that executes nodes; `stop`: NodeRequest.stop_activation."""
    uses_inline_tasks = fast_path.continues_locally or fast_path.fetch_next or fast_path.admission_control
    base: Any = InlineTaskRequest if uses_inline_tasks else NodeRequest

    class ProcessRequest(base):
        """A request in a process that can stop its attempts."""

        stop_activation = staticmethod(stop)

    return ProcessRequest


def thread_continuation(make: Callable[[], LocalContinuation]) -> LocalContinuation | None:
    """Return this thread's continuation, made at its first node; None where nothing would execute what it claims."""
    if THREAD_TASKS.process_id == os.getpid() and THREAD_TASKS.continuation is None:
        THREAD_TASKS.continuation = make()
    return THREAD_TASKS.continuation


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
        THREAD_TASKS.process_id, THREAD_TASKS.request = os.getpid(), self
        super().on_accepted(pid, time_accepted)

    def continue_run(self) -> None:
        """Execute what the thread has claimed or fetched, and what follows then. Not recursive, however long it is."""
        if THREAD_TASKS.is_continuing:
            return
        THREAD_TASKS.is_continuing = True
        try:
            before = self.activation_id()
            while True:
                continuation = THREAD_TASKS.continuation
                if continuation is not None and (claimed := continuation.next) is not None:
                    self._execute_claimed(claimed, before)
                    before = claimed.attempt.activation_id
                    if continuation.next is claimed:
                        raise RuntimeError(f"The task of activation {before} did not execute it.")
                elif (message := THREAD_TASKS.take_message()) is not None:
                    THREAD_TASKS.continuation = None  # the queue has decided: what follows has the whole time again
                    before = self._execute_fetched(message)
                else:
                    break
        except Exception:  # Celery's pool would swallow it
            log.exception("continuation_failed")
        finally:
            if THREAD_TASKS.continuation is not None:
                THREAD_TASKS.continuation.release()
            THREAD_TASKS.requeue_message()
            THREAD_TASKS.request, THREAD_TASKS.continuation, THREAD_TASKS.is_continuing = None, None, False
            COMPUTING_THREADS.task_finished()

    def _execute_claimed(self, claimed: Continuation, before: ActivationId | None) -> None:
        """Execute a claimed activation as a task of its own, the child of the one before."""
        attempt = claimed.attempt
        args = str(attempt.run_id), str(attempt.activation_id)
        shown = shown_node(
            attempt.run_id, attempt.activation_id, claimed.component, claimed.node_id, is_first=True, parent=before
        )
        self._execute(self._new_request(_NO_MESSAGE, task_headers(self.type, args, shown), task_body(args)))

    def _execute_fetched(self, message: FetchedMessage) -> ActivationId | None:
        """Execute a fetched task message; return its activation. Put any other message back into the queue."""
        decoded = decode_node_message(message.raw)
        if decoded is None:
            message.requeue()
            return None
        request = self._new_request(
            _Message(decoded.properties["delivery_info"], decoded.properties),
            decoded.headers,
            decoded.body,
            on_reject=partial(_requeue_rejected, message),
        )
        if not request.revoked():
            signals.task_received.send(sender=self.app, request=request)
            self._execute(request)
        return request.activation_id()

    def _new_request(self, message: Any, headers: dict[str, Any], body: Sequence[Any], **more: Any) -> Any:
        made: Any = type(self)
        return made(
            message,
            app=self.app,
            hostname=self.hostname,
            eventer=self.eventer,
            task=self.task,
            headers=headers,
            body=body,
            decoded=True,
            **more,
        )

    def _execute(self, request: Any) -> None:
        """Execute a request as Celery does when a message comes."""
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


def _requeue_rejected(message: FetchedMessage, logger: Any, errors: Any, requeue: bool) -> None:
    """Put a rejected message back: Celery's signature of `on_reject`."""
    if requeue:
        message.requeue()
