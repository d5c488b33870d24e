"""Fetching the next task message with the last send: a thread that sends task messages receives one with the reply.

A thread that has reported a node sends the messages of what became ready, and is free. The transaction that pushes them
to the queue also takes the oldest message from it, and the thread executes that next
(`worker/fastpath/inline_tasks.py`). This saves the way through Celery's event loop: a command to Redis, two changes of
threads, and about a millisecond of the interpreter lock per hop.

The queue stays the only source of work. The thread takes the message that any other free thread would get, in the
queue's order, so no run keeps others waiting, and every rule about task messages holds: a message that is lost with its
process is sent again by the sweeper. Any other message than that of a node (a probe, a countdown, another task) goes
back to the queue, for Celery.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from celery.utils.time import rate
from celery.worker import state

from scheduler.messaging.celery_app import NODES
from worker.fastpath.admission import received_tasks
from worker.fastpath.continuation import LocalContinuation
from worker.threads.computing_threads import COMPUTING_THREADS


@dataclass(frozen=True, slots=True)
class FetchedMessage:
    """A task message that a thread has taken from the queue, as it was there."""

    raw: bytes
    put_back: Callable[[bytes], None]

    def requeue(self) -> None:
        """Put the message back, as the next one: this thread does not execute it."""
        self.put_back(self.raw)


class ThreadTasks(threading.local):
    """What one thread of the pool executes, and what it executes next."""

    process_id = 0  # the process in which a request was accepted; a process forked from it has another
    request: Any = None  # Celery's request of the task that is being executed
    continuation: LocalContinuation | None = None
    message: FetchedMessage | None = None
    is_continuing = False

    def take_message(self) -> FetchedMessage | None:
        """Return the fetched message for the caller to execute now; None if there is none."""
        message, self.message = self.message, None
        return message

    def requeue_message(self) -> None:
        """Put the fetched message back into the queue, if there is one."""
        if (message := self.take_message()) is not None:
            message.requeue()


THREAD_TASKS = ThreadTasks()


class MessageFetcher:
    """Decides which threads fetch their next message when they send some, and keeps it for them.

    `most`: how many threads of the process may compute, None for any number (`worker/fastpath/admission.py`).
    `put_back`: puts a message back as the queue's next one.
    """

    def __init__(self, put_back: Callable[[bytes], None], most: int | None) -> None:
        self._put_back = put_back
        self._most = most

    def wants_next(self) -> bool:
        """Whether this thread executes another message when its task has ended.

        It does not while tasks that Celery has received wait for a thread, or if an operator has stopped the
        consumption of the queue or limited the rate of the task.
        """
        request, continuation = THREAD_TASKS.request, THREAD_TASKS.continuation
        return (
            request is not None
            and THREAD_TASKS.process_id == os.getpid()
            and THREAD_TASKS.message is None
            and (continuation is None or continuation.next is None)
            and not received_tasks()
            and (self._most is None or len(COMPUTING_THREADS) <= self._most)
            and not _is_shutting_down()
            and not rate(request.task.rate_limit)
            and NODES in request.app.amqp.queues.consume_from
        )

    def keep(self, raw: bytes) -> None:
        """Keep a message for this thread, which wanted it."""
        THREAD_TASKS.message = FetchedMessage(raw, self._put_back)


def _is_shutting_down() -> bool:
    return any(flag is not None and flag is not False for flag in (state.should_stop, state.should_terminate))
