"""What the simulator is worth: each of these breaks the protocol on purpose, and a few schedules find it out."""

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
from tests.simulator.schedule import Schedule, playing
from tests.simulator.tables import Data, Work
from tests.simulator.twins_runs import packed, read_run

MOST = 2_000

Break = Callable[[pytest.MonkeyPatch], None]


def instead(monkeypatch: pytest.MonkeyPatch, statement: Executable, twin: Callable[..., Any]) -> None:
    """A statement does something else."""
    name, _, _ = TWINS[id(statement)]
    monkeypatch.setitem(TWINS, id(statement), (name, twin, statement))


def nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a commit nobody looks for what was reported meanwhile."""
    monkeypatch.setattr(Advance, "has_unapplied_reports", lambda self: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def a_report_needs_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reports is believed."""

    def report(work: Work, of_run: UUID, of_activation: UUID, new_outcome: Any, new_usage: Any, **_: Any) -> int:
        row = work.server["activations"].rows[of_run, of_activation]
        data = work.take(row, lambda a: a["status"] == "running")
        if data is None:
            return 0
        told = {"status": "reported", "outcome": packed(new_outcome), "usage": packed(new_usage)}
        work.put(row, {**data, **told, "finished_at": work.now})
        return 1

    instead(monkeypatch, reports.REPORT, report)


def a_thread_goes_on_without_looking_for_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step has left is taken to be so still, though somebody has set a budget."""
    _, save_as_left, _ = TWINS[id(decisions.SAVE_CACHED_RUN)]

    def save(work: Work, of_run: UUID, was_budgeted: bool, **given: Any) -> Any:
        run = work.server["runs"].rows[of_run].committed
        return save_as_left(work, of_run=of_run, was_budgeted=run["budgeted"] if run else was_budgeted, **given)

    instead(monkeypatch, decisions.SAVE_CACHED_RUN, save)


def the_sweeper_ignores_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases count as silent although nobody could renew them."""
    monkeypatch.setattr(Sweeper, "_is_unbroken", lambda self: True)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def a_cancel_leaves_what_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel calls off what runs, and leaves what has not begun to begin."""
    instead(monkeypatch, run_rows.CLOSE, lambda work, **_: 0)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def a_claim_asks_for_no_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hint that comes twice is followed twice."""
    _, claim, _ = TWINS[id(activations.CLAIM)]

    def twice(work: Work, of_run: UUID, of_activation: UUID, **given: Any) -> Any:
        row = work.server["activations"].rows.get((of_run, of_activation))
        data: Data | None = work.sees(row) if row is not None else None
        if row is not None and data is not None and data["status"] == "done" and row.holder is None:
            work.put(row, {**data, "status": "ready"})
        return claim(work, of_run=of_run, of_activation=of_activation, **given)

    instead(monkeypatch, activations.CLAIM, twice)


def lost_hints_stay_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeper sends no hint again."""

    def unclaimed(work: Work, sent_before: datetime, most: int) -> list[Any]:
        return []

    instead(monkeypatch, sweep_queries.REDISPATCH_UNCLAIMED, unclaimed)


def two_fold_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is read without being locked."""
    instead(monkeypatch, run_rows.TRY_LOCK, read_run)


def nobody_writes_down_what_he_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node acts outside, and its row does not say so."""
    instead(monkeypatch, activations.RECORD_EFFECT, lambda work, **_: [{"called_off": False}])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]


def a_step_trusts_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is taken to be as it was left, whoever has held it since."""

    def save(work: Work, of_run: UUID, old_revision: int, **changes: Any) -> Any:
        return twins_runs.save(work, of_run, work.server["runs"].rows[of_run].committed["revision"], **changes)

    instead(monkeypatch, decisions.SAVE_CACHED_RUN, save)


BREAKS = {
    nobody_looks: 1660,
    a_report_needs_no_lease: 4080,
    the_sweeper_ignores_outages: 978,
    a_cancel_leaves_what_is_ready: 0,
    a_claim_asks_for_no_status: 60,
    lost_hints_stay_lost: 10,
    two_fold_at_once: 0,
    nobody_writes_down_what_he_does: 4040,
    a_step_trusts_its_memory: 0,
    a_thread_goes_on_without_looking_for_budgets: 0,
}
"""What is broken, and where to begin: at a seed near one that has found it out, which saves time and no more."""


@pytest.mark.parametrize(("broken", "first"), BREAKS.items())
def test_a_broken_protocol_is_found_out(broken: Break, first: int, monkeypatch: pytest.MonkeyPatch):
    broken(monkeypatch)

    assert first_broken_seed(first) is not None


def first_broken_seed(first: int) -> int | None:
    with playing():
        for seed in range(first, first + MOST):
            try:
                Schedule(seed).play()
            except Exception:
                return seed
    return None
