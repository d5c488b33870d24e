"""The database server itself, for diagnosis: its clock, its limits, and whether a pooler is in front of it."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from store.db.transaction import Transaction

SERVER_FACTS = text("""
    select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major,
        current_setting('max_connections')::int as max_connections, clock_timestamp() as clock,
        pg_backend_pid() as backend_pid, current_setting('statement_timeout') <> '0' as has_time_limits
""")
CLOCK = text("select now()")
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


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a PostgreSQL server reports about itself."""

    version: str
    major: int
    max_connections: int
    clock: datetime
    is_pooled: bool
    """Whether a pooler is between this process and the server."""
    has_time_limits: bool
    """Whether statements have a time limit: the one that processes set when they connect, or that of the role."""


def server_info(tx: Transaction) -> ServerInfo:
    """Return the facts about the server of this transaction."""
    row = tx.one_or_none(SERVER_FACTS)
    assert row is not None
    facts = dict(row)
    is_pooled = facts.pop("backend_pid") != tx.connection.info.backend_pid
    return ServerInfo(**facts, is_pooled=is_pooled)


def read_clock(tx: Transaction) -> datetime:
    """Return the time of the database, at which the transaction began."""
    return tx.scalar(CLOCK)


@dataclass(frozen=True, slots=True)
class LockUse:
    """How many locks the statements take that cannot name a week: on every partition of a table and on its indexes.

    `capacity`: the size of the server's lock table; `of_runs`: for a list of runs; `of_all`: for a query of the
    sweeper.
    """

    capacity: int
    weeks: int
    of_runs: int
    of_all: int


def lock_use(tx: Transaction) -> LockUse:
    """Return how much of the server's lock table the existing weeks may take."""
    row = tx.one_or_none(LOCKS)
    assert row is not None
    return LockUse(row["room"], row["weeks"] or 0, row["of_runs"], row["of_all"])
