"""Weeks of runs: made ahead, filled from the default partition, dropped when all is over."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from store import partitions
from store.database import Database
from store.ids import first_id_at, new_id
from store.schema import PARTITIONED
from store.transaction import Transaction
from store.weeks import Week
from tests.integration.engine import until
from tests.integration.store.rows import add_outputs, add_run

LONG_AGO = datetime(2021, 3, 3, 12, tzinfo=UTC)  # Wednesday of week 9
NEXT_MONDAY = datetime(2021, 3, 8, tzinfo=UTC)
TENANT = new_id()

FILL = text("""
    update runs set base = to_json((select string_agg(md5(n::text), '') from generate_series(1, :size / 32) as n))
    where id = :run_id
""")
STEP = text("update runs set revision = revision + 1 where id = :run_id")
PAGES_OF_RUNS = text("""
    select sum(pg_relation_size(inhrelid)) / 8192 from pg_inherits where inhparent = 'runs'::regclass
""")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for one test alone: partitions belong to nobody."""
    database = Database(database_url)
    yield database
    database.close()


def test_this_week_and_the_weeks_to_come_get_partitions_of_every_table_of_a_run(database: Database):
    with database.transaction() as tx:
        made = partitions.ensure(tx, LONG_AGO, weeks=1)

    assert made == [f"{table}_p2021w{week}" for table in PARTITIONED for week in ("09", "10")]


def test_weeks_that_are_there_are_left_alone(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=1)

    with database.transaction() as tx:
        made = partitions.ensure(tx, LONG_AGO + timedelta(weeks=1), weeks=1)

    assert made == [f"{table}_p2021w11" for table in PARTITIONED]


def test_a_run_lies_in_the_week_its_id_was_made_in(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=1)
        for moment in (LONG_AGO, NEXT_MONDAY - timedelta(milliseconds=1), NEXT_MONDAY):
            add_run(tx, TENANT, run_id=first_id_at(moment))

        assert _runs_in(tx, "runs_p2021w09") == 2
        assert _runs_in(tx, "runs_p2021w10") == 1


def test_a_run_of_a_week_without_a_partition_is_kept_and_moves_when_the_week_is_made(database: Database):
    with database.transaction() as tx:
        run_id = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))
        later = add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY))
        add_outputs(tx, run_id, "Message:0", {"content": "Hi", "count": 2**70})
        assert _runs_in(tx, "runs_default") == 2

    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=0)

    with database.transaction() as tx:
        assert _runs_in(tx, "runs_p2021w09") == 1
        assert _ids_in(tx, "runs_default") == [later]
        outputs = tx.scalar(text("select outputs::text from node_values_p2021w09"))
        assert outputs == '{"content": "Hi", "count": 1180591620717411303424}'


@pytest.mark.parametrize("size", [300, 1_600, 1_900])
@pytest.mark.parametrize("weeks", [None, 0], ids=["no week", "a week"])
def test_what_a_run_was_leaves_with_its_next_step(database: Database, size: int, weeks: int | None):
    with database.transaction() as tx:
        if weeks is not None:
            partitions.ensure(tx, LONG_AGO, weeks=weeks)
        run_id = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))
        tx.run(FILL, run_id=run_id, size=size)

    until(lambda: grows_by(database, run_id) <= 3)  # not at once, if others keep an old snapshot meanwhile


def test_weeks_are_dropped_when_they_ended_and_all_their_runs_are_over(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=1)
        over = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO), status="failed")
        kept = add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY))
        add_outputs(tx, over, "Message:0", {"content": "Hi"})

    dropped = _drop_all(database, NEXT_MONDAY + timedelta(days=6))

    assert dropped == [f"{table}_p2021w09" for table in PARTITIONED]
    with database.transaction() as tx:
        assert _ids_in(tx, "runs") == [kept]
        assert _runs_in(tx, "node_values") == 0


@pytest.mark.parametrize("status", ["queued", "running", "waiting", "stopping"])
def test_a_run_that_is_not_over_keeps_its_week(database: Database, status: str):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=0)
        run_id = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO), status=status)
        add_run(tx, TENANT, run_id=first_id_at(LONG_AGO + timedelta(hours=1)))

    dropped = _drop_all(database, NEXT_MONDAY)

    assert dropped == []
    with database.transaction() as tx:
        assert run_id in _ids_in(tx, "runs_p2021w09")


def test_retention_also_removes_runs_that_no_week_covers_but_not_open_ones(database: Database):
    with database.transaction() as tx:
        over = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))
        waiting = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO + timedelta(hours=1)), status="waiting")
        add_outputs(tx, over, "Message:0", {})
        add_outputs(tx, waiting, "Message:0", {})

    with database.transaction() as tx:
        partitions.drop_strays(tx, NEXT_MONDAY)

    with database.transaction() as tx:
        assert _ids_in(tx, "runs_default") == [waiting]
        assert _ids_in(tx, "node_values_default", "run_id") == [waiting]


def test_making_a_week_gives_up_rather_than_wait_for_somebody_at_work(database: Database):
    with database.transaction() as working:
        working.run(text("lock table runs_default in row exclusive mode"))

        with pytest.raises(OperationalError, match="lock timeout"), database.transaction() as tx:
            partitions.ensure(tx, LONG_AGO, weeks=0)


def test_dropping_a_week_gives_up_rather_than_wait_for_somebody_at_work(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=0)
        add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))

    with database.transaction() as working:
        working.run(text("select from activations for share"))

        with pytest.raises(OperationalError, match="lock timeout"), database.transaction() as tx:
            partitions.drop(tx, "activations", Week.of(LONG_AGO))

    assert len(_drop_all(database, NEXT_MONDAY)) == len(PARTITIONED)


def test_a_week_belongs_to_the_year_that_iso_counts_it_in():
    new_year = datetime(2027, 1, 1, tzinfo=UTC)

    week = Week.of(new_year)

    assert week.partition("runs") == "runs_p2026w53"
    assert week.begins <= new_year < week.ends


def test_only_partitions_are_taken_for_partitions():
    assert partitions.is_partition("runs_p2026w47")
    assert partitions.is_partition("node_values_default")
    assert not any(partitions.is_partition(table) for table in PARTITIONED)
    assert not partitions.is_partition("runs_p2026w47_backup")


def _drop_all(database: Database, moment: datetime) -> list[str]:
    """Drop what ended by then, one table after another; the names."""
    with database.transaction() as tx:
        weeks = partitions.ended_by(tx, moment)
    dropped: list[str] = []
    for week in weeks:
        for table in PARTITIONED:
            with database.transaction() as tx:
                name = partitions.drop(tx, table, week)
            dropped += [name] if name else []
    return dropped


def grows_by(database: Database, run_id: UUID) -> int:
    """By how many pages runs grow in a hundred steps of one."""
    with database.statements() as tx:
        before = tx.scalar(PAGES_OF_RUNS)
        for _ in range(100):
            tx.run(STEP, run_id=run_id)
        return tx.scalar(PAGES_OF_RUNS) - before


def _runs_in(tx: Transaction, table: str) -> int:
    return tx.scalar(text(f"select count(*) from {table}"))


def _ids_in(tx: Transaction, table: str, column: str = "id") -> list[UUID]:
    return [row[0] for row in tx.rows(text(f"select {column} from {table} order by 1"))]
