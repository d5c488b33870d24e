"""The database server itself: its clock, its limits, and which of our processes are connected. For diagnosis only."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from store.transaction import Transaction

ABOUT = text("""
    select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major,
        current_setting('max_connections')::int as max_connections, clock_timestamp() as clock
""")
APPLICATIONS = text("""
    select application_name, count(*) from pg_stat_activity
    where datname = current_database() and application_name like 'easel-%' group by application_name order by 1
""")


@dataclass(frozen=True, slots=True)
class Server:
    """What a PostgreSQL says of itself."""

    version: str
    major: int
    max_connections: int
    clock: datetime


def about(tx: Transaction) -> Server:
    """The server of this transaction."""
    row = tx.one_or_none(ABOUT)
    assert row is not None
    return Server(**row)


def connections(tx: Transaction) -> dict[str, int]:
    """How many connections each kind of our processes has to this database ("easel-worker": 8)."""
    return {row[0]: row[1] for row in tx.rows(APPLICATIONS)}
