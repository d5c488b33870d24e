"""Weekly partitions: created ahead, filled from the default partition, dropped when all their runs have ended."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
import structlog
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from scheduler.sweeper.maintenance import apply_retention, run_maintenance
from store.db.database import Database
from store.db.transaction import Transaction
from store.maintenance import partitions
from store.primitives.ids import first_id_at, new_id
from store.primitives.weeks import Week
from store.tables.runs import PARTITIONED
from tests.integration.engine import until
from tests.integration.store.rows import add_outputs, add_run

LONG_AGO = datetime(2021, 3, 3, 12, tzinfo=UTC)  # Wednesday of week 9
NEXT_MONDAY = datetime(2021, 3, 8, tzinfo=UTC)
TENANT = new_id()

FILL = text("""
    update runs set baseline = to_json((select string_agg(md5(n::text), '') from generate_series(1, :size / 32) as n))
    where id = :run_id
""")
UPDATE_RUN = text("update runs set revision = revision + 1 where id = :run_id")
PAGES_OF_RUNS = text("""
    select sum(pg_relation_size(inhrelid)) / 8192 from pg_inherits where inhparent = 'runs'::regclass
""")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for one test alone, since all runs share its partitions."""
    database = Database(database_url)
    yield database
    database.close()


def test_partitions_of_all_run_tables_are_created_for_this_week_and_the_next_ones(database: Database):
    with database.transaction() as tx:
        made = partitions.ensure(tx, LONG_AGO, weeks=1)

    assert made == [f"{table}_p2021w{week}" for table in PARTITIONED for week in ("09", "10")]


def test_existing_weeks_are_not_created_again(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=1)

    with database.transaction() as tx:
        made = partitions.ensure(tx, LONG_AGO + timedelta(weeks=1), weeks=1)

    assert made == [f"{table}_p2021w11" for table in PARTITIONED]


def test_run_is_in_the_partition_of_its_ids_week(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=1)
        for moment in (LONG_AGO, NEXT_MONDAY - timedelta(milliseconds=1), NEXT_MONDAY):
            add_run(tx, TENANT, run_id=first_id_at(moment))

        assert _runs_in(tx, "runs_p2021w09") == 2
        assert _runs_in(tx, "runs_p2021w10") == 1


def test_run_without_a_weekly_partition_is_moved_when_its_partition_is_created(database: Database):
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
def test_old_versions_of_a_runs_row_are_removed_by_its_next_advance(database: Database, size: int, weeks: int | None):
    with database.transaction() as tx:
        if weeks is not None:
            partitions.ensure(tx, LONG_AGO, weeks=weeks)
        run_id = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))
        tx.execute(FILL, run_id=run_id, size=size)

    until(lambda: growth_in_pages(database, run_id) <= 3)  # not at once, if others keep an old snapshot meanwhile


def test_weeks_are_dropped_when_they_ended_and_all_their_runs_are_over(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=1)
        over = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO), status="failed")
        later = add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY))
        add_outputs(tx, over, "Message:0", {"content": "Hi"})

    dropped = _drop_all(database, NEXT_MONDAY + timedelta(days=6))

    assert dropped == [f"{table}_p2021w09" for table in PARTITIONED]
    with database.transaction() as tx:
        assert _ids_in(tx, "runs") == [later]
        assert _runs_in(tx, "node_values") == 0


@pytest.mark.parametrize("status", ["queued", "running", "waiting", "stopping"])
def test_week_of_an_unfinished_run_is_not_dropped(database: Database, status: str):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=0)
        run_id = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO), status=status)
        add_run(tx, TENANT, run_id=first_id_at(LONG_AGO + timedelta(hours=1)))

    dropped = _drop_all(database, NEXT_MONDAY)

    assert dropped == []
    with database.transaction() as tx:
        assert run_id in _ids_in(tx, "runs_p2021w09")


def test_retention_deletes_finished_runs_outside_of_any_week_but_not_open_ones(database: Database):
    with database.transaction() as tx:
        over = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))
        waiting = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO + timedelta(hours=1)), status="waiting")
        add_outputs(tx, over, "Message:0", {})
        add_outputs(tx, waiting, "Message:0", {})

    with database.transaction() as tx:
        assert partitions.delete_strays(tx, NEXT_MONDAY) == 1

    with database.transaction() as tx:
        assert _ids_in(tx, "runs_default") == [waiting]
        assert _ids_in(tx, "node_values_default", "run_id") == [waiting]


def test_creating_a_week_gives_up_rather_than_wait_for_an_open_transaction(database: Database):
    with database.transaction() as working:
        working.execute(text("lock table runs_default in row exclusive mode"))

        with pytest.raises(OperationalError, match="lock timeout"), database.transaction() as tx:
            partitions.ensure(tx, LONG_AGO, weeks=0)


def test_dropping_a_week_gives_up_rather_than_wait_for_an_open_transaction(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=0)
        add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))

    with database.transaction() as working:
        working.execute(text("select from activations for share"))

        with pytest.raises(OperationalError, match="lock timeout"), database.transaction() as tx:
            partitions.drop(tx, "activations", Week.of(LONG_AGO))

    assert len(_drop_all(database, NEXT_MONDAY)) == len(PARTITIONED)


def test_week_belongs_to_its_iso_year():
    new_year = datetime(2027, 1, 1, tzinfo=UTC)

    week = Week.of(new_year)

    assert week.partition("runs") == "runs_p2026w53"
    assert week.begins_at <= new_year < week.ends_at


def test_only_names_of_partitions_are_recognised_as_partitions():
    assert partitions.is_partition("runs_p2026w47")
    assert partitions.is_partition("node_values_default")
    assert not any(partitions.is_partition(table) for table in PARTITIONED)
    assert not partitions.is_partition("runs_p2026w47_backup")


# -- a default partition that is large ------------------------------------------------------------------------------
def test_future_week_is_attached_without_reading_a_large_default_partition(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(partitions, "MAX_SMALL_BYTES", 0)
    with database.transaction() as tx:
        stray = add_run(tx, TENANT, run_id=UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479"))
        add_outputs(tx, stray, "Message:0", {"content": "Hi"})

    run_maintenance(database, LONG_AGO)

    with database.transaction() as tx:
        weeks = sorted(name for name in _names_of(tx, "runs") if name.startswith("runs_p2021"))
        assert weeks == [f"runs_p2021w{week}" for week in (10, 11, 12, 13)]
        assert partitions.drop_exclusion_checks(tx, "runs") == 0
        made = add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY))
        assert _ids_in(tx, "runs_p2021w10") == [made]
        assert _ids_in(tx, "runs_default") == [stray]


def test_current_week_is_not_created_and_logged_if_others_would_wait(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(partitions, "MAX_SMALL_BYTES", -1)
    with structlog.testing.capture_logs() as logs:
        run_maintenance(database, LONG_AGO)

    logged = {(line["table"], line["week"]) for line in logs if line["event"] == "partition_not_created"}
    assert logged == {(table, "2021w09") for table in PARTITIONED}


@pytest.mark.parametrize(
    ("ahead", "weeks"), [(timedelta(hours=47), ["2021w09", "2021w10"]), (timedelta(days=2), ["2021w09"])]
)
def test_week_that_begins_within_two_days_is_not_created_beside_a_large_default_partition(
    database: Database, monkeypatch: pytest.MonkeyPatch, ahead: timedelta, weeks: list[str]
):
    monkeypatch.setattr(partitions, "MAX_SMALL_BYTES", -1)
    with structlog.testing.capture_logs() as logs:
        run_maintenance(database, NEXT_MONDAY - ahead)

    refused = [line["week"] for line in logs if line["event"] == "partition_not_created" and line["table"] == "runs"]
    assert refused == weeks
    with database.transaction() as tx:
        assert ("runs_p2021w10" in _names_of(tx, "runs")) == ("2021w10" not in weeks)


def test_week_with_many_rows_in_the_default_partition_is_not_created(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(partitions, "MAX_ROWS_TO_MOVE", 2)
    with database.transaction() as tx:
        for minute in range(3):
            add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY + timedelta(minutes=minute)))

    with structlog.testing.capture_logs() as logs:
        run_maintenance(database, LONG_AGO)

    (line,) = [line for line in logs if line["event"] == "partition_not_created"]
    assert (line["table"], line["week"]) == ("runs", "2021w10")
    assert "more than 2 rows" in line["reason"]
    with database.transaction() as tx:
        assert _runs_in(tx, "runs_default") == 3


def test_a_migration_does_not_read_a_large_default_partition(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(partitions, "MAX_SMALL_BYTES", -1)

    with database.transaction() as tx:
        assert partitions.ensure(tx, LONG_AGO, weeks=0) == []


def test_creating_a_week_under_traffic_gives_up_rather_than_wait_for_an_open_transaction(database: Database):
    with database.transaction() as working:
        working.execute(text("lock table runs_default in row exclusive mode"))
        with pytest.raises(OperationalError, match="lock timeout"), database.transaction() as tx:
            partitions.create(tx, "runs", Week.of(LONG_AGO))

    with database.transaction() as tx:
        assert not [name for name in _names_of(tx, "runs") if "2021" in name]


def test_constraint_of_a_killed_sweeper_is_removed(database: Database):
    week = Week.of(NEXT_MONDAY)
    with database.transaction() as tx:
        partitions.add_exclusion_check(tx, "runs", week)
    with pytest.raises(IntegrityError), database.transaction() as tx:
        add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY))

    run_maintenance(database, LONG_AGO - timedelta(weeks=20))

    with database.transaction() as tx:
        add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY))


def test_creating_a_week_by_a_constraint_gives_up_if_it_has_a_run(database: Database):
    week = Week.of(NEXT_MONDAY)
    with database.transaction() as tx:
        add_run(tx, TENANT, run_id=first_id_at(NEXT_MONDAY))
        partitions.add_exclusion_check(tx, "runs", week)

    with pytest.raises(IntegrityError), database.transaction() as tx:
        partitions.validate_exclusion_check(tx, "runs", week)


# -- strays ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("written", ["00a1d74a-448c-4dad-b9d9-e57e6bc3b22a", "ffa1d74a-448c-4dad-b9d9-e57e6bc3b22a"])
def test_run_whose_id_contains_no_time_is_deleted_once_it_is_old(database: Database, written: str):
    with database.transaction() as tx:
        run_id = add_run(tx, TENANT, run_id=UUID(written), accepted_at=LONG_AGO)
        add_outputs(tx, run_id, "Message:0", {"content": "Hi"})

    apply_retention(database, LONG_AGO - timedelta(days=1), None)
    with database.transaction() as tx:
        assert (_ids_in(tx, "runs"), _runs_in(tx, "node_values")) == ([run_id], 1)

    with structlog.testing.capture_logs() as logs:
        apply_retention(database, LONG_AGO + timedelta(days=1), None)
    with database.transaction() as tx:
        assert (_ids_in(tx, "runs"), _runs_in(tx, "node_values")) == ([], 0)
    assert [line["strays"] for line in logs if line["event"] == "retention_applied"] == [1]


def test_runs_outside_of_weeks_are_deleted_in_batches(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(partitions, "STRAY_BATCH", 2)
    with database.transaction() as tx:
        for number in range(5):
            add_run(tx, TENANT, run_id=UUID(f"{number}fa1d74a-448c-4dad-b9d9-e57e6bc3b22a"), accepted_at=LONG_AGO)

    apply_retention(database, NEXT_MONDAY, None)

    with database.transaction() as tx:
        assert _runs_in(tx, "runs") == 0


def test_rows_of_a_dropped_run_in_a_table_without_its_week_are_deleted(database: Database):
    with database.transaction() as tx:
        partitions.ensure(tx, LONG_AGO, weeks=0, tables=["runs"])
        over = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO))
        waiting = add_run(tx, TENANT, run_id=first_id_at(LONG_AGO + timedelta(days=10)), status="waiting")
        for run_id in (over, waiting):
            add_outputs(tx, run_id, "Message:0", {"content": "Hi"})

    apply_retention(database, NEXT_MONDAY + timedelta(weeks=4), None)

    with database.transaction() as tx:
        assert _ids_in(tx, "node_values", "run_id") == [waiting]


def test_run_id_beyond_the_last_date_has_a_week(database: Database):
    last = UUID("ffffffff-ffff-4fff-8fff-ffffffffffff")

    assert Week.of_run(last).name == "9999w51"
    assert Week.of_run(last).first_id <= last < Week.of_run(last).end_id


def _drop_all(database: Database, moment: datetime) -> list[str]:
    """Drop the weeks that ended by then, one table after another; return the names of the partitions."""
    with database.transaction() as tx:
        weeks = partitions.weeks_ended_by(tx, moment)
    dropped: list[str] = []
    for week in weeks:
        for table in PARTITIONED:
            with database.transaction() as tx:
                name = partitions.drop(tx, table, week)
            dropped += [name] if name else []
    return dropped


def growth_in_pages(database: Database, run_id: UUID) -> int:
    """Return by how many pages the table grows in a hundred updates of one run."""
    with database.statements() as tx:
        before = tx.scalar(PAGES_OF_RUNS)
        for _ in range(100):
            tx.execute(UPDATE_RUN, run_id=run_id)
        return tx.scalar(PAGES_OF_RUNS) - before


def _names_of(tx: Transaction, table: str) -> list[str]:
    return [name for (name,) in tx.rows(partitions.PARTITIONS, table=table)]


def _runs_in(tx: Transaction, table: str) -> int:
    return tx.scalar(text(f"select count(*) from {table}"))


def _ids_in(tx: Transaction, table: str, column: str = "id") -> list[UUID]:
    return [row[0] for row in tx.rows(text(f"select {column} from {table} order by 1"))]
