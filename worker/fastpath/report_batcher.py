"""Group commit of reports: reports of one run that arrive at the same time are stored in one transaction.

The first reporter of a run writes at once. Reports that arrive meanwhile wait, and the next reporter stores all that
wait by then. If that fails, for whatever reason, each reporter stores its own report.
"""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from canvas.ids import RunId
from store.runs.new_activations import InlineReport
from worker.fastpath.continuation import Continuation
from worker.threads.computing_threads import COMPUTING_THREADS

MAX_BATCH = 64  # reports of one transaction, which must be over within a moment


@dataclass(eq=False)
class PendingReport:
    """One report, until it is stored."""

    report: InlineReport
    scope_keys: frozenset[str] | None  # keys of the scopes that its advance reads; None: all
    continuation: Continuation | None = None
    is_stored: bool = False  # by another reporter, in its batch
    may_be_stored: bool = False  # it was sent in a batch, and an error came in place of an answer
    batch: "Sequence[PendingReport]" = ()  # the reports to store, once it is this reporter's turn
    _woken: threading.Event | None = None  # only of a report that has to wait; few have

    def prepare_wait(self) -> None:
        """Prepare to wait. From here on `wake` may be called."""
        self._woken = threading.Event()

    def wake(self) -> None:
        """Wake the reporter: its turn has come, or its report was in another reporter's batch."""
        assert self._woken is not None, "only a waiting reporter is woken"
        self._woken.set()

    def wait(self) -> None:
        """Wait for `wake`."""
        assert self._woken is not None, "prepare_wait() comes first"
        self._woken.wait()


class ReportBatch:
    """The reports that one reporter stores, while no other reporter of this process stores reports of the run."""

    def __init__(self, batcher: "ReportBatcher", run_id: RunId, reports: Sequence[PendingReport]) -> None:
        self.reports = reports
        self._batcher = batcher
        self._run_id = run_id
        self._is_over = not reports

    def end(self) -> None:
        """Let the next reporter begin. A second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._batcher.release_next(self._run_id)

    def wake_others(self) -> None:
        """Wake the other reporters of the batch: their reports are stored, or each stores its own."""
        for pending in self.reports[1:]:
            pending.wake()


class ReportBatcher:
    """The reports that wait in a process, by run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[RunId, list[PendingReport]] = {}  # of runs for which a reporter is storing

    @contextmanager
    def join(self, report: PendingReport) -> Generator[ReportBatch]:
        """Wait until a report may be stored, alone or with others: its batch has the report itself first.

        The batch is empty if another reporter has had this report in its own batch.
        """
        run_id = report.report.claim.run_id
        with self._lock:
            waiting = self._waiting.get(run_id)
            if waiting is None:
                self._waiting[run_id] = []
                report.batch = (report,)
            else:
                report.prepare_wait()
                waiting.append(report)
        if waiting is not None:
            with COMPUTING_THREADS.waiting():
                report.wait()
        batch = ReportBatch(self, run_id, report.batch)
        try:
            yield batch
        finally:
            batch.end()
            batch.wake_others()
            report.batch = ()  # it holds the report itself: a reference cycle

    def release_next(self, run_id: RunId) -> None:
        """Give the turn to the first waiting reporter, for all that wait."""
        with self._lock:
            waiting = self._waiting[run_id]
            if not waiting:
                del self._waiting[run_id]
                return
            count = _batch_size(waiting)
            batch, self._waiting[run_id] = waiting[:count], waiting[count:]
        batch[0].batch = batch
        batch[0].wake()


def _batch_size(waiting: Sequence[PendingReport]) -> int:
    """Return how many of the first reports are stored together. A large report takes long, so it is stored alone."""
    large = next((at for at, pending in enumerate(waiting[:MAX_BATCH]) if pending.report.payload.size), MAX_BATCH)
    return max(1, min(large, len(waiting)))
