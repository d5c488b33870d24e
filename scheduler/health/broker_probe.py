"""A queue of a process's own, which its Celery consumer reads beside the one it works for.

Both hang on one connection and one BRPOP, whose keys take turns, so a long backlog does not keep a canary from coming
back. What comes back here proves the whole way: broker, connection, consumer, a free thread.

The queue of a process that was killed holds a message or two, and is gone a minute later: the broker lets it expire.
"""

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from celery import Celery
from celery.concurrency.thread import TaskPool
from celery.signals import celeryd_after_setup, worker_ready, worker_shutdown
from celery.worker import state
from kombu.entity import Exchange, Queue
from kombu.exceptions import KombuError, OperationalError

from scheduler.health.watchdog import BrokerHealthCheck, Watchdog
from scheduler.messaging.celery_app import OWN_QUEUE, SELF_PROBE
from scheduler.messaging.dispatch import send

KEPT = 60  # seconds for which the broker keeps a queue that nobody reads
QUEUE_DELETE_TIMEOUT = 2.0  # seconds for the broker to delete it


class BrokerProbe:
    """Whether this process hears what is sent to it. Give it an app before its worker starts."""

    def __init__(
        self,
        app: Celery,
        *,
        every: float,
        deaf_after: float,
        ends: Callable[[str], None],
        in_hand: Callable[[], int] = lambda: 0,
        left_behind: Callable[[], int] = lambda: 0,
        count: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._app = app
        self._in_hand = in_hand
        self._left_behind = left_behind
        self._count = count
        self._expires = deaf_after
        self._threads = 0
        name = f"{OWN_QUEUE}{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:8]}"
        exchange = Exchange(name, durable=False, auto_delete=True)
        self._queue = Queue(name, exchange, routing_key=name, expires=KEPT)
        self._ear = BrokerHealthCheck(self._send, self.is_full, deaf_after)
        self._watch = Watchdog(self._ear, every=every, ends=ends)
        app.task(name=SELF_PROBE, ignore_result=True, acks_late=False, send_events=False)(self._came_back)
        celeryd_after_setup.connect(self._set_up, weak=False)
        worker_ready.connect(self._begin, weak=False)
        worker_shutdown.connect(self._end, weak=False)

    def is_full(self) -> bool:
        """Whether every thread has work. With late acknowledgement a full process is sent nothing more.

        Celery forgets some of what it holds when it loses its connection, so our own count counts as well. Threads that
        were left behind are no work: a process that has nothing else is of no use any more.
        """
        left_behind = self._left_behind()
        busy = max(len(state.reserved_requests), self._in_hand() + left_behind)
        return busy >= self._threads and left_behind < self._threads

    def forget_queue(self) -> None:
        """Delete the queue, if the broker is quick about it."""
        deleting = threading.Thread(target=self._delete, name="easel-forgets", daemon=True)
        deleting.start()
        deleting.join(QUEUE_DELETE_TIMEOUT)

    # -- Celery's signals ---------------------------------------------------------------------------------------
    def _set_up(self, instance: Any, **_: Any) -> None:
        if instance.app is self._app:
            self._threads = instance.concurrency
            self._app.amqp.queues.select_add(self._queue)

    def _begin(self, sender: Any, **_: Any) -> None:
        if sender.app is self._app and isinstance(sender.pool, TaskPool):  # of other pools, other processes would hear
            self._watch.start()

    def _end(self, sender: Any, **_: Any) -> None:
        if sender.app is self._app:
            self._watch.stop()
            self.forget_queue()

    # -- what the ear asks for ------------------------------------------------------------------------------------
    def _send(self) -> bool:
        return send(self._app, SELF_PROBE, (time.monotonic(),), self._queue.name, self._expires)

    def _came_back(self, sent: float) -> None:
        self._ear.hear()
        self._count(time.monotonic() - sent)

    def _delete(self) -> None:
        try:
            with self._app.connection_for_write() as connection:
                queue = self._queue.bind(connection.default_channel)
                queue.declare()  # kombu deletes from Redis what this channel has declared
                queue.delete()
        except (OperationalError, KombuError, OSError):
            return  # the broker lets it expire
