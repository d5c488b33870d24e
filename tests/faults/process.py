"""A process of the product with an injected fault: `python -m tests.faults.process worker -c 16`.

The environment selects the fault:
    FAULT_STOP         where it stops itself: "after the claim, 3, SIGKILL" (tests/faults/critical_points.py)
    FAULT_CLOCK        seconds by which its clock is ahead of the others
    FAULT_VISIBILITY   seconds after which Redis redelivers an unacknowledged message
    FAULT_TRUST        any value: its sweeper trusts its first observations, as after a long uptime
"""

import datetime
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from tests.faults.critical_points import Stop, arm

WORKER_OPTIONS = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
SHIFTED_PACKAGES = ("api", "canvas", "celery", "components", "kombu", "providers", "scheduler", "store", "worker")
"""Packages whose clock is shifted; the database driver's is not, since its times are the database's."""

Run = Callable[[], None]


def main(program: str, arguments: Sequence[str]) -> None:
    """Inject the faults of the environment, and run a program."""
    ahead = float(os.environ.get("FAULT_CLOCK", "0"))
    if ahead:
        shift_time(ahead)
    if seconds := os.environ.get("FAULT_VISIBILITY"):
        redeliver_after(float(seconds))
    run = PROGRAMS[program](arguments)
    if ahead:
        shift_dates(ahead)
    if stop := os.environ.get("FAULT_STOP"):
        arm(Stop.parse(stop))
    run()


# -- programs --------------------------------------------------------------------------------------------------------
def worker(arguments: Sequence[str]) -> Run:
    from worker.tasks import app  # reads the environment

    return lambda: app.worker_main(["worker", "-Q", "nodes", "-P", "threads", *WORKER_OPTIONS, *arguments])


def scheduler(arguments: Sequence[str]) -> Run:
    from scheduler.tasks import app  # reads the environment

    return lambda: app.worker_main(["worker", "-Q", "runs", "-P", "threads", *WORKER_OPTIONS, *arguments])


def sweeper(arguments: Sequence[str]) -> Run:
    from scheduler.sweeper import sweeper as sweeping

    if os.environ.get("FAULT_TRUST"):
        sweeping.MIN_UNINTERRUPTED = 0.0
    return sweeping.main


def api(arguments: Sequence[str]) -> Run:
    import uvicorn

    from api.app import create_app

    port = int(arguments[0])
    return lambda: uvicorn.run(
        create_app,
        factory=True,
        port=port,
        http="api.http.http1_protocol:GuardedProtocol",
        ws="none",
        log_config=None,
        access_log=False,
    )


PROGRAMS: Mapping[str, Callable[[Sequence[str]], Run]] = {
    "worker": worker,
    "scheduler": scheduler,
    "sweeper": sweeper,
    "api": api,
}


# -- faults ----------------------------------------------------------------------------------------------------------
def shift_time(seconds: float) -> None:
    """Shift `time.time`; call it before other imports. Monotonic clocks stay as they are."""
    true_time = time.time

    def ahead() -> float:
        return true_time() + seconds

    time.time = ahead


def shift_dates(seconds: float) -> None:
    """Shift `datetime.now`. The class itself cannot be changed, so modules get a subclass."""
    original_datetime = datetime.datetime

    class AnyDatetime(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original_datetime)

    class Ahead(original_datetime, metaclass=AnyDatetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return original_datetime.now(tz) + datetime.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return original_datetime.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=seconds)

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in SHIFTED_PACKAGES and vars(module).get("datetime") is original_datetime:
            setattr(module, "datetime", Ahead)  # noqa: B010 (a module's own name, from outside)


def redeliver_after(seconds: float) -> None:
    """Redeliver unacknowledged messages after some seconds, as RabbitMQ does.

    kombu does so for messages that it has stored in Redis; so task messages are stored, and checked each time.
    """
    from kombu.transport import redis

    from scheduler.messaging import celery_app
    from scheduler.messaging.redis_transport import RedisChannel

    def is_droppable(channel: RedisChannel, message: object) -> bool:
        return False

    setattr(RedisChannel, "is_droppable", is_droppable)  # noqa: B010 (a method of ours, from outside)

    setattr(celery_app, "VISIBILITY_TIMEOUT", seconds)  # noqa: B010 (a constant, from outside)
    original: Any = redis.QoS.restore_visible

    @wraps(original)
    def restore_visible(self: Any, start: int = 0, num: int = 10, interval: int = 10) -> Any:
        return original(self, start, num, 1)

    setattr(redis.QoS, "restore_visible", restore_visible)  # noqa: B010 (a method of kombu's, from outside)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
