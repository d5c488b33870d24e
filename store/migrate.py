"""Migrations: bring a database up to the tables this release knows, and tell how far it is.

Migrations only go forward and are safe while the previous release still runs, so a database that is ahead of us is
fine. Everything happens in one transaction, under a lock of that transaction: of two upgrades at once the second
waits and then finds nothing to do. The connection must be a direct one, not a pooler's.
"""

from contextlib import closing
from pathlib import Path
from typing import cast

from sqlalchemy import Connection as Engaged
from sqlalchemy import NullPool, column, create_engine, func, select, table, text

from store import partitions
from store.database import Database
from store.pipeline import Connection, Prepared
from store.transaction import Transaction

_FOLDER = Path(__file__).resolve().parent.parent / "migrations"
_LOCK = 0x6561_7365_6C  # "easel"; any number that nobody else uses

LOCK = text("select pg_advisory_xact_lock(:lock)")
HAS_REVISIONS = text("select to_regclass('alembic_version') is not null")
REVISIONS = select(column("version_num")).select_from(table("alembic_version"))
NOW = select(func.now())


def upgrade(database_url: str) -> list[str]:
    """Apply what is missing and make this week's partitions; the revisions applied, oldest first.

    Raises ExecutorError if DATABASE_URL leads to a pooler through which the processes could not work.
    """
    with closing(Database(database_url, pool_size=1, application="easel-migrate")) as database:
        database.refuse_pooler()
    engine = create_engine(database_url, poolclass=NullPool)
    with engine.begin() as connection:
        wire = cast(Connection, connection.connection.driver_connection)
        tx = Transaction(lambda: (wire, Prepared()))
        tx.begin()
        tx.rows(LOCK, lock=_LOCK)
        applied = _missing(tx)
        if applied:
            tx.end()
            _apply(connection)
        partitions.ensure(tx, tx.scalar(NOW), weeks=0)  # a week costs 70 ms; the sweeper makes those to come
        tx.end()
    return applied


def missing(database: Database) -> list[str]:
    """Revisions that the database lacks, oldest first; none if it is ahead of this release."""
    with database.transaction() as tx:
        return _missing(tx)


def head() -> str:
    """The newest revision of this release."""
    return _revisions()[-1]


def _missing(tx: Transaction) -> list[str]:
    known = _revisions()
    if not tx.scalar(HAS_REVISIONS):
        return known
    current = tx.scalar(REVISIONS)
    if current is None:
        return known
    return known[known.index(current) + 1 :] if current in known else []


def _revisions() -> list[str]:
    """Revisions in order: a file is named after its own, and they form one line (a test holds both)."""
    return sorted(file.name.partition("_")[0] for file in (_FOLDER / "versions").glob("[0-9]*_*.py"))


def _apply(connection: Engaged) -> None:
    from alembic import command  # 80 ms that a database which lacks nothing does not cost
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
