"""A process of the product in which something will go wrong: `python -m tests.faults.process worker -c 16`.

The environment says what:
    FAULT_STOP         where it stops itself: "after the claim, 3, SIGKILL" (tests/faults/points.py)
    FAULT_CLOCK        seconds by which its clock is ahead of everybody else's
    FAULT_VISIBILITY   seconds after which Redis gives an unacknowledged message to somebody else
    FAULT_TRUST        anything: its sweeper believes what it sees at once, as one that has been there for a while does
"""

import datetime
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

from tests.faults.points import Stop, arm

QUIET = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
TELLS_TIME = ("api", "canvas", "celery", "components", "kombu", "providers", "scheduler", "store", "worker")
"""Packages that are put into another time; the database's driver is not, for what it brings is the database's."""

Run = Callable[[], None]


def main(program: str, arguments: Sequence[str]) -> None:
    """Go wrong as told, and else be that program."""
    ahead = float(os.environ.get("FAULT_CLOCK", "0"))
    if ahead:
        put_time_forward(ahead)
    if seconds := os.environ.get("FAULT_VISIBILITY"):
        see_again_after(float(seconds))
    run = PROGRAMS[program](arguments)
    if ahead:
        put_dates_forward(ahead)
    if stop := os.environ.get("FAULT_STOP"):
        arm(Stop.parse(stop))
    run()


# -- programs: imported, and then to be run --------------------------------------------------------------------------
def worker(arguments: Sequence[str]) -> Run:
    from worker.tasks import app  # reads the environment

    return lambda: app.worker_main(["worker", "-Q", "nodes", "-P", "threads", *QUIET, *arguments])


def scheduler(arguments: Sequence[str]) -> Run:
    from scheduler.tasks import app  # reads the environment

    return lambda: app.worker_main(["worker", "-Q", "runs", "-P", "threads", *QUIET, *arguments])


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


# -- what goes wrong -------------------------------------------------------------------------------------------------
def put_time_forward(seconds: float) -> None:
    """Seconds since 1970 are others. Before anything is imported; monotonic clocks go on as they are."""
    true_time = time.time

    def ahead() -> float:
        return true_time() + seconds

    time.time = ahead


def put_dates_forward(seconds: float) -> None:
    """`datetime.now` gives others, too. The class itself is nobody's to change, so modules get one of their own."""
    true = datetime.datetime

    class EitherOne(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, true)

    class Ahead(true, metaclass=EitherOne):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return true.now(tz) + datetime.timedelta(seconds=seconds)

        @classmethod
        def utcnow(cls) -> Any:
            return true.now(datetime.UTC).replace(tzinfo=None) + datetime.timedelta(seconds=seconds)

    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in TELLS_TIME and vars(module).get("datetime") is true:
            setattr(module, "datetime", Ahead)  # noqa: B010 (a module's own name, from outside)


def see_again_after(seconds: float) -> None:
    """As a broker that gives away again what takes long: RabbitMQ does, and kombu what it has written down in Redis.

    So hints are written down here, and kombu looks each time, not every tenth.
    """
    from kombu.transport import redis

    from scheduler.messaging import celery_app
    from scheduler.messaging.redis_transport import RedisChannel

    def is_hint(channel: RedisChannel, message: object) -> bool:
        return False

    setattr(RedisChannel, "is_droppable", is_hint)  # noqa: B010 (a method of ours, from outside)

    setattr(celery_app, "VISIBILITY_TIMEOUT", seconds)  # noqa: B010 (a constant, from outside)
    original: Any = redis.QoS.restore_visible

    @wraps(original)
    def restore_visible(self: Any, start: int = 0, num: int = 10, interval: int = 10) -> Any:
        return original(self, start, num, 1)

    setattr(redis.QoS, "restore_visible", restore_visible)  # noqa: B010 (a method of kombu's, from outside)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
