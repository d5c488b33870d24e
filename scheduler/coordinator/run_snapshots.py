"""Three ways to get a run for an advance: lock it, wait for its lock, or use the row that the last advance wrote.

Each sends the lock and everything that an advance reads together. What is read comes in later statements than the lock,
so it includes whatever was committed before the lock was acquired (docs/protocol.md#locks).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from canvas.ids import RunId
from canvas.state.run_state import Report
from store.db.transaction import Transaction
from store.runs import reports as report_rows
from store.runs import run_rows, scopes
from store.runs.prepared_claims import CachedRun
from store.runs.run_rows import RunRow
from store.runs.scopes import PrefetchedScopes

LOCK_TIMEOUT = timedelta(milliseconds=50)  # for a report; an advance takes a few milliseconds

OUTERMOST = frozenset({""})
"""The key of the scope outside of all containers."""


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run's row, and what an advance reads beside it."""

    row: RunRow
    reports: Callable[[], list[Report]]  # returns the unapplied reports that are stored
    scopes: PrefetchedScopes | None  # None: an advance reads the scopes that it needs
    is_locked: bool = True  # False: the row is a cached one, and writing it locks the run


def try_lock(tx: Transaction, run_id: RunId, scope_keys: frozenset[str] | None = OUTERMOST) -> RunSnapshot | None:
    """Lock a run; return None if it is locked already, or does not exist.

    `scope_keys`: the scopes that the advance will probably read; None: all.
    """
    return _read(tx, run_id, run_rows.try_lock(tx, run_id), scope_keys)


def lock_with_timeout(tx: Transaction, run_id: RunId, scope_keys: frozenset[str] | None) -> RunSnapshot | None:
    """Wait for a run's lock, in a transaction that has locked nothing yet; return None if there is no such run.

    After LOCK_TIMEOUT the transaction fails (`run_rows.is_lock_timeout`).
    """
    return _read(tx, run_id, run_rows.lock_with_timeout(tx, run_id, LOCK_TIMEOUT), scope_keys)


def from_cache(cached: CachedRun) -> RunSnapshot:
    """Use a run as this thread's last advance wrote it. Nothing is read, and the run is locked when it is written.

    If the run has changed, or is locked, the transaction then fails (`store.runs.decisions.is_stale_cache`). Reports of
    others are left to the next advance.
    """
    return RunSnapshot(cached.row, list, cached.scopes, is_locked=False)


def of_locked_row(tx: Transaction, row: RunRow) -> RunSnapshot:
    """Read the unapplied reports of a run that the transaction has locked before."""
    return RunSnapshot(row, report_rows.unapplied_reports(tx, row.id), None)


def _read(
    tx: Transaction, run_id: RunId, row: Callable[[], RunRow | None], scope_keys: frozenset[str] | None
) -> RunSnapshot | None:
    reports = report_rows.unapplied_reports(tx, run_id)
    known_scopes = scopes.prefetch(tx, run_id, scope_keys)
    locked = row()  # waits for everything that was sent
    return RunSnapshot(locked, reports, known_scopes) if locked is not None else None
