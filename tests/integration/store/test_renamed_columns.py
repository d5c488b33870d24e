"""Columns under their former and their new name: what one release writes is complete for the other one."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from psycopg.types.json import Json
from sqlalchemy import create_engine

from embedded import EmbeddedServers
from store.db.database import Database
from store.maintenance import migrate, partitions
from store.primitives.ids import first_id_at, new_id
from store.primitives.weeks import Week
from store.tables.runs import FORMER_COLUMNS
from tests import services as test_services
from tests.upgrade.recording import MIGRATIONS, connected, make_tables

BEFORE = "0018"
STREAM, OTHER_STREAM = UUID(int=1), UUID(int=2)
NOON, LATER = datetime(2026, 11, 2, 12, tzinfo=UTC), datetime(2026, 11, 2, 13, tzinfo=UTC)
EMPTY = Json({})

KEYS: Mapping[str, Mapping[str, Any]] = {
    "runs": {
        "id": new_id(), "tenant_id": new_id(), "canvas_id": new_id(), "version_id": new_id(), "message_id": new_id(),
        "conversation_id": new_id(), "status": "running", "state": EMPTY, "request": EMPTY, "usage": EMPTY,
    },
    "activations": {
        "run_id": new_id(), "id": new_id(), "node_id": "a", "component": "LLM", "scope": "", "ordinal": 0,
        "region": b"", "trail": Json([]), "status": "ready", "activated_rev": 1,
    },
    "node_values": {
        "run_id": new_id(), "activation_id": new_id(), "node_id": "a", "item": 0, "region": b"", "outputs": EMPTY,
        "names": [],
    },
    "variables": {"run_id": new_id(), "activation_id": new_id(), "name": "env.x", "region": b""},
    "turns": {"run_id": new_id(), "id": new_id(), "node_id": "say"},
}  # fmt: skip
"""A row of each table without the columns that were renamed."""

FORMER: Mapping[str, Mapping[str, Any]] = {
    "runs": {"engine": 3, "asked": "cancel", "turn": STREAM, "base": {"globals": {}}},
    "activations": {
        "place": b"\1", "wave": 4, "strikes": 2, "called_off": True, "hinted_at": NOON, "turn": STREAM, "folded_rev": 7,
    },
    "node_values": {"pass_of": "Iteration:A#0", "place": b"\1"},
    "variables": {"place": b"\1"},
    "turns": {"speaker": STREAM, "keep": 5},
}  # fmt: skip
NEW: Mapping[str, Mapping[str, Any]] = {
    table: {FORMER_COLUMNS[table][name]: True if name == "asked" else value for name, value in values.items()}
    for table, values in FORMER.items()
}
CHANGES = {
    "runs": [("asked", None, "cancel_requested", False), ("turn", OTHER_STREAM, "open_stream", OTHER_STREAM),
             ("base", {"globals": {"env.x": 1}}, "baseline", {"globals": {"env.x": 1}})],
    "activations": [("strikes", 3, "crash_count", 3), ("called_off", False, "cancel_requested", False),
                    ("hinted_at", LATER, "enqueued_at", LATER), ("hinted_at", None, "enqueued_at", None),
                    ("turn", OTHER_STREAM, "stream_id", OTHER_STREAM), ("folded_rev", None, "applied_rev", None)],
    "turns": [("speaker", None, "writer", None), ("keep", 9, "retained_length", 9)],
}  # fmt: skip
"""Changes of a row: the former column and its new value, the column that replaced it and its value."""
ALL_CHANGES = [(table, *change) for table, changes in CHANGES.items() for change in changes]


@pytest.fixture(scope="module")
def url(services: EmbeddedServers) -> Iterator[str]:
    """A database with the tables of this release."""
    with test_services.fresh_database(services.database_url) as url:
        migrate.upgrade(url)
        yield url


@pytest.fixture
def connection(url: str) -> "Iterator[psycopg.Connection[Any]]":
    """A connection whose changes are rolled back."""
    with connected(url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def former_url(services: EmbeddedServers) -> Iterator[str]:
    """A database with the tables of the previous release, and a row in each of them."""
    with test_services.fresh_database(services.database_url) as url:
        make_tables(url, BEFORE)
        with connected(url) as connection:
            for table, columns in FORMER.items():
                insert(connection, table, columns)
        yield url


def insert(connection: "psycopg.Connection[Any]", table: str, columns: Mapping[str, Any], **keys: Any) -> None:
    row = {**KEYS[table], **keys, **{name: _as_parameter(value) for name, value in columns.items()}}
    statement = sql.SQL("insert into {} ({}) values ({})").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(sql.Placeholder() * len(row)),
    )  # fmt: skip
    connection.execute(statement, list(row.values()))


def change(connection: "psycopg.Connection[Any]", table: str, column: str, value: Any) -> None:
    statement = sql.SQL("update {} set {} = %s").format(sql.Identifier(table), sql.Identifier(column))
    assert connection.execute(statement, [_as_parameter(value)]).rowcount == 1


def read(connection: "psycopg.Connection[Any]", table: str, columns: Mapping[str, Any]) -> dict[str, Any]:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    rows = connection.execute(sql.SQL("select {} from {}").format(names, sql.Identifier(table))).fetchall()
    assert len(rows) == 1
    return dict(zip(columns, rows[0], strict=True))


def _as_parameter(value: Any) -> Any:
    return Json(value) if isinstance(value, dict) else value


def test_every_renamed_column_is_tested():
    assert {table: set(values) for table, values in FORMER.items()} == {
        table: set(names) for table, names in FORMER_COLUMNS.items()
    }


@pytest.mark.parametrize(
    ("inserted", "other"), [(FORMER, NEW), (NEW, FORMER)], ids=["by the previous one", "by this one"]
)
@pytest.mark.parametrize("table", FORMER)
def test_row_that_one_release_inserts_has_all_columns_of_the_other(
    connection: Any, table: str, inserted: Mapping[str, Any], other: Mapping[str, Any]
):
    insert(connection, table, inserted[table])

    assert read(connection, table, other[table]) == other[table]


@pytest.mark.parametrize(("table", "former", "former_value", "new", "new_value"), ALL_CHANGES)
@pytest.mark.parametrize("is_by_previous_release", [True, False])
def test_change_of_one_column_changes_only_the_same_column_of_the_other_release(
    connection: Any, table: str, former: str, former_value: Any, new: str, new_value: Any, is_by_previous_release: bool
):
    insert(connection, table, NEW[table])

    change(connection, table, *((former, former_value) if is_by_previous_release else (new, new_value)))

    assert read(connection, table, NEW[table]) == {**NEW[table], new: new_value}
    assert read(connection, table, FORMER[table]) == {**FORMER[table], former: former_value}


def test_insert_that_repeats_a_row_of_the_previous_release_updates_both_columns(connection: Any):
    insert(connection, "turns", FORMER["turns"])

    connection.execute(
        "insert into turns (run_id, id, node_id, writer, retained_length) values (%s, %s, 'say', %s, 8)"
        " on conflict (run_id, id) do update set writer = excluded.writer, retained_length = excluded.retained_length",
        [KEYS["turns"]["run_id"], KEYS["turns"]["id"], OTHER_STREAM],
    )

    assert read(connection, "turns", FORMER["turns"]) == {"speaker": OTHER_STREAM, "keep": 8}
    assert read(connection, "turns", NEW["turns"]) == {"writer": OTHER_STREAM, "retained_length": 8}


def test_rows_of_before_are_filled_by_the_upgrade(former_url: str):
    migrate.upgrade(former_url)

    with connected(former_url) as connection:
        for table in FORMER:
            assert read(connection, table, NEW[table]) == NEW[table]
            assert read(connection, table, FORMER[table]) == FORMER[table]


def test_row_that_the_previous_release_changes_between_the_two_revisions_is_filled(former_url: str):
    make_tables(former_url, "0019")
    with connected(former_url) as connection:
        change(connection, "activations", "strikes", 3)
        change(connection, "activations", "worker", "host:1")
        change(connection, "runs", "status", "stopping")

    migrate.upgrade(former_url)

    with connected(former_url) as connection:
        assert read(connection, "activations", NEW["activations"]) == {**NEW["activations"], "crash_count": 3}
        assert read(connection, "runs", NEW["runs"]) == NEW["runs"]


def test_preparation_fills_every_page_of_a_table_and_may_be_repeated(former_url: str):
    make_tables(former_url, "0019")
    with connected(former_url) as connection:
        run_id = KEYS["activations"]["run_id"]
        for number in range(300):
            insert(connection, "activations", {**FORMER["activations"], "wave": number}, run_id=run_id, id=new_id())
        connection.execute("update activations_default set order_key = null, level = null")
    preparation: Any = ScriptDirectory.from_config(_config()).get_revision("0020").module
    preparation.PAGES = 1
    with create_engine(former_url).connect() as connection:
        statements = preparation.prepare(connection)

    batches = [each for each in statements if each.startswith("update activations_default ")]
    with connected(former_url) as connection:
        for statement in batches[:-1]:
            connection.execute(statement)
        left = connection.execute("select count(*) from activations where level is null").fetchone()
        for statement in (*statements, *statements):
            connection.execute(statement)
        connection.commit()
        unfilled = connection.execute("select count(*) from activations where level is distinct from wave").fetchone()

    assert len(batches) > 3
    assert left is not None
    assert left[0] < 100, "the last statement has to fill one page"
    assert unfilled == (0,)
    assert migrate.upgrade(former_url)[:2] == ["0020", "0021"]


def test_upgrade_requires_the_new_columns_and_leaves_no_constraint_of_its_preparation(url: str):
    with connected(url) as connection:
        left = connection.execute("select conname from pg_constraint where conname like 'ck_%_filled'").fetchall()
        insert(connection, "variables", NEW["variables"])
        with pytest.raises(psycopg.errors.NotNullViolation):
            connection.execute("update variables set order_key = null")

    assert left == []


def test_rows_that_move_into_a_new_week_keep_both_columns(url: str):
    week = Week.of(datetime(2031, 3, 3, 12, tzinfo=UTC))
    run_id = first_id_at(datetime(2031, 3, 4, tzinfo=UTC))
    with connected(url) as connection:
        insert(connection, "activations", NEW["activations"], run_id=run_id)

    database = Database(url, pool_size=1)
    with database.transaction() as tx:
        partitions.create(tx, "activations", week)
    database.close()

    with connected(url) as connection:
        partition = week.partition("activations")
        assert read(connection, partition, NEW["activations"]) == NEW["activations"]
        assert read(connection, partition, FORMER["activations"]) == FORMER["activations"]
        change(connection, partition, "strikes", 8)
        assert read(connection, partition, {"crash_count": 8}) == {"crash_count": 8}


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return config
