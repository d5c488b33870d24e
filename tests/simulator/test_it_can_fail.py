"""Mutations of the protocol: each breaks it on purpose, and some schedule must detect it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Executable

from scheduler.coordinator.decision_writer import Advance
from scheduler.sweeper.sweeper import Sweeper
from store.monitoring import sweep_queries
from store.runs import activations, decisions, reports, run_rows
from tests.simulator import twins_runs
from tests.simulator.database import TWINS
from tests.simulator.schedule import Schedule, patched_modules
from tests.simulator.tables import Data, ServerTransaction
from tests.simulator.twins_runs import encode_json, read_run

MAX_SCHEDULES = 2_000

Break = Callable[[pytest.MonkeyPatch], None]


def replace_twin(monkeypatch: pytest.MonkeyPatch, statement: Executable, twin: Callable[..., Any]) -> None:
    """Replace the twin of a statement."""
    name, _, _ = TWINS[id(statement)]
    monkeypatch.setitem(TWINS, id(statement), (name, twin, statement))


def skip_re_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the re-check after a commit."""
    monkeypatch.setattr(Advance, "has_unapplied_reports", lambda self: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def accept_reports_without_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept a report under any lease."""

    def report(
        tx: ServerTransaction, of_run: UUID, of_activation: UUID, new_outcome: Any, new_usage: Any, **_: Any
    ) -> int:
        row = tx.server["activations"].rows[of_run, of_activation]
        data = tx.lock_row(row, lambda a: a["status"] == "running")
        if data is None:
            return 0
        changes = {"status": "reported", "outcome": encode_json(new_outcome), "usage": encode_json(new_usage)}
        tx.put(row, {**data, **changes, "finished_at": tx.now})
        return 1

    replace_twin(monkeypatch, reports.REPORT, report)


def accept_deferred_reports_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept the report of an attempt whose claim is deferred, although another attempt has reported."""
    for statement in (reports.REPORT_DEFERRED, reports.REPORT_INLINE_DEFERRED):
        _, report, _ = TWINS[id(statement)]

        def repeat(
            tx: ServerTransaction,
            of_run: UUID,
            of_activation: UUID,
            of_lease: UUID,
            report: Callable[..., Any] = report,
            **values: Any,
        ) -> Any:
            row = tx.server["activations"].rows[of_run, of_activation]
            data = tx.lock_row(row, lambda a: a["status"] in ("reported", "done"))
            if data is not None:
                tx.put(row, {**data, "status": "ready", "attempt": 0})
            return report(tx, of_run=of_run, of_activation=of_activation, of_lease=of_lease, **values)

        replace_twin(monkeypatch, statement, repeat)


def ignore_budgets_in_local_continuations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a local continuation ignore a budget that was set meanwhile."""
    _, save_cached, _ = TWINS[id(decisions.SAVE_CACHED_RUN)]

    def save(tx: ServerTransaction, of_run: UUID, was_budgeted: bool, **values: Any) -> Any:
        run = tx.server["runs"].rows[of_run].committed
        return save_cached(tx, of_run=of_run, was_budgeted=run["budgeted"] if run else was_budgeted, **values)

    replace_twin(monkeypatch, decisions.SAVE_CACHED_RUN, save)


def expire_leases_in_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expire leases that could not be renewed during an outage."""
    monkeypatch.setattr(Sweeper, "_is_unbroken", lambda self: True)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def keep_ready_activations_at_a_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancel running activations only, and keep ready ones."""
    replace_twin(monkeypatch, run_rows.CLOSE, lambda tx, **_: 0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def claim_without_status_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Execute an activation again when its task message comes twice."""
    _, claim, _ = TWINS[id(activations.CLAIM)]

    def twice(tx: ServerTransaction, of_run: UUID, of_activation: UUID, **values: Any) -> Any:
        row = tx.server["activations"].rows.get((of_run, of_activation))
        data: Data | None = tx.visible(row) if row is not None else None
        if row is not None and data is not None and data["status"] == "done" and row.holder is None:
            tx.put(row, {**data, "status": "ready"})
        return claim(tx, of_run=of_run, of_activation=of_activation, **values)

    replace_twin(monkeypatch, activations.CLAIM, twice)


def never_resend_task_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never send a task message again."""

    def redispatch_unclaimed(tx: ServerTransaction, sent_before: datetime, most: int) -> list[Any]:
        return []

    replace_twin(monkeypatch, sweep_queries.REDISPATCH_UNCLAIMED, redispatch_unclaimed)


def advance_without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a run without locking it."""
    replace_twin(monkeypatch, run_rows.TRY_LOCK, read_run)


def do_not_record_side_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not record the side effects of nodes."""
    replace_twin(monkeypatch, activations.RECORD_EFFECT, lambda tx, **_: [{"cancel_requested": False}])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def trust_the_cached_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust a cached run, whatever has changed it since."""

    def save(tx: ServerTransaction, of_run: UUID, old_revision: int, **changes: Any) -> Any:
        return twins_runs.save(tx, of_run, tx.server["runs"].rows[of_run].committed["revision"], **changes)

    replace_twin(monkeypatch, decisions.SAVE_CACHED_RUN, save)


BREAKS = {
    skip_re_check: 540,
    accept_reports_without_lease: 1570,
    expire_leases_in_outages: 980,
    keep_ready_activations_at_a_cancel: 0,
    claim_without_status_check: 180,
    never_resend_task_messages: 10,
    advance_without_lock: 0,
    do_not_record_side_effects: 500,
    trust_the_cached_run: 0,
    ignore_budgets_in_local_continuations: 0,
    accept_deferred_reports_twice: 0,
}
"""What is broken, and the first seed: near one that detects it, which only saves time."""


@pytest.mark.parametrize(("break_protocol", "first"), BREAKS.items())
def test_broken_protocol_is_detected_by_a_schedule(break_protocol: Break, first: int, monkeypatch: pytest.MonkeyPatch):
    break_protocol(monkeypatch)

    assert first_broken_seed(first) is not None


def first_broken_seed(first: int) -> int | None:
    with patched_modules():
        for seed in range(first, first + MAX_SCHEDULES):
            try:
                Schedule(seed).run()
            except Exception:
                return seed
    return None
