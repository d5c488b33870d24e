"""Dispatch: sends task messages to Celery and event notifications to the bus, after a commit.

A task message that cannot be sent is logged and not repeated here: the row is its own outbox, and the sweeper sends the
message again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

import redis
import structlog
from celery import Celery
from celery.signals import after_task_publish, before_task_publish
from kombu.exceptions import KombuError, OperationalError

from canvas.ids import RunId
from scheduler.messaging.celery_app import (
    ADVANCE,
    EXECUTE,
    EXTRACT,
    INDEX,
    INGEST,
    NODES,
    PREPARED_CLAIM,
    QUEUE_PROBE,
    RUNS,
)
from scheduler.messaging.celery_message import ShownTask, encode_message, shown_node
from scheduler.messaging.circuit_breaker import CircuitBreaker
from scheduler.messaging.event_notifier import EventNotification
from scheduler.messaging.notifications import Notifications
from scheduler.messaging.redis_bus import Bus
from scheduler.metrics import Metrics
from store.runs.new_activations import TaskMessage

log = structlog.get_logger()

PROBE_TTL = 6 * 3600
"""Seconds after which a queue probe expires. Sender and receiver compare their own clocks for it, so clocks that differ
by less than this hide no lost task message."""

TASK_TTL = 3600  # seconds; meanwhile the sweeper has sent it again


class Fetcher(Protocol):
    """Receives the next task message for a thread that sends some: worker/fastpath/message_fetcher.py."""

    def wants_next(self) -> bool:
        """Whether this thread wants a message."""
        ...

    def keep(self, raw: bytes) -> None:
        """Keep a message for this thread."""
        ...


class Dispatch:
    """Sends the messages of applied decisions. Threads of a process share one Dispatch.

    A broker that does not answer is left alone for a second (circuit breaker); the sweeper sends later what is not sent
    meanwhile. `is_broker`: the bus's Redis is the broker, too. `is_straight`: task messages are pushed to it directly,
    without Celery.
    """

    def __init__(
        self,
        app: Celery,
        bus: Bus,
        counters: Metrics | None = None,
        *,
        is_broker: bool = False,
        is_straight: bool = False,
    ) -> None:
        self._app = app
        self.bus = bus
        self._is_broker = is_broker
        self._is_straight = is_straight
        self.counters = counters or Metrics()
        self.fetcher: Fetcher | None = None
        self._breaker = CircuitBreaker()

    def publish(self, notifications: Notifications) -> None:
        """Send the messages of a commit: first the cancel request, since running model calls cost money."""
        run_id, stored, end = notifications.run_id, notifications.events, notifications.end
        if notifications.cancel_requested:
            self.bus.publish_cancel(run_id)
        event = EventNotification(run_id, stored[0], stored[-1], notifications.is_over) if stored else None
        promoted = notifications.promoted.result() if notifications.promoted is not None else []
        self.enqueue_nodes([*notifications.task_messages, *promoted], event)
        if notifications.status is not None and notifications.is_over:
            self.counters.run(notifications.status.value)
        if end is None:
            return
        self.bus.clear_cancel_keys(run_id, end.conversation_id)
        if end.delete_external_keys is not None:
            end.delete_external_keys()
        if end.next_run is not None:
            self.advance(end.next_run)

    def enqueue_nodes(self, messages: Sequence[TaskMessage], notification: EventNotification | None = None) -> None:
        """Send task messages of ready activations, and an event notification."""
        if messages and not self._breaker.is_open():
            if self._sends_directly():
                self._push_directly(messages, notification)
                return
            self._send_each(messages)
        if notification is not None:
            self.bus.notify_event(notification)

    def advance(self, run_id: RunId) -> None:
        """Request a scheduler to advance a run."""
        self._send(ADVANCE, (str(run_id),), RUNS, root_id=str(run_id))

    def send_probe(self, sent_at: datetime) -> None:
        """Send a queue probe: an empty task whose return proves that the nodes' queue moves."""
        self._send(QUEUE_PROBE, (sent_at.isoformat(),), NODES, expires=PROBE_TTL)

    def ingest(self) -> None:
        """Send the task message that documents of knowledge bases wait to be parsed."""
        self._send(INGEST, (), NODES, expires=TASK_TTL)

    def extract(self) -> None:
        """Send the task message that memories have messages to extract facts from."""
        self._send(EXTRACT, (), NODES, expires=TASK_TTL)

    def index(self) -> None:
        """Send the task message that a knowledge base needs indexes, or rows of the previous release a conversion."""
        self._send(INDEX, (), NODES, expires=TASK_TTL)

    def was_flushed(self) -> bool:
        """Whether the broker was emptied since the last call, so that all task messages in it were lost."""
        return self._is_broker and self.bus.was_flushed()

    # -- directly or by Celery -----------------------------------------------------------------------------------
    def _sends_directly(self) -> bool:
        """Whether to push task messages directly to the broker: not if a tracer receives Celery's publish signals."""
        return self._is_straight and not (before_task_publish.receivers or after_task_publish.receivers)

    def _push_directly(self, messages: Sequence[TaskMessage], notification: EventNotification | None) -> None:
        encoded = [
            encode_message(EXECUTE, ids, NODES, shown, further)
            for ids, shown, further in map(_task_arguments, messages)
        ]
        fetcher = self.fetcher if self.fetcher is not None and self.fetcher.wants_next() else None
        try:
            fetched = self.bus.push_tasks(NODES, encoded, notification, fetches=fetcher is not None)
        except redis.RedisError as error:
            self._on_send_error(messages, error)
            return
        self._breaker.record_success()
        if fetcher is not None and fetched is not None:
            fetcher.keep(fetched)

    def _send_each(self, messages: Sequence[TaskMessage]) -> None:
        try:
            with self._app.producer_or_acquire() as producer:
                for ids, shown, headers in map(_task_arguments, messages):
                    self._app.send_task(
                        EXECUTE,
                        args=ids,
                        queue=NODES,
                        producer=producer,
                        shadow=shown.name,
                        argsrepr=shown.args,
                        task_id=shown.task_id,
                        root_id=shown.root_id,
                        parent_id=shown.parent_id,
                        kwargsrepr="{}",
                        headers=headers,
                        ignore_result=True,
                        retry=False,
                    )
        except (OperationalError, KombuError, OSError) as error:
            self._on_send_error(messages, error)
        else:
            self._breaker.record_success()

    def _on_send_error(self, messages: Sequence[TaskMessage], error: Exception) -> None:
        self._breaker.record_failure()
        log.warning("task_messages_not_sent", task_messages=len(messages), error=str(error))

    def _send(
        self, task: str, args: tuple[str, ...], queue: str, expires: int | None = None, root_id: str | None = None
    ) -> None:
        if self._breaker.is_open():
            return
        if send(self._app, task, args, queue, expires, root_id):
            self._breaker.record_success()
        else:
            self._breaker.record_failure()


def _task_arguments(message: TaskMessage) -> tuple[tuple[str, str], ShownTask, dict[str, str]]:
    """Return the arguments of a task message, what Flower shows of the task, and headers of our own."""
    shown = shown_node(
        message.run_id,
        message.activation_id,
        message.component,
        message.node_id,
        is_first=message.is_first,
        parent=message.parent,
    )
    prepared = message.prepared.encode() if message.prepared is not None else None
    headers = {PREPARED_CLAIM: prepared} if prepared is not None else {}
    return (str(message.run_id), str(message.activation_id)), shown, headers


def send(
    app: Celery,
    task: str,
    args: tuple[Any, ...],
    queue: str,
    expires: float | None = None,
    root_id: str | None = None,
) -> bool:
    """Send a task; return False, and write a log line, if the broker does not accept it.

    `root_id` is the run that the task belongs to; without it, the task is its own root.
    """
    try:
        app.send_task(
            task,
            args=args,
            queue=queue,
            expires=expires,
            root_id=root_id,
            argsrepr=repr(args),
            ignore_result=True,
            retry=False,
        )
    except (OperationalError, KombuError, OSError) as error:
        log.warning("message_not_sent", task=task, error=str(error))
        return False
    return True
