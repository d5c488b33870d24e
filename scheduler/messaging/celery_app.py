"""The Celery app: queues, routes, acknowledgement, serialization.

Losing a task message costs time, never a fact. No guarantee depends on the broker's acknowledgements or timers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ssl import CERT_REQUIRED
from typing import Any

from celery import Celery
from kombu.entity import Exchange, Queue
from kombu.transport import TRANSPORT_ALIASES

Capacity = Callable[[Callable[[], object]], int]
"""Returns how many more task messages a process takes. If it is 0, the given function is called when that changes."""

RUNS = "runs"
NODES = "nodes"

EXECUTE = "worker.execute"
QUEUE_PROBE = "worker.canary"
INGEST = "worker.ingest"
EXTRACT = "worker.extract"
INDEX = "worker.index"
SELF_PROBE = "easel.alive"  # probe that each process sends to itself; scheduler/health/broker_probe.py
PREPARED_CLAIM = "easel_claim"  # header of a node's task message; store/runs/prepared_claims.py
OWN_QUEUE = "alive."  # prefix of the queue of these probes
ADVANCE = "scheduler.advance"
START = "scheduler.start"

SPARE_CONNECTIONS = 16  # beside those of publishing threads: Flower's inspection takes a dozen, and waits without end
# messages of RabbitMQ that a scheduler prefetches: it holds those with a countdown until it is over
PREFETCHED_STARTS = 1000
# kombu itself would verify nothing; scheduler/messaging/amqp_transport.py: amqps
TLS_OPTIONS = {"ssl_cert_reqs": CERT_REQUIRED}
VISIBILITY_TIMEOUT = 6 * 3600  # seconds; a message that is delivered twice claims nothing
PUBLISH_TIMEOUT = 0.5  # seconds, tried twice; a sender must not wait for the broker: the row is its own outbox
RECONNECT_INTERVAL = 1.0  # seconds, without end; Celery by default increases the interval and gives up


@dataclass(frozen=True, slots=True)
class _CapacityOption:
    """The capacity as a transport option. `inspect stats`, and so Flower, encodes all options as JSON."""

    capacity: Capacity

    def __call__(self, call: Callable[[], object]) -> int:
        return self.capacity(call)

    def __json__(self) -> str:
        return "admission control"


class _App(Celery):
    """Celery, with a shorter timeout on connections for sending than on those that wait for messages."""

    def connection_for_write(self, url: str | None = None, **kwargs: Any) -> Any:
        if not _is_amqp(url or self.conf.broker_url):
            options: dict[str, Any] = kwargs.get("transport_options") or {}
            kwargs["transport_options"] = {"socket_timeout": PUBLISH_TIMEOUT, **options}
        return super().connection_for_write(url, **kwargs)

    def connection_for_read(self, url: str | None = None, **kwargs: Any) -> Any:
        connection = super().connection_for_read(url, **kwargs)
        again = {"interval_start": RECONNECT_INTERVAL, "interval_step": 0, "interval_max": RECONNECT_INTERVAL}
        connection.ensure_connection = partial(connection.ensure_connection, **again)
        return connection


def make_app(broker_url: str, *, publishers: int = 8, capacity: Capacity | None = None) -> Celery:
    """Return a Celery app for a broker, Redis or RabbitMQ by its URL.

    `capacity`: how many task messages its worker takes, besides Celery's own limit; used with Redis only.
    """
    TRANSPORT_ALIASES.update(dict.fromkeys(("redis", "rediss"), "scheduler.messaging.redis_transport:RedisTransport"))
    TRANSPORT_ALIASES.update(dict.fromkeys(("amqp", "pyamqp"), "scheduler.messaging.amqp_transport:AmqpTransport"))
    TRANSPORT_ALIASES["amqps"] = "scheduler.messaging.amqp_transport:AmqpTlsTransport"
    app = _App("easel", broker=broker_url)
    is_amqp = _is_amqp(broker_url)
    app.conf.update(
        task_queues=[  # as any Celery client declares them: of the type that the RabbitMQ vhost has as its default
            Queue(name, Exchange(name), routing_key=name) for name in (RUNS, NODES)
        ],
        task_default_queue=RUNS,
        task_routes={"scheduler.*": {"queue": RUNS}, "worker.*": {"queue": NODES}},
        worker_consumer="scheduler.messaging.consumer:Consumer",
        task_ignore_result=True,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_serializer="json",
        accept_content=["json"],
        task_track_started=False,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        worker_detect_quorum_queues=False,  # scheduler/messaging/amqp_transport.py needs no detection
        broker_pool_limit=publishers + SPARE_CONNECTIONS,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # if Redis is busy, full or a replica, Celery would end the process
        broker_connection_timeout=2,
        broker_use_ssl=TLS_OPTIONS if broker_url.startswith("rediss") else False,  # options in the URL take precedence
        broker_transport_options=_transport(is_amqp, capacity),
        enable_utc=True,
    )
    return app


def raise_prefetch(app: Celery, threads: int) -> None:
    """Let a scheduler prefetch more RabbitMQ messages than it has threads.

    RabbitMQ counts per consumer, so a few starts with a countdown would otherwise block all others.
    """
    if _is_amqp(app.conf.broker_url):
        app.conf.worker_prefetch_multiplier = max(1, PREFETCHED_STARTS // threads)


def _is_amqp(url: str) -> bool:
    return url.startswith(("amqp", "pyamqp"))


def _transport(is_amqp: bool, capacity: Capacity | None) -> dict[str, Any]:
    if is_amqp:
        return {"confirm_publish": True}
    return {
        "droppable_queues": (NODES,),  # not RUNS: a start message of another service must not be lost
        "own_queues": (OWN_QUEUE,),
        "capacity": _CapacityOption(capacity) if capacity is not None else None,
        "visibility_timeout": VISIBILITY_TIMEOUT,
        "socket_timeout": 30,  # longer than any blocking read of kombu
        "socket_connect_timeout": 2,
        "socket_keepalive": True,
        "health_check_interval": 10,
        "max_retries": 1,  # of a sender without a broker; the row is its own outbox
        "interval_start": 0,
    }
