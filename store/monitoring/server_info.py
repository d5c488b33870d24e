"""The database server itself: its clock, its limits, and whether a pooler is before it. For diagnosis only."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from store.db.transaction import Transaction

ABOUT = text("""
    select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major,
        current_setting('max_connections')::int as max_connections, clock_timestamp() as clock,
        pg_backend_pid() as backend_pid, current_setting('statement_timeout') <> '0' as has_time_limits
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


@dataclass(frozen=True, slots=True)
class Server:
    """What a PostgreSQL says of itself."""

    version: str
    major: int
    max_connections: int
    clock: datetime
    is_pooled: bool
    """Whether somebody between here and there shares connections."""
    has_time_limits: bool
    """Whether a statement may not run for ever: what processes ask for when they connect has arrived, or a role's."""


def server_info(tx: Transaction) -> Server:
    """The server of this transaction."""
    row = tx.one_or_none(ABOUT)
    assert row is not None
    found = dict(row)
    is_pooled = found.pop("backend_pid") != tx.connection.info.backend_pid
    return Server(**found, is_pooled=is_pooled)


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
