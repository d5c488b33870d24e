"""Broker probe: a process sends task messages to itself, through a queue of its own, to check that it can receive.

The process's Celery consumer reads this queue beside its work queue, over one connection and one BRPOP, whose keys
alternate, so a long backlog does not delay a probe. A probe that returns proves the whole path: broker, connection,
consumer, a free thread.

The queue of a killed process has a message or two; the broker expires it a minute later.
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

QUEUE_TTL = 60  # seconds after which the broker deletes an unused queue
QUEUE_DELETE_TIMEOUT = 2.0  # seconds for the broker to delete it


class BrokerProbe:
    """Checks that this process receives its own messages. Create it before the app's worker starts."""

    def __init__(
        self,
        app: Celery,
        *,
        every: float,
        unresponsive_after: float,
        ends: Callable[[str], None],
        in_flight: Callable[[], int] = lambda: 0,
        abandoned: Callable[[], int] = lambda: 0,
        count: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._app = app
        self._in_flight = in_flight
        self._abandoned = abandoned
        self._count = count
        self._expires = unresponsive_after
        self._threads = 0
        name = f"{OWN_QUEUE}{socket.gethostname()}.{os.getpid()}.{uuid4().hex[:8]}"
        exchange = Exchange(name, durable=False, auto_delete=True)
        self._queue = Queue(name, exchange, routing_key=name, expires=QUEUE_TTL)
        self._check = BrokerHealthCheck(self._send, self.is_full, unresponsive_after)
        self._watchdog = Watchdog(self._check, every=every, ends=ends)
        app.task(name=SELF_PROBE, ignore_result=True, acks_late=False, send_events=False)(self._on_return)
        celeryd_after_setup.connect(self._set_up, weak=False)
        worker_ready.connect(self._begin, weak=False)
        worker_shutdown.connect(self._end, weak=False)

    def is_full(self) -> bool:
        """Whether every thread has work. With late acknowledgement, a full process receives no further message.

        Celery forgets some of its messages when it loses its connection, so the process's own count is used as well.
        Abandoned threads do not count as work if there are no other threads: such a process is useless.
        """
        abandoned = self._abandoned()
        busy = max(len(state.reserved_requests), self._in_flight() + abandoned)
        return busy >= self._threads and abandoned < self._threads

    def delete_queue(self) -> None:
        """Delete the queue; give up after QUEUE_DELETE_TIMEOUT."""
        deleting = threading.Thread(target=self._delete, name="easel-forgets", daemon=True)
        deleting.start()
        deleting.join(QUEUE_DELETE_TIMEOUT)

    # -- Celery's signals ---------------------------------------------------------------------------------------
    def _set_up(self, instance: Any, **_: Any) -> None:
        if instance.app is self._app:
            self._threads = instance.concurrency
            self._app.amqp.queues.select_add(self._queue)

    def _begin(self, sender: Any, **_: Any) -> None:
        if sender.app is self._app and isinstance(sender.pool, TaskPool):  # other pools receive in other processes
            self._watchdog.start()

    def _end(self, sender: Any, **_: Any) -> None:
        if sender.app is self._app:
            self._watchdog.stop()
            self.delete_queue()

    # -- probes ---------------------------------------------------------------------------------------------------
    def _send(self) -> bool:
        return send(self._app, SELF_PROBE, (time.monotonic(),), self._queue.name, self._expires)

    def _on_return(self, sent: float) -> None:
        self._check.mark_received()
        self._count(time.monotonic() - sent)

    def _delete(self) -> None:
        try:
            with self._app.connection_for_write() as connection:
                queue = self._queue.bind(connection.default_channel)
                queue.declare()  # kombu deletes from Redis what this channel has declared
                queue.delete()
        except (OperationalError, KombuError, OSError):
            return  # the broker lets it expire
