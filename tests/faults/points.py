"""Points in the life of a run at which a process can be made to stop: named, and found in production code from outside.

`arm(Stop("after the claim", nth=3, how=signal.SIGKILL))` wraps the functions that pass the point; the third passage
is this process's last (or, with SIGSTOP, the one it stands at until somebody lets it go on). Commits are told apart by
what their transaction has written: a report, a fold, the first rows of a run, a repair of the sweeper's.
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
        "before a hint",
        "after a hint",
        "at a renewal",
    ),
    "scheduler": (
        "before the commit of a fold",
        "after the commit of a fold",
        "before a hint",
        "after a hint",
        "before the commit of a start",
        "after the commit of a start",
    ),
    "sweeper": (
        "before the commit of a repair",
        "after the commit of a repair",
        "before a hint",
        "after a hint",
    ),
    "api": (
        "before the commit of a start",
        "after the commit of a start",
        "before a hint",
        "after a hint",
    ),
}
HOW = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
INTO_THE_WORK = 0.1  # seconds after a request has left, so that its server has it


@dataclass
class Stop:
    """Where a process shall stop itself, at the how manieth passage, and by which signal."""

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
        return Stop(point, int(nth), HOW[how])

    def __str__(self) -> str:
        return f"{self.point}, {self.nth}, {self.how.name}"

    def is_last(self, point: str) -> bool:
        """Whether this passage is the one."""
        if point != self.point:
            return False
        with self._lock:
            self._passages += 1
            return self._passages == self.nth

    def stop(self) -> None:
        os.kill(os.getpid(), self.how)


def arm(stop: Stop) -> None:
    """Wrap whatever passes a point."""
    passing = _Passing(stop)
    _at_commits(passing)
    _at_claims(passing)
    _at_hints(passing)
    _at_requests(passing)


@dataclass(frozen=True, slots=True)
class _Passing:
    armed: Stop

    def __call__(self, point: str) -> None:
        if self.armed.is_last(point):
            self.armed.stop()


# -- what a transaction has written ----------------------------------------------------------------------------------
_written: ContextVar[set[str] | None] = ContextVar("written", default=None)


def _at_commits(passing: _Passing) -> None:
    from store.db.database import Database
    from store.monitoring import sweep_queries
    from store.runs import decisions, reports, run_rows

    original = Database.transaction

    @contextmanager
    def transaction(self: Database) -> Generator[Any]:
        mine: set[str] = set()
        before = _written.set(mine)
        try:
            with original(self) as tx:
                yield tx
                for what in _ordered(mine):
                    passing(f"before the commit of {what}")
        finally:
            _written.reset(before)
        for what in _ordered(mine):
            passing(f"after the commit of {what}")

    setattr(Database, "transaction", transaction)  # noqa: B010 (a method of production code, from outside)
    _noting(reports, "report", "a report", lambda stored: stored.count() > 0)
    _noting(reports, "report_inline", "a report")
    _noting(decisions, "apply", "a fold")
    _noting(run_rows, "create", "a start")
    _noting(sweep_queries, "expire_leases", "a repair", lambda found: bool(found))
    _noting(sweep_queries, "redispatch_unclaimed", "a repair", lambda found: bool(found))


def _ordered(written: set[str]) -> Iterator[str]:
    """A start has a fold in it, and so has a report that it rides along with."""
    return (what for what in ("a report", "a start", "a fold", "a repair") if what in written)


def _noting(module: Any, name: str, what: str, counts: Callable[[Any], bool] = lambda _: True) -> None:
    original = getattr(module, name)

    @wraps(original)
    def noting(*given: Any, **named: Any) -> Any:
        result = original(*given, **named)
        mine = _written.get()
        if mine is not None and counts(result):
            mine.add(what)
        return result

    setattr(module, name, noting)


# -- others ----------------------------------------------------------------------------------------------------------
def _at_claims(passing: _Passing) -> None:
    from store.runs import activations

    claim, renew = activations.claim, activations.renew

    @wraps(claim)
    def claiming(*given: Any, **named: Any) -> Any:
        claimed = claim(*given, **named)
        if claimed is not None:
            passing("after the claim")
        return claimed

    @wraps(renew)
    def renewing(*given: Any, **named: Any) -> Any:
        passing("at a renewal")
        return renew(*given, **named)

    activations.claim, activations.renew = claiming, renewing


def _at_hints(passing: _Passing) -> None:
    from scheduler.messaging.dispatch import Dispatch

    original = Dispatch.enqueue_nodes

    @wraps(original)
    def hint(self: Dispatch, hints: Any, *echo: Any) -> None:
        if hints:
            passing("before a hint")
        original(self, hints, *echo)
        if hints:
            passing("after a hint")

    setattr(Dispatch, "enqueue_nodes", hint)  # noqa: B010 (a method of production code, from outside)


def _at_requests(passing: _Passing) -> None:
    """Requests of models and of nodes leave through one library."""
    import httpcore2

    original = httpcore2.AsyncConnectionPool.handle_async_request

    @wraps(original)
    async def handle(self: Any, request: Any) -> Any:
        if passing.armed.is_last("at work"):
            asyncio.get_running_loop().call_later(INTO_THE_WORK, passing.armed.stop)
        return await original(self, request)

    setattr(httpcore2.AsyncConnectionPool, "handle_async_request", handle)  # noqa: B010 (as above)
