"""The database server itself: its clock, its limits, and which of our processes are connected. For diagnosis only."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from store.transaction import Transaction

ABOUT = text("""
    select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major,
        current_setting('max_connections')::int as max_connections, clock_timestamp() as clock
""")
LOCKS = text("""
    select cast(current_setting('max_locks_per_transaction') as int)
            * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) as room,
        max(weeks) as weeks, coalesce(sum(locks) filter (where name = 'runs'), 0)::int as of_runs,
        coalesce(sum(locks), 0)::int as of_all
    from (
        select name, count(*) as weeks,
            count(*) + sum((select count(*) from pg_index where indrelid = inhrelid)) as locks
        from unnest(array['runs', 'activations']) as name join pg_inherits on inhparent = to_regclass(name)
        group by name
    ) partitioned
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


@dataclass(frozen=True, slots=True)
class Locks:
    """What statements that cannot name a week lock: every partition of a table, and its indexes.

    `room`: of the server's lock table; `of_runs`: of a list of runs; `of_all`: of a look of the sweeper.
    """

    room: int
    weeks: int
    of_runs: int
    of_all: int


def locks(tx: Transaction) -> Locks:
    """Return how much of the server's lock table the weeks that are kept may take."""
    row = tx.one_or_none(LOCKS)
    assert row is not None
    return Locks(row["room"], row["weeks"] or 0, row["of_runs"], row["of_all"])


def connections(tx: Transaction) -> dict[str, int]:
    """How many connections each kind of our processes has to this database ("easel-worker": 8)."""
    return {row[0]: row[1] for row in tx.rows(APPLICATIONS)}
