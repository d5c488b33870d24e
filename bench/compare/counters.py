"""Counters of a workload's costs: CPU time of all processes involved, and counters of PostgreSQL and Redis.

CPU time comes from the kernel (in steps of 10 ms), with that of ended children. PostgreSQL's is known only if it runs
on this machine; Redis reports its own. Differences of two snapshots are exact for transactions, WAL and commands.
"""

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import redis
from psycopg import sql

TICKS = os.sysconf("SC_CLK_TCK")
TABLE_BYTES = """
    select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c
    join pg_namespace n on n.oid = relnamespace
    where relkind = 'r' and nspname not in ('pg_catalog', 'information_schema')
"""
FILLED_TABLES = """
    select c.relname from pg_class c join pg_namespace n on n.oid = relnamespace
    where relkind = 'r' and nspname = 'public' and pg_relation_size(c.oid) > 0
"""
WRITE_COUNTERS = """
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_insert_lsn() - '0/0')::bigint
"""


@dataclass(frozen=True, slots=True)
class CounterSnapshot:
    """Counters at one moment."""

    cpu: float  # seconds
    transactions: int  # that wrote something
    wal: int  # bytes
    commands: int  # of Redis


@dataclass(frozen=True, slots=True)
class NodeCost:
    """The cost of one node."""

    cpu_ms: float
    transactions: float
    wal: float  # bytes
    commands: float


def cost_per_node(before: CounterSnapshot, after: CounterSnapshot, nodes: int) -> NodeCost:
    """Return the difference of two snapshots, per node."""
    return NodeCost(
        1000 * (after.cpu - before.cpu) / nodes,
        (after.transactions - before.transactions) / nodes,
        (after.wal - before.wal) / nodes,
        (after.commands - before.commands) / nodes,
    )


class CostCounters:
    """Reads the counters of the servers, and the CPU time of processes by session."""

    def __init__(self, postgres: "psycopg.Connection[Any]", broker: redis.Redis) -> None:
        self._postgres, self._broker = postgres, broker
        self._postmaster = _postmaster_of(postgres.info.backend_pid) if _is_local(postgres) else None

    def snapshot(self, sessions: Collection[int]) -> CounterSnapshot:
        """Return all counters at this moment; `cpu` is of these sessions, this process, and the servers."""
        row = self._postgres.execute(WRITE_COUNTERS).fetchone()
        assert row is not None
        info: Any = self._broker.info()
        servers = info["used_cpu_user"] + info["used_cpu_sys"]
        return CounterSnapshot(self._cpu(sessions) + servers, row[0], int(row[1]), info["total_commands_processed"])

    def rewrite_tables(self) -> None:
        """Rewrite every table of PostgreSQL without free space of earlier work.

        Setting the hint bits of rewritten pages is as much work again, and writes WAL. The second vacuum does it here,
        so that it is not measured as part of a workload.
        """
        for (table,) in self._postgres.execute(FILLED_TABLES).fetchall():
            self._postgres.execute(sql.SQL("vacuum (full) {}").format(sql.Identifier(table)))
            # else autovacuum does it meanwhile
            self._postgres.execute(sql.SQL("vacuum {}").format(sql.Identifier(table)))

    def table_bytes(self) -> int:
        """Return the bytes of all tables of the database, with their indexes."""
        row = self._postgres.execute(TABLE_BYTES).fetchone()
        assert row is not None
        return int(row[0])

    def _cpu(self, sessions: Collection[int]) -> float:
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # the process has just ended
                fields = stat.read_text().rpartition(")")[2].split()
                pid, parent, session = int(stat.parent.name), int(fields[1]), int(fields[3])
                if pid == os.getpid():  # its children have their own sessions, or do not belong to the work
                    ticks += sum(map(int, fields[11:13]))
                elif session in sessions or self._postmaster in (pid, parent):
                    ticks += sum(map(int, fields[11:15]))
        return ticks / TICKS


def _is_local(postgres: "psycopg.Connection[Any]") -> bool:
    return postgres.info.hostaddr.startswith(("127.", "::1")) or postgres.info.host.startswith("/")


def _postmaster_of(pid: int) -> int | None:
    """Return the postmaster of a backend; None if it is not a process of this machine."""
    with suppress(OSError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        if "postgres" in name:
            return int(rest.split()[1])
    return None
