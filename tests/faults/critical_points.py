"""Points in the life of a run at which a process can be made to stop, patched into production code.

`arm(Stop("after the claim", nth=3, how=signal.SIGKILL))` wraps the functions that pass the point; the third passage
stops this process (for good, or with SIGSTOP until SIGCONT). Commits are distinguished by what their transaction has
written: a report, an advance, the first rows of a run, a repair of the sweeper.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

POINTS = {
    "worker": (
        "after the claim",
        "at work",
        "before the commit of a report",
        "after the commit of a report",
        "before a task message",
        "after a task message",
        "at a renewal",
    ),
    "scheduler": (
        "before the commit of an advance",
        "after the commit of an advance",
        "before a task message",
        "after a task message",
        "before the commit of a start",
        "after the commit of a start",
    ),
    "sweeper": (
        "before the commit of a repair",
        "after the commit of a repair",
        "before a task message",
        "after a task message",
    ),
    "api": (
        "before the commit of a start",
        "after the commit of a start",
        "before a task message",
        "after a task message",
    ),
}
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
AFTER_REQUEST = 0.1  # seconds after a request was sent, so that its server has it


@dataclass
class Stop:
    """The point at which a process stops itself, the number of the passage, and the signal."""

    point: str
    nth: int
    how: signal.Signals

    def __post_init__(self) -> None:
        self._passages = 0
        self._lock = threading.Lock()

    @staticmethod
    def parse(text: str) -> "Stop":
        """ "after the claim, 3, SIGKILL" as it stands in the environment."""
        point, nth, how = (part.strip() for part in text.split(","))
        return Stop(point, int(nth), SIGNALS[how])

    def __str__(self) -> str:
        return f"{self.point}, {self.nth}, {self.how.name}"

    def is_last(self, point: str) -> bool:
        """Count a passage; return whether the process stops at it."""
        if point != self.point:
            return False
        with self._lock:
            self._passages += 1
            return self._passages == self.nth

    def stop(self) -> None:
        os.kill(os.getpid(), self.how)


def arm(stop: Stop) -> None:
    """Wrap the functions that pass a point."""
    reached = _PointReached(stop)
    _at_commits(reached)
    _at_claims(reached)
    _at_task_messages(reached)
    _at_requests(reached)


@dataclass(frozen=True, slots=True)
class _PointReached:
    armed: Stop

    def __call__(self, point: str) -> None:
        if self.armed.is_last(point):
            self.armed.stop()


# -- what a transaction has written ----------------------------------------------------------------------------------
_written: ContextVar[set[str] | None] = ContextVar("written", default=None)


def _at_commits(reached: _PointReached) -> None:
    from store.db.database import Database
    from store.monitoring import sweep_queries
    from store.runs import decisions, reports, run_rows

    original = Database.transaction

    @contextmanager
    def transaction(self: Database) -> Generator[Any]:
        own: set[str] = set()
        before = _written.set(own)
        try:
            with original(self) as tx:
                yield tx
                for what in _ordered(own):
                    reached(f"before the commit of {what}")
        finally:
            _written.reset(before)
        for what in _ordered(own):
            reached(f"after the commit of {what}")

    setattr(Database, "transaction", transaction)  # noqa: B010 (a method of production code, from outside)
    _record_writes(reports, "report", "a report", lambda stored: stored.count() > 0)
    _record_writes(reports, "report_inline", "a report")
    _record_writes(decisions, "apply", "an advance")
    _record_writes(run_rows, "create", "a start")
    _record_writes(sweep_queries, "expire_leases", "a repair", lambda found: bool(found))
    _record_writes(sweep_queries, "redispatch_unclaimed", "a repair", lambda found: bool(found))


def _ordered(written: set[str]) -> Iterator[str]:
    """Yield the kinds of writes in order: a start contains an advance, and so does a report with inline advance."""
    return (what for what in ("a report", "a start", "an advance", "a repair") if what in written)


def _record_writes(module: Any, name: str, what: str, counts: Callable[[Any], bool] = lambda _: True) -> None:
    original = getattr(module, name)

    @wraps(original)
    def recording(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        own = _written.get()
        if own is not None and counts(result):
            own.add(what)
        return result

    setattr(module, name, recording)


# -- others ----------------------------------------------------------------------------------------------------------
def _at_claims(reached: _PointReached) -> None:
    from store.runs import activations

    claim, renew = activations.claim, activations.renew

    @wraps(claim)
    def claiming(*args: Any, **kwargs: Any) -> Any:
        claimed = claim(*args, **kwargs)
        if claimed is not None:
            reached("after the claim")
        return claimed

    @wraps(renew)
    def renewing(*args: Any, **kwargs: Any) -> Any:
        reached("at a renewal")
        return renew(*args, **kwargs)

    activations.claim, activations.renew = claiming, renewing


def _at_task_messages(reached: _PointReached) -> None:
    from scheduler.messaging.dispatch import Dispatch

    original = Dispatch.enqueue_nodes

    @wraps(original)
    def enqueue(self: Dispatch, messages: Any, *notifications: Any) -> None:
        if messages:
            reached("before a task message")
        original(self, messages, *notifications)
        if messages:
            reached("after a task message")

    setattr(Dispatch, "enqueue_nodes", enqueue)  # noqa: B010 (a method of production code, from outside)


def _at_requests(reached: _PointReached) -> None:
    """Patch the library through which all requests of models and nodes leave."""
    import httpcore2

    original = httpcore2.AsyncConnectionPool.handle_async_request

    @wraps(original)
    async def handle(self: Any, request: Any) -> Any:
        if reached.armed.is_last("at work"):
            asyncio.get_running_loop().call_later(AFTER_REQUEST, reached.armed.stop)
        return await original(self, request)

    setattr(httpcore2.AsyncConnectionPool, "handle_async_request", handle)  # noqa: B010 (as above)
