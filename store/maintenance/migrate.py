"""Migrations: bring a database to the tables of this release, and report which revisions it lacks.

Migrations only go forward, and they are safe while the previous release still runs, so a database may be ahead of this
release. Each revision is a transaction of its own: if one fails, it leaves nothing behind, the revisions before it stay
applied, and the command can be repeated. An upgrade holds an advisory lock, so two upgrades of a database run one after
the other. The connection should be direct and not through a pooler, because poolers drop connections that wait for
long.

A revision waits at most two seconds for a lock, because every transaction that needs the table queues behind it. Then
the revision is rolled back and repeated after a pause (docs/decisions/0052-a-transaction-for-each-revision.md).

A revision that builds indexes of large tables may have a function `prepare(connection)`. It returns statements that are
executed before `upgrade`, each in a transaction of its own, so that `upgrade` holds its locks only briefly. Each
statement must be safe to repeat, and `upgrade` must be complete without them.
"""

import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, NullPool, column, create_engine, func, select, table, text
from sqlalchemy.exc import DBAPIError

from canvas.errors import ExecutorError
from store.db.database import Database
from store.db.db_errors import is_outage, is_retryable, sqlstate
from store.db.transaction import Transaction
from store.maintenance import partitions, vectors
from store.tables.runs import PARTITIONED

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

_FOLDER = Path(__file__).resolve().parents[2] / "migrations"
_LOCK = 0x6561_7365_6C  # "easel" as a number, so that no other program uses it
_APPLICATION = "easel-migrate"

LOCK_TIMEOUT = 2.0  # seconds; below the statement limit, above the 1 s after which PostgreSQL cancels an autovacuum
PAUSES = (1.0, 2.0, 4.0, 8.0)  # seconds between the tries of a transaction that did not get its locks
LOCK_NOT_AVAILABLE, DEADLOCK = "55P03", "40P01"
ROLLED_BACK = "The revision was rolled back, and those before it stay applied."
MAX_TRANSACTIONS_SHOWN = 3  # transactions named in a message
MAX_STATEMENT_CHARS = 120  # characters of a statement shown in a message

NO_LIMITS = text("""
    select set_config(name, '0', true) from pg_settings
    where name in ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'lock_timeout')
""")
SET_LOCK_TIMEOUT = text("select set_config('lock_timeout', :milliseconds, true)")
TRY_LOCK = text("select pg_try_advisory_xact_lock(:lock)")
LOCK = text("select pg_advisory_xact_lock(:lock)")
CHECK_LOCK = text("select 1")  # fails if the connection is lost, and the lock with it
HAS_REVISIONS = text("select to_regclass('alembic_version') is not null")
REVISIONS = select(column("version_num")).select_from(table("alembic_version"))
NOW = select(func.now())
OPEN_TRANSACTIONS = text("""
    select pid, coalesce(nullif(application_name, ''), backend_type, 'unknown') as name,
        extract(epoch from clock_timestamp() - xact_start)::int as seconds
    from pg_stat_activity
    where datname = current_database() and application_name <> :own and xact_start < clock_timestamp() - interval '1 s'
    order by xact_start limit :most
""")


def _ignore(_revision: str = "") -> None: ...


def upgrade(
    database_url: str,
    *,
    on_applied: Callable[[str], None] = _ignore,
    on_wait: Callable[[], None] = _ignore,
    on_advice: Callable[[str], None] = _ignore,
) -> list[str]:
    """Apply the missing revisions, create this week's partitions and install pgvector; return the revisions applied,
    oldest first.

    `on_applied` is called after each revision, `on_wait` if another upgrade of this database is running, `on_advice`
    with what an operator should do about pgvector (`store/maintenance/vectors.py`). Raises
    ExecutorError if DATABASE_URL leads to a pooler that processes could not work through, and if a revision fails or
    does not get its locks; an error of SQLAlchemy if the database does not answer.
    """
    applied: list[str] = []
    with closing(Database(database_url, pool_size=1, application=_APPLICATION)) as database:
        database.require_safe_pooler()
        engine = create_engine(database_url, poolclass=NullPool, connect_args={"application_name": _APPLICATION})
        with _lock(engine, on_wait) as lock:
            for revision in _apply(engine, missing_revisions(database), lock):
                applied.append(revision)
                on_applied(revision)
            _create_partitions(database)
            if advice := vectors.install(database):
                on_advice(advice)
    return applied


def missing_revisions(database: Database) -> list[str]:
    """Return the revisions that the database lacks, oldest first; none if it is ahead of this release."""
    with database.transaction() as tx:
        return _missing_revisions(tx)


def newest_revision() -> str:
    """Return the newest revision of this release."""
    return _revisions()[-1]


def _missing_revisions(tx: Transaction) -> list[str]:
    known = _revisions()
    if not tx.scalar(HAS_REVISIONS):
        return known
    current = tx.scalar(REVISIONS)
    if current is None:
        return known
    return known[known.index(current) + 1 :] if current in known else []


def _revisions() -> list[str]:
    """Return all revisions in order: a file name begins with its revision, and they form one line (tested)."""
    return sorted(file.name.partition("_")[0] for file in (_FOLDER / "versions").glob("[0-9]*_*.py"))


@contextmanager
def _lock(engine: Engine, on_wait: Callable[[], None]) -> Generator[Connection]:
    """Hold the lock of all upgrades of this database, in a transaction that does nothing else.

    Unlike the lock of a session, that of a transaction also works through a pooler, and ends with the transaction.
    """
    with engine.begin() as connection:
        connection.execute(NO_LIMITS)
        if not connection.scalar(TRY_LOCK, {"lock": _LOCK}):
            on_wait()
            connection.execute(LOCK, {"lock": _LOCK})
        yield connection


def _apply(engine: Engine, revisions: Sequence[str], lock: Connection) -> Generator[str]:
    """Apply the revisions one by one; yield each when it is applied."""
    if not revisions:
        return
    from alembic import command  # takes 80 ms, so only if a revision is missing
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    scripts = ScriptDirectory.from_config(config)
    for revision in revisions:

        def migrate(connection: Connection, revision: str = revision) -> None:
            config.attributes["connection"] = connection
            command.upgrade(config, revision)

        with _explain_errors(engine, revision):
            for statement in _preparing_statements(engine, scripts, revision):
                _run_with_retry(engine, partial(Connection.exec_driver_sql, statement=statement), lock)
            _run_with_retry(engine, migrate, lock)
        yield revision


def _preparing_statements(engine: Engine, scripts: "ScriptDirectory", revision: str) -> Sequence[str]:
    """Return the statements that a revision has executed before its `upgrade`."""
    prepare = getattr(scripts.get_revision(revision).module, "prepare", None)
    if prepare is None:
        return ()
    with engine.connect() as connection:
        return prepare(connection)


def _run_with_retry(engine: Engine, work: Callable[[Connection], object], lock: Connection) -> None:
    """Run work in a transaction; repeat it after a pause if it did not get its locks, or after a deadlock."""
    for pause in (*PAUSES, None):
        lock.execute(CHECK_LOCK)
        try:
            with engine.begin() as connection:
                connection.execute(NO_LIMITS)
                connection.execute(SET_LOCK_TIMEOUT, {"milliseconds": str(int(LOCK_TIMEOUT * 1000))})
                work(connection)
            return
        except DBAPIError as error:
            if pause is None or error.connection_invalidated or not is_retryable(error):
                raise
        time.sleep(pause)


def _create_partitions(database: Database) -> None:
    """Create the partitions of this week, each table's in a transaction of its own."""
    with database.transaction() as tx:
        now = tx.scalar(NOW)
        tables = [table for table in PARTITIONED if partitions.missing_weeks(tx, table, now, weeks=0)]
    for table_name in tables:  # a week takes 70 ms; the sweeper creates later ones
        database.run_with_retry(partial(partitions.ensure, now=now, weeks=0, tables=[table_name]))


@contextmanager
def _explain_errors(engine: Engine, revision: str) -> Generator[None]:
    """Convert an error that is not an outage into an ExecutorError that says what failed, why, and what to do."""
    try:
        yield
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        statement = " ".join((error.statement or "").split())[:MAX_STATEMENT_CHARS]
        if sqlstate(error) in (LOCK_NOT_AVAILABLE, DEADLOCK):
            tries = f"{1 + len(PAUSES)} tries of {LOCK_TIMEOUT:g} s"
            raise ExecutorError(
                f"Revision {revision} did not get a lock in {tries}: {reason}, at `{statement}`. "
                f"{_describe_open_transactions(engine)}"
                f" {ROLLED_BACK} Run `easel migrate` again when the transaction in its way has ended."
            ) from error
        if is_outage(error):
            raise
        raise ExecutorError(f"Revision {revision} failed: {reason}, at `{statement}`. {ROLLED_BACK}") from error


def _describe_open_transactions(engine: Engine) -> str:
    """Return a text that names the transactions that have been open longest; they are likely to hold the lock."""
    with engine.connect() as connection:
        rows = connection.execute(OPEN_TRANSACTIONS, {"own": _APPLICATION, "most": MAX_TRANSACTIONS_SHOWN}).all()
    if not rows:
        return "No transaction has been open for longer than a second by now."
    return f"Open transactions: {', '.join(f'process {pid} ({name}, {seconds} s)' for pid, name, seconds in rows)}."
