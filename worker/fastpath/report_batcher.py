"""Reports of one run that come at the same time are stored together: one step, one commit for as many as wait.

Whoever reports when nobody of this process does goes ahead by himself, at once. Who comes meanwhile waits for his turn,
and then stores what all have that wait by then. If that fails, for whatever reason, each of them goes by himself.
"""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from store.runs.new_activations import InlineReport
from worker.fastpath.admission import ADMISSION

MOST = 64  # reports of one step; a transaction is to be over within a moment


@dataclass(eq=False)
class PendingReport:
    """One report, while it waits."""

    own: InlineReport
    near: frozenset[str] | None  # keys of the scopes that its step reads; None: all
    is_stored: bool = False  # by another, together with his
    may_be_stored: bool = False  # it was sent together with others, and an error came in place of an answer
    batch: "Sequence[PendingReport]" = ()  # what is to be stored, once it is this one's turn
    _called: threading.Event | None = None  # of one that has to wait; few have

    def will_wait(self) -> None:
        """From here on it may be called."""
        self._called = threading.Event()

    def call(self) -> None:
        """Its turn has come, or somebody has dealt with it."""
        assert self._called is not None, "who does not wait is not called"
        self._called.set()

    def wait(self) -> None:
        """Until it is called."""
        assert self._called is not None, "who waits has said so"
        self._called.wait()


class BatchLease:
    """Where one reporter has a run to himself, among those of this process."""

    def __init__(self, joint: "ReportBatcher", run_id: UUID, batch: Sequence[PendingReport]) -> None:
        self.batch = batch
        self._joint = joint
        self._run_id = run_id
        self._is_over = not batch

    def end(self) -> None:
        """Let the next one go ahead. Ending twice is ending once."""
        if not self._is_over:
            self._is_over = True
            self._joint.pass_on(self._run_id)

    def call_others(self) -> None:
        """Tell the others of the batch that somebody has dealt with them, or that they are to go alone."""
        for part in self.batch[1:]:
            part.call()


class ReportBatcher:
    """The reports of a process, by run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[UUID, list[PendingReport]] = {}  # of runs that somebody reports for

    @contextmanager
    def turn(self, part: PendingReport) -> Generator[BatchLease]:
        """Wait for the turn of a report; its batch has the report itself first. Empty: it was dealt with."""
        run_id = part.own.claim.run_id
        with self._lock:
            waiting = self._waiting.get(run_id)
            if waiting is None:
                self._waiting[run_id] = []
                part.batch = (part,)
            else:
                part.will_wait()
                waiting.append(part)
        if waiting is not None:
            with ADMISSION.waits():
                part.wait()
        turn = BatchLease(self, run_id, part.batch)
        try:
            yield turn
        finally:
            turn.end()
            turn.call_others()
            part.batch = ()  # which it is in itself

    def pass_on(self, run_id: UUID) -> None:
        """The first of those who wait goes ahead, for all of them."""
        with self._lock:
            waiting = self._waiting[run_id]
            if not waiting:
                del self._waiting[run_id]
                return
            count = _together(waiting)
            batch, self._waiting[run_id] = waiting[:count], waiting[count:]
        batch[0].batch = batch
        batch[0].call()


def _together(waiting: Sequence[PendingReport]) -> int:
    """Return how many of the first reports are stored together. A large report goes alone: it takes its time."""
    large = next((at for at, part in enumerate(waiting[:MOST]) if part.own.written.size), MOST)
    return max(1, min(large, len(waiting)))
