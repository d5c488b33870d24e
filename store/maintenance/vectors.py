"""The type of vectors: `halfvec` of pgvector where the server has the extension, else `real[]`.

Searches work with both. With pgvector they are ten times as fast, and large bases get an index
(docs/decisions/0060-knowledge-bases-on-pgvector.md). `easel migrate` calls `install` each time, so a server that gets
the extension later is converted then.
"""

from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from store.db.database import Database
from store.db.db_errors import sqlstate
from store.db.transaction import Transaction

TABLES = ("knowledge_chunks", "memory_messages")
MIN_VERSION = "0.8.0"  # the first version whose index scans continue until a filter has let enough rows through
INSUFFICIENT_PRIVILEGE = "42501"
REWRITE_TIMEOUT = timedelta(hours=1)

NOT_THERE = (
    "The server does not have the extension pgvector, so searches in knowledge bases compare every vector, which takes "
    "seconds from some ten thousand chunks on. Install pgvector (Debian: postgresql-18-pgvector; image: "
    "pgvector/pgvector) and run `easel migrate` again."
)
NOT_ALLOWED = (
    "The server has pgvector, and this user may not create the extension. Let an administrator run `create extension "
    "vector` in this database, and run `easel migrate` again."
)
NOT_CONVERTED = "The database has pgvector, and its vectors are stored without it. Run `easel migrate`."
TOO_OLD = f"The database has a version of pgvector before {MIN_VERSION}. Update it: `alter extension vector update`."

EXTENSION = text("""
    select
        (select default_version from pg_available_extensions where name = 'vector') as available,
        (select string_to_array(extversion, '.')::int[] >= string_to_array(:least, '.')::int[] from pg_extension
            where extname = 'vector') as is_new_enough
""")
CREATE = text("create extension if not exists vector")
TYPES = text("""
    select a.attrelid::regclass::text as name, a.atttypid = 'real[]'::regtype as is_plain
    from pg_attribute a where a.attname = 'embedding' and not a.attisdropped
        and a.attrelid = any(select to_regclass(name) from unnest(cast(:tables as text[])) as t (name))
""")


def install(database: Database) -> str:
    """Create the extension and convert the columns; return what an operator has to do, "" if nothing.

    A table with vectors is rewritten, which locks it for that time.
    """
    advice = advice_for(database)
    if advice == NOT_ALLOWED:
        try:
            with database.transaction() as tx:
                tx.execute(CREATE)
        except DBAPIError as error:
            if sqlstate(error) != INSUFFICIENT_PRIVILEGE:
                raise
        advice = advice_for(database)
    if advice == NOT_CONVERTED:
        _convert(database)
        advice = advice_for(database)
    return advice


def advice_for(database: Database) -> str:
    """Return what an operator has to do for fast searches, "" if nothing."""
    with database.transaction() as tx:
        ((available, is_new_enough),) = tx.rows(EXTENSION, least=MIN_VERSION)
        plain = _plain_tables(tx)
    if is_new_enough is None:
        return NOT_ALLOWED if available is not None else NOT_THERE
    if not is_new_enough:
        return TOO_OLD
    return NOT_CONVERTED if plain else ""


def _plain_tables(tx: Transaction) -> list[str]:
    return [row.name for row in tx.rows(TYPES, tables=list(TABLES)) if row.is_plain]


def _convert(database: Database) -> None:
    """Give the columns the type `halfvec`: a new column if no row has a vector, else each row is rewritten."""
    with database.transaction() as tx:
        plain = _plain_tables(tx)
    for table in plain:
        with database.transaction() as tx:
            tx.extend_time_limit(REWRITE_TIMEOUT)
            tx.execute(text(f"lock table {table} in access exclusive mode"))
            if tx.scalar(text(f"select exists (select from {table} where embedding is not null)")):  # noqa: S608 (a name of TABLES)
                tx.execute(text(f"alter table {table} alter column embedding type halfvec using embedding::halfvec"))
            else:
                tx.execute(text(f"alter table {table} drop column embedding, add column embedding halfvec"))
            tx.execute(text(f"alter table {table} alter column embedding set storage main"))
