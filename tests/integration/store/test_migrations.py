"""Migrations: each revision is applied once, also if upgrades are repeated or concurrent."""

import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text

import store.tables.budgets
import store.tables.callbacks
import store.tables.knowledge
import store.tables.mcp
import store.tables.memory
import store.tables.tenants
import store.tables.viewer  # noqa: F401 (their tables belong to the metadata)
from embedded import EmbeddedServers
from store.db.database import Database
from store.db.guards import RowGuard, expect_rows
from store.maintenance import migrate
from store.maintenance.partitions import is_partition
from store.tables.runs import FORMER_COLUMNS, metadata
from tests import services as test_services

REVISIONS = [f"{number:04}" for number in range(1, 32)]


@pytest.fixture
def empty_url(services: EmbeddedServers) -> Iterator[str]:
    """A database without a single table."""
    with test_services.fresh_database(services.database_url) as url:
        yield url


@pytest.fixture
def empty(empty_url: str) -> Iterator[Database]:
    database = Database(empty_url)
    yield database
    database.close()


def test_an_empty_database_lacks_every_revision_until_it_is_upgraded(empty: Database, empty_url: str):
    lacking = migrate.missing_revisions(empty)

    applied = migrate.upgrade(empty_url)

    assert lacking == applied == REVISIONS
    assert applied[-1] == migrate.newest_revision()
    assert migrate.missing_revisions(empty) == []


def test_migrations_make_the_tables_that_the_code_expects(empty_url: str):
    migrate.upgrade(empty_url)

    with create_engine(empty_url).connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_name": _is_ours,
                "compare_server_default": True,
            },
        )
        differences = compare_metadata(context, metadata)

    assert differences == []


def test_the_tables_of_a_run_are_partitioned_as_the_code_expects(empty: Database, empty_url: str):
    migrate.upgrade(empty_url)

    with empty.transaction() as tx:
        rows = tx.rows(
            text("select c.relname, pg_get_partkeydef(c.oid) from pg_class c where c.relkind = 'p' order by 1")
        )

    expected = {
        table.name: table.dialect_options["postgresql"]["partition_by"]
        for table in metadata.tables.values()
        if table.dialect_options["postgresql"]["partition_by"]
    }
    assert dict(map(tuple, rows)) == expected


def test_the_function_of_guards_is_in_the_schema_of_the_tables(empty: Database, empty_url: str):
    with empty.transaction() as tx:
        tx.execute(text("create schema of_easel"))
        tx.execute(text(f'alter database "{empty_url.rpartition("/")[2]}" set search_path to of_easel'))
    migrate.upgrade(empty_url)
    database = Database(empty_url)

    with closing(database), database.transaction() as tx:
        schemas = tx.rows(text("select pronamespace::regnamespace::text from pg_proc where proname = 'expect_rows'"))
        of_tables = tx.scalar(text("select relnamespace::regnamespace::text from pg_class where relname = 'runs'"))
        met = tx.scalar(text(f"select {expect_rows(RowGuard.RUN_UNCHANGED)} from (values (1)) as hit"))

    assert [schema for (schema,) in schemas] == [of_tables] == ["of_easel"]
    assert met == 0


def test_upgrading_twice_changes_nothing(empty: Database, empty_url: str):
    migrate.upgrade(empty_url)
    before = _relations(empty)

    applied = migrate.upgrade(empty_url)

    assert applied == []
    assert _relations(empty) == before


def test_concurrent_upgrades_apply_each_revision_once_and_both_succeed(empty: Database, empty_url: str):
    with ThreadPoolExecutor(2) as both:
        applied = list(both.map(migrate.upgrade, [empty_url, empty_url]))

    assert sorted(applied, key=len) == [
        [],
        REVISIONS,
    ]
    assert migrate.missing_revisions(empty) == []


def test_database_of_a_newer_release_needs_no_upgrade(empty: Database, empty_url: str):
    migrate.upgrade(empty_url)
    with empty.transaction() as tx:
        tx.execute(text("update alembic_version set version_num = '9999'"))

    assert migrate.missing_revisions(empty) == []
    assert migrate.upgrade(empty_url) == []


def test_alembic_check_finds_no_difference_after_an_upgrade(empty_url: str, monkeypatch: pytest.MonkeyPatch):
    migrate.upgrade(empty_url)
    monkeypatch.setenv("DATABASE_URL", empty_url)
    config = _config(Path(__file__).parents[3] / "migrations")

    command.check(config)  # raises if it would add something


def test_alembic_revision_creates_a_valid_module(empty_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    migrate.upgrade(empty_url)
    monkeypatch.setenv("DATABASE_URL", empty_url)
    folder = tmp_path / "migrations"
    shutil.copytree(Path(__file__).parents[3] / "migrations", folder)

    command.revision(_config(folder), "Shares of tenants", rev_id="0090")

    source = (folder / "versions" / "0090_shares_of_tenants.py").read_text()
    assert source.startswith('"""Shares of tenants."""')
    assert f"down_revision = '{migrate.newest_revision()}'" in source
    compile(source, "0090_shares_of_tenants.py", "exec")


def _is_ours(name: str | None, kind: str, parents: Mapping[str, str | None]) -> bool:
    if kind == "column":
        return name not in FORMER_COLUMNS.get(parents["table_name"] or "", ())
    return kind != "table" or not is_partition(name or "")


def _config(folder: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(folder))
    return config


def _relations(database: Database) -> list[str]:
    with database.transaction() as tx:
        return [row.name for row in tx.rows(text("select oid::regclass::text as name from pg_class order by 1"))]
