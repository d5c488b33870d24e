"""What is done now and then: what is past its day goes, however much of it there is."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime

from sqlalchemy import text
from structlog.testing import capture_logs

from scheduler.sweeper.maintenance import run_exclusive_maintenance, run_maintenance
from store.db.database import Database
from store.maintenance import partitions
from store.monitoring import queue_probes
from store.tables.runs import PARTITIONED
from store.tenants import idempotency

MANY = 2 * idempotency.BATCH + 1

OFFER = text("""
    insert into idempotency_keys (tenant_id, route, key, digest, created_at)
    select '00000000-0000-0000-0000-000000000007', 'runs', 'key ' || n, '', now() - make_interval(hours => :hours)
    from generate_series(1, :many) n
""")
MAKE_LATER = text("update canaries set sent_at = now() + interval '1 hour' where queue = 'sweeper:house'")
MAKE_OLD = text("update canaries set sent_at = sent_at - make_interval(mins => 11) where queue = 'sweeper:house'")
LEFT = text("select count(*) from idempotency_keys")


def test_keys_past_their_day_are_forgotten_however_many_there_are(database: Database):
    with database.transaction() as tx:
        tx.execute(OFFER, hours=25, many=MANY)

    run_maintenance(database, datetime.now(UTC))

    with database.transaction() as tx:
        assert tx.scalar(LEFT) == 0


def test_keys_of_today_are_kept(database: Database):
    with database.transaction() as tx:
        tx.execute(OFFER, hours=23, many=3)

    run_maintenance(database, datetime.now(UTC))

    with database.transaction() as tx:
        assert tx.scalar(LEFT) == 3


def test_two_sweepers_that_start_on_a_fresh_database_do_not_collide(database_url: str):
    both, now = threading.Barrier(2), datetime.now(UTC)

    def keep(_: int) -> None:
        with closing(Database(database_url, pool_size=2)) as own:
            own.ping()
            both.wait(60)
            run_exclusive_maintenance(own, now)

    with capture_logs() as lines, ThreadPoolExecutor(2) as threads:
        list(threads.map(keep, range(2)))

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
        tx.execute(MAKE_LATER)

    assert run_exclusive_maintenance(database, datetime.now(UTC))


def test_maintenance_claimed_by_a_killed_sweeper_is_run_by_another(database: Database):
    with database.transaction() as tx:
        queue_probes.claim_maintenance(tx)
        tx.execute(MAKE_OLD)

    assert run_exclusive_maintenance(database, datetime.now(UTC))
    assert run_exclusive_maintenance(database, datetime.now(UTC))
