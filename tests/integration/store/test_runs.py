"""The row of a run: its lock, and what a decision writes under it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from psycopg.errors import LockNotAvailable
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import DatabaseError, OperationalError

from canvas.events.run_events import Event
from canvas.routing.decision import Decision
from canvas.state.run_state import REUSE_RULES_VERSION, ActivationStatus
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.runs import decisions, run_queries, run_rows
from store.runs.decisions import DecisionInput
from store.runs.run_rows import RunRow
from store.tables.runs import runs as rows
from store.tables.runs import scopes
from tests.integration.engine import Bench, Run, until

SOON = timedelta(milliseconds=20)


def test_try_lock_of_a_locked_run_returns_at_once(bench: Bench):
    run = bench.start("begin -> work")

    with bench.database.transaction() as holder, bench.database.transaction() as other:
        assert run_rows.try_lock(holder, run.id)() is not None
        assert run_rows.try_lock(other, run.id)() is None


def test_lock_of_a_locked_run_times_out(bench: Bench):
    run = bench.start("begin -> work")

    with bench.database.transaction() as holder:
        run_rows.try_lock(holder, run.id)()
        with pytest.raises(OperationalError) as refused, bench.database.transaction() as other:
            run_rows.lock(other, run.id, timeout=SOON)

    assert isinstance(refused.value.orig, LockNotAvailable)


def test_locked_run_does_not_block_claims_and_reports(bench: Bench):
    run = bench.start("begin -> work")

    with bench.database.transaction() as holder:
        run_rows.try_lock(holder, run.id)()
        claimed = bench.claim(run, "begin")
        assert bench.report(claimed)


def test_run_of_newer_rules_cannot_be_locked(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, rules_version=REUSE_RULES_VERSION + 1)

    with bench.database.transaction() as tx:
        assert run_rows.try_lock(tx, run.id)() is None
        assert run_rows.lock(tx, run.id) is None


def test_run_of_another_tenant_is_not_found(bench: Bench):
    run = bench.start("begin -> work")

    with bench.database.transaction() as tx:
        assert run_rows.read(tx, bench.tenant_id, run.id) is not None
        assert run_rows.read(tx, bench.a_tenant(), run.id) is None


def test_decision_on_an_outdated_revision_writes_nothing(bench: Bench):
    run = bench.start("begin -> work")
    before = row_of(run)
    change(bench, run, revision=before.revision + 1)

    with pytest.raises(DatabaseError, match="A run changed under its lock"):
        apply_decision(bench, before)

    assert run.row["last_event"] == before.last_event


def test_decision_about_an_activation_in_another_status_writes_nothing(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    before = row_of(run)

    with pytest.raises(DatabaseError, match="not in the status"):
        apply_decision(bench, before, new_statuses={claimed.id: ActivationStatus.DONE})

    assert run.row["revision"] == before.revision
    assert run.statuses == {"begin": "running"}


def test_activations_beyond_max_running_are_promoted_in_canonical_order(bench: Bench):
    bench.coordinator = bench.a_coordinator(max_running=2)
    bench.lifecycle = type(bench.lifecycle)(bench.coordinator)
    run = bench.start("begin -> one, two, three, four")
    bench.play(until=lambda: "one" in run.statuses)

    at_first = dict(run.statuses)
    bench.report(bench.claim(run, "two"))
    bench.coordinator.advance_run(run.id)

    assert at_first == {"begin": "done", "one": "ready", "two": "ready", "three": "queued", "four": "queued"}
    assert run.statuses == {"begin": "done", "one": "ready", "two": "done", "three": "ready", "four": "queued"}
    assert [row.node_id for row in run.activations] == ["begin", "one", "two", "three", "four"]


def test_scopes_of_a_run_are_deleted_when_it_ends(bench: Bench):
    run = bench.start("begin -> work")
    assert count_scopes(bench, run) == 1

    bench.play()

    assert run.status == "succeeded"
    assert count_scopes(bench, run) == 0
    assert {row.status for row in run.activations} == {"done"}


# -- advances from a cached run --------------------------------------------------------------------------------------
def test_unchanged_cached_run_is_locked_by_the_statement_that_writes_it(bench: Bench):
    run = bench.start("begin -> work")
    cached = row_of(run)

    with bench.database.transaction() as tx:
        advance_from_cache(tx, cached)
        tx.wait()
        with bench.database.transaction() as other:
            assert run_rows.try_lock(other, run.id)() is None

    assert (run.row["revision"], run.row["error"]) == (cached.revision + 1, "written by a step")


def test_advance_from_a_stale_cached_run_writes_nothing(bench: Bench):
    run = bench.start("begin -> work")
    cached = row_of(run)
    bench.report(bench.claim(run, "begin"))
    bench.coordinator.advance_run(run.id)
    event_names = run.event_names

    with pytest.raises(DatabaseError) as refused:
        commit_advance_from_cache(bench, cached)

    assert decisions.is_stale_cache(refused.value)
    assert not run_rows.is_lock_timeout(refused.value)
    assert (run.row["error"], run.event_names) == ("", event_names)


def test_advance_from_a_cached_run_that_is_locked_is_refused_at_once(bench: Bench):
    run = bench.start("begin -> work")
    cached, event_names = row_of(run), run.event_names

    with bench.database.transaction() as holder:
        run_rows.try_lock(holder, run.id)()
        with pytest.raises(DatabaseError) as refused:
            commit_advance_from_cache(bench, cached)

    assert decisions.is_stale_cache(refused.value)
    assert (run.row["error"], run.event_names) == ("", event_names)


def test_advance_from_a_cached_run_that_was_deleted_is_refused(bench: Bench):
    cached = row_of(bench.start("begin -> work"))._replace(id=new_id())

    with pytest.raises(DatabaseError) as refused:
        commit_advance_from_cache(bench, cached)

    assert decisions.is_stale_cache(refused.value)


# -- locks with a timeout --------------------------------------------------------------------------------------------
def test_lock_with_timeout_returns_the_row_as_the_lock_holder_has_committed_it(bench: Bench):
    run = bench.start("begin -> work")
    before = run.row["revision"]

    with ThreadPoolExecutor(1) as threads:
        with bench.database.transaction() as holder:
            run_rows.try_lock(holder, run.id)()
            waited = threads.submit(lock_in_own_transaction, bench, run, timedelta(seconds=20))
            until(lambda: a_transaction_waits_for_a_lock(bench))
            holder.execute(update(rows).where(rows.c.id == run.id).values(revision=before + 1))
        found = waited.result(timeout=20)

    assert found is not None
    assert found.revision == before + 1


def test_lock_with_timeout_that_expires_fails_the_transaction(bench: Bench):
    run = bench.start("begin -> work")

    with bench.database.transaction() as holder:
        run_rows.try_lock(holder, run.id)()
        with pytest.raises(OperationalError) as refused:
            lock_and_write(bench, run, lambda tx: run_rows.lock_with_timeout(tx, run.id, SOON))

    assert run_rows.is_lock_timeout(refused.value)
    assert not decisions.is_stale_cache(refused.value)
    assert run.row["error"] == ""


def test_timeout_of_a_lock_does_not_apply_to_later_statements(bench: Bench):
    run = bench.start("begin -> work")

    with bench.database.transaction() as tx:
        assert run_rows.lock_with_timeout(tx, run.id, SOON)() is not None
        assert tx.scalar(text("select current_setting('lock_timeout')")) == "0"


def test_lock_with_timeout_returns_nothing_for_a_run_of_newer_rules(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, rules_version=REUSE_RULES_VERSION + 1)

    with bench.database.transaction() as tx:
        assert run_rows.lock_with_timeout(tx, run.id, SOON)() is None


# -- helpers ---------------------------------------------------------------------------------------------------------
def row_of(run: Run) -> RunRow:
    return RunRow.from_columns(run.row)


def apply_decision(bench: Bench, before: RunRow, **decision: object) -> None:
    with bench.database.transaction() as tx:
        state = run_rows.state_of(tx, before, [], whole=True)
        decisions.apply(tx, before, Decision(state, **decision), DecisionInput({}), timedelta(days=1))


def advance_from_cache(tx: Transaction, cached: RunRow) -> None:
    """Apply a decision to a cached run: events, scopes and the row."""
    state = run_rows.state_of(tx, cached, [], whole=True)
    decision = Decision(state, error="written by a step", events=[Event("message")], changed_scopes=set(state.scopes))
    decisions.apply(tx, cached, decision, DecisionInput({}, is_locked=False), timedelta(days=1))


def commit_advance_from_cache(bench: Bench, cached: RunRow) -> None:
    with bench.database.transaction() as tx:
        advance_from_cache(tx, cached)


def change(bench: Bench, run: Run, **values: object) -> None:
    with bench.database.transaction() as tx:
        tx.execute(update(rows).where(rows.c.id == run.id).values(**values))


def count_scopes(bench: Bench, run: Run) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(select(func.count()).select_from(scopes).where(scopes.c.run_id == run.id))


def lock_in_own_transaction(bench: Bench, run: Run, timeout: timedelta) -> Any:
    """Lock a run in its own transaction; wait at most `timeout`."""
    with bench.database.transaction() as tx:
        return run_rows.lock_with_timeout(tx, run.id, timeout)()


def a_transaction_waits_for_a_lock(bench: Bench) -> bool:
    waiting = text("select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
    with bench.database.transaction() as tx:
        return bool(tx.rows(waiting))


def lock_and_write(bench: Bench, run: Run, lock: Callable[[Transaction], object]) -> None:
    """Lock a run and write its row without waiting for the result of the lock."""
    with bench.database.transaction() as tx:
        lock(tx)
        tx.send(update(rows).where(rows.c.id == run.id).values(error="written blindly"))


def test_row_of_a_new_run_has_every_column_of_a_locked_one_but_what_the_database_sets(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    create, created = run_rows.create, list[RunRow]()

    def create_and_remember(*args: Any, **more: Any) -> RunRow:
        created.append(create(*args, **more))
        return created[-1]

    monkeypatch.setattr(run_rows, "create", create_and_remember)
    run = bench.start("begin -> work")

    with bench.database.transaction() as tx:
        locked = run_rows.try_lock(tx, run.id)()

    assert locked is not None
    names = RunRow._fields
    assert {name for name in names if getattr(created[0], name) is None} - {
        name for name in names if getattr(locked, name) is None
    } == {"created_at"}


# -- lists of runs ---------------------------------------------------------------------------------------------------
def test_total_of_a_page_includes_a_run_accepted_after_the_count(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    bench.start("begin -> work")
    scalar = Transaction.scalar

    def count_before_another_start(tx: Transaction, *args: Any, **values: Any) -> Any:
        total = scalar(tx, *args, **values)
        monkeypatch.undo()
        bench.start("begin -> work")
        return total

    with bench.database.transaction() as tx:
        monkeypatch.setattr(Transaction, "scalar", count_before_another_start)
        found, total = run_queries.page(tx, bench.tenant_id)

    assert (len(found), total) == (2, 2)
