"""The Celery app: queues, routes, acknowledgement, serialization.

Messages are hints: nothing we promise rests on the broker's acknowledgements, timers or results.
"""

from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue

RUNS = "runs"
NODES = "nodes"

EXECUTE = "worker.execute"
CANARY = "worker.canary"
ADVANCE = "scheduler.advance"
START = "scheduler.start"

SPARE_CONNECTIONS = 16  # beside the publishing threads: Flower's inspection takes a dozen, and waits for ever for one
VISIBILITY_TIMEOUT = 6 * 3600  # seconds; a message that is delivered twice claims nothing


def make_app(broker_url: str, *, publishers: int = 8) -> Celery:
    """A Celery app on this broker. Redis or RabbitMQ: the URL decides."""
    app = Celery("easel", broker=broker_url)
    is_amqp = broker_url.startswith(("amqp", "pyamqp"))
    arguments = {"x-queue-type": "quorum"} if is_amqp else None
    app.conf.update(
        task_queues=[
            Queue(name, Exchange(name), routing_key=name, queue_arguments=arguments) for name in (RUNS, NODES)
        ],
        task_default_queue=RUNS,
        task_routes={"scheduler.*": {"queue": RUNS}, "worker.*": {"queue": NODES}},
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_serializer="json",
        accept_content=["json"],
        task_track_started=False,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_detect_quorum_queues=is_amqp,
        broker_pool_limit=publishers + SPARE_CONNECTIONS,
        broker_connection_retry_on_startup=True,
        broker_connection_timeout=2,
        broker_transport_options=_transport(is_amqp),
        enable_utc=True,
    )
    return app


def _transport(is_amqp: bool) -> dict[str, Any]:
    if is_amqp:
        return {"confirm_publish": True}
    return {
        "visibility_timeout": VISIBILITY_TIMEOUT,
        "socket_timeout": 30,  # longer than any blocking read of kombu's
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "max_retries": 1,  # of a sender that finds no broker; the row is its own outbox
        "interval_start": 0,
    }
