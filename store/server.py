"""The database server itself: its clock, its limits, and whether a pooler is before it. For diagnosis only."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from store.transaction import Transaction

ABOUT = text("""
    select current_setting('server_version') as version, current_setting('server_version_num')::int / 10000 as major,
        current_setting('max_connections')::int as max_connections, clock_timestamp() as clock,
        pg_backend_pid() as backend_pid, current_setting('statement_timeout') <> '0' as has_time_limits
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


def about(tx: Transaction) -> Server:
    """The server of this transaction."""
    row = tx.one_or_none(ABOUT)
    assert row is not None
    found = dict(row)
    is_pooled = found.pop("backend_pid") != tx.connection.info.backend_pid
    return Server(**found, is_pooled=is_pooled)
