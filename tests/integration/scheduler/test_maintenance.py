"""Maintenance: old idempotency keys are deleted, and one sweeper at a time does the work."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

import pytest
from sqlalchemy import text
from structlog.testing import capture_logs

from scheduler.sweeper import maintenance
from scheduler.sweeper.maintenance import run_exclusive_maintenance, run_maintenance
from store.db.database import Database
from store.db.transaction import Transaction
from store.maintenance import partitions
from store.monitoring import queue_probes
from store.tables.runs import PARTITIONED
from store.tenants import idempotency

MANY = 2 * idempotency.BATCH + 1

INSERT_KEYS = text("""
    insert into idempotency_keys (tenant_id, route, key, digest, created_at)
    select '00000000-0000-0000-0000-000000000007', 'runs', 'key ' || n, '', now() - make_interval(hours => :hours)
    from generate_series(1, :many) n
""")
MOVE_CLAIM_AHEAD = text("update canaries set sent_at = now() + interval '1 hour' where queue = 'sweeper:house'")
MOVE_CLAIM_BACK = text(
    "update canaries set sent_at = sent_at - make_interval(mins => 11) where queue = 'sweeper:house'"
)
COUNT_KEYS = text("select count(*) from idempotency_keys")


def test_all_idempotency_keys_older_than_a_day_are_deleted(database: Database):
    with database.transaction() as tx:
        tx.execute(INSERT_KEYS, hours=25, many=MANY)

    run_maintenance(database, datetime.now(UTC))

    with database.transaction() as tx:
        assert tx.scalar(COUNT_KEYS) == 0


def test_idempotency_keys_younger_than_a_day_are_not_deleted(database: Database):
    with database.transaction() as tx:
        tx.execute(INSERT_KEYS, hours=23, many=3)

    run_maintenance(database, datetime.now(UTC))

    with database.transaction() as tx:
        assert tx.scalar(COUNT_KEYS) == 3


def test_two_sweepers_that_start_on_a_fresh_database_do_not_collide(database_url: str):
    both, now = threading.Barrier(2), datetime.now(UTC)

    def maintain(_: int) -> None:
        with closing(Database(database_url, pool_size=2)) as own:
            own.ping()
            both.wait(60)
            run_exclusive_maintenance(own, now)

    with capture_logs() as lines, ThreadPoolExecutor(2) as threads:
        list(threads.map(maintain, range(2)))

    assert [line for line in lines if line["log_level"] != "info"] == []
    with closing(Database(database_url)) as database, database.transaction() as tx:
        assert [partitions.missing_weeks(tx, table, now) for table in PARTITIONED] == [[] for _ in PARTITIONED]


def test_maintenance_is_skipped_while_another_sweeper_runs_it(database: Database):
    with database.transaction() as tx:
        queue_probes.claim_maintenance(tx)

    assert not run_exclusive_maintenance(database, datetime.now(UTC))


def test_maintenance_claimed_before_a_clock_jump_back_is_run_by_another(database: Database):
    with database.transaction() as tx:
        queue_probes.claim_maintenance(tx)
        tx.execute(MOVE_CLAIM_AHEAD)

    assert run_exclusive_maintenance(database, datetime.now(UTC))


def test_maintenance_claimed_by_a_killed_sweeper_is_run_by_another(database: Database):
    with database.transaction() as tx:
        queue_probes.claim_maintenance(tx)
        tx.execute(MOVE_CLAIM_BACK)

    assert run_exclusive_maintenance(database, datetime.now(UTC))
    assert run_exclusive_maintenance(database, datetime.now(UTC))


@pytest.mark.parametrize(("full_batches", "limit", "expected"), [(9, 3, 3), (2, 3, 3), (0, 3, 1), (9, None, 10)])
def test_batches_end_at_their_limit_or_after_one_that_is_not_full(
    database: Database, full_batches: int, limit: int | None, expected: int
):
    calls: list[int] = []

    def delete_batch(tx: Transaction) -> int:
        calls.append(1)
        return 5 if len(calls) <= full_batches else 0

    assert maintenance._in_batches(database, delete_batch, 5, limit) == 5 * min(full_batches, expected)
    assert len(calls) == expected
