"""Celery's consumer, for messages that nobody can carry out: they are dropped with a log line.

Anything may lie in a queue: other services write there, too. What Celery raises over a message that it can read and
not understand ends its event loop, and so the process; the message goes back as the first of its queue and ends the
next process. So whatever a message raises while it is delivered is this message's own end. The bodies of messages are
never logged, since they hold what people have said.
"""

from typing import Any

from celery.worker import state
from celery.worker.consumer import Consumer as CelerysConsumer
from kombu.log import get_logger

from scheduler.messaging.malformed_messages import is_of_broker, not_understood

_acknowledgements = get_logger(__name__)

LONGEST_NAME = 100  # characters of a task's name or a message's id in a log line


class Consumer(CelerysConsumer):
    """A consumer that survives every message."""

    def create_task_handler(self, *given: Any, **more: Any) -> Any:
        """Celery's own, whose errors end the message instead of the process."""
        deliver = super().create_task_handler(*given, **more)

        def delivered(message: Any) -> None:
            try:
                deliver(message)
            except Exception as error:
                if is_of_broker(error, (*self.connection_errors, *self.channel_errors)) or _is_ending():
                    raise  # the connection has broken, or there are no threads any more: the message goes back
                self._drop(message, error)

        return delivered

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """It names no task."""
        self._drop(message, None)

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:
        """It names a task that this process does not know."""
        self._drop(message, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:
        """What it gives its task is malformed."""
        self._drop(message, exc)

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        """Its body cannot be decoded."""
        self._drop(message, exc)

    def _drop(self, message: Any, error: BaseException | None) -> None:
        headers = message.headers if isinstance(message.headers, dict) else {}
        not_understood(
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
    return any(told not in (None, False) for told in (state.should_stop, state.should_terminate))
