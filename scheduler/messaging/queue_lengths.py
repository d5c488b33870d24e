"""How many task messages wait in the broker."""

from typing import Any

from amqp.exceptions import ChannelError
from celery import Celery
from kombu.entity import Queue

from scheduler.messaging.celery_app import NODES, RUNS

TIMEOUT = 3.0  # seconds to connect


def read_queue_lengths(app: Celery) -> dict[str, int]:
    """Return the number of messages in each queue that no process has fetched. Raises OperationalError or OSError.

    A queue that does not exist has none: Redis deletes an empty one.
    """
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=TIMEOUT)
        return {name: _read_length(connection, name) for name in (NODES, RUNS)}


def _read_length(connection: Any, name: str) -> int:
    with connection.channel() as channel:  # a channel of its own, since a failed declaration closes it
        try:
            return int(Queue(name, channel=channel).queue_declare(passive=True).message_count)
        except ChannelError:
            return 0
