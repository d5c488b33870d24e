"""Celery's consumer, changed so that a message that cannot be executed is dropped with a log line.

A queue may contain any message, since other services write to it, too. By default an error over a malformed message
ends Celery's event loop and the process; the message returns to the head of its queue and ends the next process. Here
an error during the delivery of a message only drops that message. Bodies of messages are never logged, since they
contain users' texts.
"""

from typing import Any

from celery.worker import state
from celery.worker.consumer import Consumer as CelerysConsumer
from kombu.log import get_logger

from scheduler.messaging.malformed_messages import is_of_broker, log_malformed

_acknowledgements = get_logger(__name__)

LONGEST_NAME = 100  # characters of a task's name or a message's id in a log line


class Consumer(CelerysConsumer):
    """A consumer that survives every message."""

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """Return Celery's handler, changed so that an error drops the message and does not end the process."""
        deliver = super().create_task_handler(*args, **kwargs)

        def deliver_or_drop(message: Any) -> None:
            try:
                deliver(message)
            except Exception as error:
                if is_of_broker(error, (*self.connection_errors, *self.channel_errors)) or _is_ending():
                    raise  # the connection has broken, or the process is ending: the message is requeued
                self._drop(message, error)

        return deliver_or_drop

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """Drop a message that names no task."""
        self._drop(message, None)

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:
        """Drop a message whose task this process does not know."""
        self._drop(message, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:
        """Drop a message with malformed arguments."""
        self._drop(message, exc)

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        """Drop a message whose body cannot be decoded."""
        self._drop(message, exc)

    def _drop(self, message: Any, error: BaseException | None) -> None:
        headers = message.headers if isinstance(message.headers, dict) else {}
        log_malformed(
            str(message.delivery_info.get("routing_key")),
            error,
            bytes=len(message.body) if isinstance(message.body, bytes | str) else 0,
            task=_name(headers.get("task")),
            id=_name(headers.get("id")),
        )
        if not message.acknowledged:
            message.reject_log_error(_acknowledgements, self.connection_errors)


def _name(value: Any) -> str:
    return value[:LONGEST_NAME] if isinstance(value, str) else ""


def _is_ending() -> bool:
    return any(flag not in (None, False) for flag in (state.should_stop, state.should_terminate))
