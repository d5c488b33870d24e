"""A recorded database: the rows of every table as one release wrote them, and how its runs ended there.

    version-0/release.json       revision of its tables, number of its deciding rules, columns, ids of the runs
    version-0/expected.json      how each run ended under that release
    version-0/<table>.copy.gz    rows as PostgreSQL's COPY writes them

Tables come out of the migrations, so a recording holds rows only, and needs no program of PostgreSQL to be restored.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from alembic import command
from alembic.config import Config
from psycopg import sql
from sqlalchemy import NullPool, create_engine

from store.tables.runs import PARTITIONED

MIGRATIONS = Path(__file__).parents[2] / "migrations"
RELEASE, EXPECTED, ROWS = "release.json", "expected.json", ".copy.gz"
NO_ROWS_OF_OURS = ("alembic_version",)
# age of the recording in a restored database: every lease has expired
LONG_AGO = timedelta(minutes=10)

TABLES = """
    select c.relname, array_agg(a.attname::text order by a.attnum)
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relkind in ('r', 'p') and not c.relispartition and c.relnamespace = 'public'::regnamespace
    group by c.relname order by c.relname
"""
TIMES = """
    select table_name, column_name from information_schema.columns
    where table_schema = 'public' and data_type = 'timestamp with time zone' and table_name = any(%s)
"""


@dataclass(frozen=True, slots=True)
class Recording:
    """One release's database in a folder."""

    folder: Path

    @property
    def release(self) -> Mapping[str, Any]:
        """{revision, engine, recorded_at, runs: name -> id, facts, tables: name -> columns}."""
        return json.loads((self.folder / RELEASE).read_text())

    @property
    def expected(self) -> Mapping[str, Mapping[str, Any]]:
        """How each run ended."""
        return json.loads((self.folder / EXPECTED).read_text())

    def save(self, url: str, **release: Any) -> None:
        """Write the rows of a database at one moment."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with connected(url) as connection, connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
            ((revision, now),) = cursor.execute("select version_num, now() from alembic_version").fetchall()
            found = cursor.execute(TABLES).fetchall()
            tables = {name: columns for name, columns in found if name not in NO_ROWS_OF_OURS}
            for name, columns in tables.items():
                ordered = sql.SQL("copy (select {} from {} as it order by it::text) to stdout").format(
                    sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(name)
                )
                with cursor.copy(ordered) as copy:
                    (self.folder / f"{name}{ROWS}").write_bytes(gzip.compress(b"".join(map(bytes, copy)), mtime=0))
        contents = {"revision": revision, "recorded_at": str(now), **release, "tables": tables}
        (self.folder / RELEASE).write_text(_readable(contents))

    def save_expected(self, outcomes: Mapping[str, Any]) -> None:
        """Write how the runs ended."""
        (self.folder / EXPECTED).write_text(_readable(outcomes))

    def make_tables(self, url: str) -> None:
        """Give an empty database the tables of the release."""
        make_tables(url, self.release["revision"])

    def write_rows(self, url: str) -> None:
        """Write the recorded rows into tables of the release or of a newer one; times are moved to now."""
        release = self.release
        tables: Mapping[str, Sequence[str]] = release["tables"]
        with connected(url) as connection, connection.cursor() as cursor:
            for name, columns in tables.items():
                # Foreign keys would require an order of tables. Those of runs have none, and their triggers must fire.
                role = sql.SQL("origin" if name in PARTITIONED else "replica")
                cursor.execute(sql.SQL("set session_replication_role = {}").format(role))
                into = sql.SQL("copy {} ({}) from stdin").format(
                    sql.Identifier(name), sql.SQL(", ").join(map(sql.Identifier, columns))
                )
                with cursor.copy(into) as copy:
                    copy.write(gzip.decompress((self.folder / f"{name}{ROWS}").read_bytes()))
            cursor.execute("reset session_replication_role")
            now = cursor.execute("select now()").fetchone()
            assert now is not None
            later = now[0] - datetime.fromisoformat(release["recorded_at"]) - LONG_AGO
            times = cursor.execute(TIMES, [list(tables)]).fetchall()
            for table, column in ((table, column) for table, column in times if column in tables[table]):
                move = sql.SQL("update {0} set {1} = {1} + %s").format(sql.Identifier(table), sql.Identifier(column))
                cursor.execute(move, [later])


def recordings() -> list[Recording]:
    """Return all recordings, oldest first."""
    folders = Path(__file__).parent.glob("version-*")
    return [Recording(folder) for folder in sorted(folders, key=lambda folder: int(folder.name.rpartition("-")[2]))]


def connected(url: str) -> "psycopg.Connection[Any]":
    """Connect to a database by its SQLAlchemy URL."""
    return psycopg.connect(url.replace("+psycopg", ""))


def make_tables(url: str, revision: str) -> None:
    """Create the tables of a release by its migrations."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    with create_engine(url, poolclass=NullPool).begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def _readable(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
