"""Celery's consumer, which says of a message that it cannot use what is wrong with it, and nothing of what is in it.

Celery writes the whole body into the log, and with it what users have said.
"""

import logging
from typing import Any

import structlog
from celery.worker.consumer import Consumer as CeleryConsumer

log = structlog.get_logger()
_of_kombu = logging.getLogger(__name__)  # kombu says there that a message could not be rejected

SHOWN = 200  # characters


class Consumer(CeleryConsumer):
    """A consumer that drops what it cannot use, with one line."""

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop a message of another serializer than JSON, or none that can be read."""
        _say("its body cannot be read", message, exc)
        message.ack()

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """Drop a message that names no task."""
        _say("it names no task", message)
        message.reject_log_error(_of_kombu, self.connection_errors)

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Drop a message for a task that this process does not have."""
        _say("no such task is here", message)
        message.reject_log_error(_of_kombu, self.connection_errors)

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Drop a message whose arguments or headers are none of Celery's."""
        _say("it is no message of Celery's protocol", message, exc)
        message.reject_log_error(_of_kombu, self.connection_errors)


def _say(reason: str, message: Any, error: Exception | None = None) -> None:
    headers: dict[str, Any] = message.headers or {}
    delivery: dict[str, Any] = message.delivery_info or {}
    log.error(
        "message_dropped",
        reason=reason,
        error=type(error).__name__ if error is not None else None,
        task=str(headers.get("task"))[:SHOWN],
        task_id=str(headers.get("id"))[:SHOWN],
        queue=str(delivery.get("routing_key"))[:SHOWN],
        content_type=str(message.content_type)[:SHOWN],
        size=len(message.body) if isinstance(message.body, bytes | str) else None,
    )
