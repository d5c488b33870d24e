"""What work costs the machine: CPU of every process that has a part in it, and what PostgreSQL and Redis count.

CPU is the kernel's account (10 ms), of ended children as well; PostgreSQL's and Redis's are told only where they run on
this machine, or Redis itself tells. Differences of two snapshots are exact for transactions, WAL and commands.
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
PAGES = """
    select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c
    join pg_namespace n on n.oid = relnamespace
    where relkind = 'r' and nspname not in ('pg_catalog', 'information_schema')
"""
FILLED = """
    select c.relname from pg_class c join pg_namespace n on n.oid = relnamespace
    where relkind = 'r' and nspname = 'public' and pg_relation_size(c.oid) > 0
"""
WRITTEN = """
    select pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (pg_current_wal_insert_lsn() - '0/0')::bigint
"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters at one moment."""

    cpu: float  # seconds
    transactions: int  # that have written something
    wal: int  # bytes
    commands: int  # of Redis


@dataclass(frozen=True, slots=True)
class Cost:
    """What one node has cost."""

    cpu_ms: float
    transactions: float
    wal: float  # bytes
    commands: float


def cost(before: Snapshot, after: Snapshot, nodes: int) -> Cost:
    """The difference of two snapshots, per node."""
    return Cost(
        1000 * (after.cpu - before.cpu) / nodes,
        (after.transactions - before.transactions) / nodes,
        (after.wal - before.wal) / nodes,
        (after.commands - before.commands) / nodes,
    )


class Counters:
    """Reads the counters of the servers, and of the processes in some sessions."""

    def __init__(self, postgres: "psycopg.Connection[Any]", broker: redis.Redis) -> None:
        self._postgres, self._broker = postgres, broker
        self._postmaster = _parent(postgres.info.backend_pid) if _is_here(postgres) else None

    def snapshot(self, sessions: Collection[int]) -> Snapshot:
        """Now; CPU of these sessions, of this process, and of the servers."""
        row = self._postgres.execute(WRITTEN).fetchone()
        assert row is not None
        told: Any = self._broker.info()
        servers = told["used_cpu_user"] + told["used_cpu_sys"]
        return Snapshot(self._cpu(sessions) + servers, row[0], int(row[1]), told["total_commands_processed"])

    def pack(self) -> None:
        """Have PostgreSQL write every table anew, without the room that earlier work has left in it.

        Marking the pages of what was written anew is a second work of the same size, and a third in the log: it is
        done here, too, lest it be taken for a part of what is measured.
        """
        for (table,) in self._postgres.execute(FILLED).fetchall():
            self._postgres.execute(sql.SQL("vacuum (full) {}").format(sql.Identifier(table)))
            self._postgres.execute(sql.SQL("vacuum {}").format(sql.Identifier(table)))  # else autovacuum, meanwhile

    def bytes(self) -> int:
        """What all tables of the database take, with their indexes."""
        row = self._postgres.execute(PAGES).fetchone()
        assert row is not None
        return int(row[0])

    def _cpu(self, sessions: Collection[int]) -> float:
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has just ended
                fields = stat.read_text().rpartition(")")[2].split()
                pid, parent, session = int(stat.parent.name), int(fields[1]), int(fields[3])
                if pid == os.getpid():  # its children have sessions of their own, or are no part of the work
                    ticks += sum(map(int, fields[11:13]))
                elif session in sessions or self._postmaster in (pid, parent):
                    ticks += sum(map(int, fields[11:15]))
        return ticks / TICKS


def _is_here(postgres: "psycopg.Connection[Any]") -> bool:
    return postgres.info.hostaddr.startswith(("127.", "::1")) or postgres.info.host.startswith("/")


def _parent(pid: int) -> int | None:
    """The postmaster of a backend; None where this machine does not show it."""
    with suppress(OSError):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        if "postgres" in name:
            return int(rest.split()[1])
    return None
