"""Claims, durable claims, renewals and reports: their WHERE clauses decide every race."""

from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from threading import Barrier
from uuid import UUID, uuid4

from sqlalchemy import func, select, text, update

from store.db.transaction import Transaction
from store.monitoring import sweep_queries
from store.runs import activations, reports, run_rows
from store.runs.activations import Claim
from store.tables.runs import activations as rows
from store.tables.runs import node_values, turns, variables
from tests.integration.engine import LEASE, Bench, Run, until, values_of, variable_of

AT_ONCE = timedelta(0)
WAITING_FOR_LOCKS = text("""
    select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
""")


# -- claiming --------------------------------------------------------------------------------------------------------
def test_task_message_delivered_twice_is_claimed_once(bench: Bench):
    run = bench.start("begin -> work")
    both = Barrier(2)

    def claim() -> Claim | None:
        both.wait()
        return bench.try_claim(run, "begin")

    with ThreadPoolExecutor(2) as pool:
        claims = [future.result() for future in [pool.submit(claim), pool.submit(claim)]]

    assert sorted(claimed is None for claimed in claims) == [False, True]
    assert run.activation("begin").attempt == 1


def test_claim_repeated_after_a_lost_answer_is_the_same_attempt(bench: Bench):
    run = bench.start("begin -> work")
    lease_id = uuid4()

    def claim(lease_id: UUID) -> Claim | None:
        with bench.database.transaction() as tx:
            begin = run.activation("begin").id
            return activations.claim(
                tx, run.id, begin, lease_id=lease_id, lease=LEASE, worker="worker", max_crash_count=0
            )

    first, again, stranger = claim(lease_id), claim(lease_id), claim(uuid4())
    change(bench, run, cancel_requested=True)

    assert first == again
    assert (run.activation("begin").attempt, stranger) == (1, None)
    assert claim(lease_id) is None, "a claim whose cancel was requested meanwhile"


def test_activation_that_is_not_due_is_not_claimed(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, not_before=func.now() + timedelta(minutes=1))

    assert bench.try_claim(run, "begin") is None

    change(bench, run, not_before=func.now())
    assert bench.try_claim(run, "begin") is not None


def test_nothing_is_claimed_after_a_cancel_has_committed(bench: Bench):
    run = bench.start("begin -> work")

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)

    assert bench.try_claim(run, "begin") is None
    assert run.statuses == {"begin": "closed"}


def test_claim_during_a_cancel_waits_and_gets_nothing(bench: Bench):
    run = bench.start("begin -> work")

    with cancelling(bench, run) as commit, in_background(bench, lambda: bench.try_claim(run, "begin")) as claimed:
        commit()

    assert claimed.result() is None
    assert run.activation("begin").attempt == 0


def test_cancel_during_a_claim_waits_and_requests_its_cancel(bench: Bench):
    run = bench.start("begin -> work")
    with bench.database.transaction() as tx:
        row = run.activation("begin")
        claimed = activations.claim(tx, run.id, row.id, lease_id=uuid4(), lease=LEASE, worker="by hand")
        assert claimed is not None
        with ThreadPoolExecutor(1) as pool:
            cancelled = pool.submit(bench.lifecycle.cancel_run, bench.tenant_id, run.id)
            until_a_transaction_waits(bench)
            tx.commit()
            assert cancelled.result() == "stopping"

    assert run.activation("begin").cancel_requested
    assert renew(bench, claimed) == set()


# -- renewing --------------------------------------------------------------------------------------------------------
def test_swept_lease_cannot_be_made_durable_or_renewed(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin", lease=AT_ONCE)
    assert expire_leases(bench) == [run.id]

    with bench.database.transaction() as tx:
        is_durable = activations.make_claim_durable(tx, claimed, LEASE)

    assert not is_durable
    assert renew(bench, claimed) == set()


def test_expired_lease_that_was_not_swept_can_be_renewed(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin", lease=AT_ONCE)

    assert renew(bench, claimed) == {claimed.lease_id}

    assert expire_leases(bench) == []
    assert bench.report(claimed)


def test_renewal_skips_locked_rows_and_reports_their_leases_as_valid(bench: Bench):
    run = bench.start("begin -> one, two")
    bench.play(until=lambda: "one" in run.statuses)
    one, two = bench.claim(run, "one"), bench.claim(run, "two")

    with bench.database.transaction() as tx:
        tx.execute(update(rows).where(rows.c.run_id == run.id, rows.c.id == one.id).values(worker="busy"))
        valid = renew(bench, one, two)

    assert valid == {one.lease_id, two.lease_id}


def test_renewal_does_not_return_leases_that_are_gone(bench: Bench):
    run = bench.start("begin -> one, two, three")
    bench.play(until=lambda: "one" in run.statuses)
    valid, reported, expired = (
        bench.claim(run, "one"),
        bench.claim(run, "two"),
        bench.claim(run, "three", lease=AT_ONCE),
    )
    bench.report(reported)
    expire_leases(bench)

    assert renew(bench, valid, reported, expired) == {valid.lease_id}


# -- reporting -------------------------------------------------------------------------------------------------------
def test_report_under_a_lost_lease_stores_nothing(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin", lease=AT_ONCE)
    expire_leases(bench)

    is_stored = bench.report(
        claimed,
        values=[values_of(claimed, {"result": "too late"})],
        variables=[variable_of(claimed, "env.count", 1)],
        stream={
            "run_id": run.id,
            "id": claimed.id,
            "node_id": "begin",
            "writer": claimed.lease_id,
            "epoch": 0,
            "retained_length": 0,
            "text": "late",
        },
    )

    assert not is_stored
    assert run.activation("begin").outcome["code"] == "worker_lost"
    assert [count(bench, run, table) for table in (node_values, variables, turns)] == [0, 0, 0]


def test_report_repeated_after_a_lost_answer_is_recognised(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    stranger = uuid4()
    assert bench.report(claimed, values=[values_of(claimed, {"result": 1})])

    again = bench.report(claimed, values=[values_of(claimed, {"result": 2})])

    with bench.database.transaction() as tx:
        assert not again
        assert reports.was_stored(tx, run.id, claimed.id, claimed.lease_id)
        assert not reports.was_stored(tx, run.id, claimed.id, stranger)
    assert run.outputs("begin") == {"result": 1}


def test_running_attempt_has_no_stored_report(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")

    with bench.database.transaction() as tx:
        assert not reports.was_stored(tx, run.id, claimed.id, claimed.lease_id)
        assert not reports.has_unapplied_reports(tx, run.id)


def test_lost_worker_raises_the_crash_count_and_the_attempt_number(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)
    expire_leases(bench)
    bench.coordinator.advance_run(run.id)

    again = bench.claim(run, "begin")

    assert (again.attempt, again.crash_count) == (2, 1)


def test_unapplied_report_has_what_routing_needs_and_no_values(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.report(claimed, "Chose", column={"to": ["work"]}, values=[values_of(claimed, {"result": "large"})])

    with bench.database.transaction() as tx:
        (report,) = reports.unapplied_reports(tx, run.id)()

    assert (report.activation, report.node_id, report.outcome.to) == (claimed.id, "begin", ("work",))
    assert not report.outcome.outputs


# -- helpers ---------------------------------------------------------------------------------------------------------
def renew(bench: Bench, *claims: Claim) -> set[object]:
    with bench.database.transaction() as tx:
        return set(activations.renew(tx, [(c.run_id, c.id, c.lease_id) for c in claims], LEASE))


def expire_leases(bench: Bench) -> list[object]:
    with bench.database.transaction() as tx:
        return list(sweep_queries.expire_leases(tx))


def change(bench: Bench, run: Run, **values: object) -> None:
    with bench.database.transaction() as tx:
        tx.execute(update(rows).where(rows.c.run_id == run.id).values(**values))


def count(bench: Bench, run: Run, table: object) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(select(func.count()).select_from(table).where(table.c.run_id == run.id))


def until_a_transaction_waits(bench: Bench) -> None:
    def waits() -> bool:
        with bench.database.transaction() as tx:
            return tx.scalar(WAITING_FOR_LOCKS) > 0

    until(waits)


@contextmanager
def cancelling(bench: Bench, run: Run) -> Generator[Callable[[], None]]:
    """Write a cancel, which commits when the yielded function is called."""

    def cancel(tx: Transaction) -> None:
        row = run_rows.lock(tx, run.id)
        assert row is not None
        bench.coordinator.stopper.cancel(tx, row)

    with bench.database.transaction() as tx:
        cancel(tx)
        tx.wait()
        yield tx.commit


@contextmanager
def in_background(bench: Bench, work: Callable[[], Claim | None]) -> Generator["Future[Claim | None]"]:
    """Run `work` in a thread; the block begins when it waits for a lock."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        until_a_transaction_waits(bench)
        yield future


def test_claims_of_a_batch_equal_single_claims(bench: Bench):
    run, other = bench.start("begin -> a, b, c"), bench.start("begin -> a")
    for each in (run, other):
        bench.report(bench.claim(each, "begin"))
        bench.coordinator.advance_run(each.id)
    claimed_before = bench.claim(run, "c")
    requests = [(each.id, each.activation(node).id, uuid4()) for each, node in ((run, "a"), (run, "c"), (other, "a"))]

    with bench.database.statements() as tx:
        claimed = activations.claim_batch(tx, requests, lease=LEASE, worker="worker", max_crash_count=0)

    assert {(claim.run_id, claim.node_id) for claim in claimed.values()} == {(run.id, "a"), (other.id, "a")}
    assert {claim.lease_id for claim in claimed.values()} == set(claimed)
    assert run.statuses == {"begin": "done", "a": "running", "b": "ready", "c": "running"}
    assert run.activation("c").lease_id == claimed_before.lease_id
    (together,) = (claim for claim in claimed.values() if claim.run_id == run.id)
    alone = bench.claim(run, "b")
    assert replace(together, id=alone.id, node_id="b", lease_id=alone.lease_id, order_key=alone.order_key) == alone


def test_claim_of_a_batch_skips_locked_rows(bench: Bench):
    run = bench.start("begin -> a, b")
    bench.report(bench.claim(run, "begin"))
    bench.coordinator.advance_run(run.id)
    requests = [(run.id, run.activation(node).id, uuid4()) for node in ("a", "b")]

    with bench.database.transaction() as holder:
        holder.execute(text("select 1 from activations where id = :id for update"), id=requests[0][1])
        with bench.database.statements() as tx:
            claimed = activations.claim_batch(tx, requests, lease=LEASE, worker="worker", max_crash_count=0)

    assert [claim.node_id for claim in claimed.values()] == ["b"]


def test_claim_of_a_batch_skips_poison_tasks(bench: Bench):
    run = bench.start("begin -> a, b")
    bench.report(bench.claim(run, "begin"))
    bench.coordinator.advance_run(run.id)
    with bench.database.transaction() as tx:
        tx.execute(text("update activations set crash_count = 2 where id = :id"), id=run.activation("a").id)
    requests = [(run.id, run.activation(node).id, uuid4()) for node in ("a", "b")]

    with bench.database.statements() as tx:
        claimed = activations.claim_batch(tx, requests, lease=LEASE, worker="worker", max_crash_count=1)

    assert [claim.node_id for claim in claimed.values()] == ["b"]
