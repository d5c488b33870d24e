"""The control as one side of a comparison: its workers, its tables, and the sender of its first tasks."""

import os
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import psycopg
import redis

from bench.compare import control
from bench.compare.processes import Deadline, Process, stop_all
from bench.compare.servers import ROOT, ComparisonServers
from bench.compare.side import CONTROL, RunWork

START_TIMEOUT = 60.0  # seconds
POLL_INTERVAL = 0.02
COMMIT_TIMES = "select extract(epoch from at)::float from control_nodes where run = any(%s) order by 1"
COUNT_COMMITTED_TWICE = "select count(*) from control_nodes where run = any(%s) and times > 1"


@dataclass(frozen=True, slots=True)
class PoolConfig:
    """The configuration of the control's workers."""

    kind: str
    concurrency: int
    processes: int = 1
    is_safe: bool = False


WORKING = PoolConfig("prefork", 2)
WAITING = PoolConfig("threads", 50, 2)
SAFE = PoolConfig("threads", 16, is_safe=True)


class ControlSide:
    """Runs `bench.compare.control` with the pool that suits the work best."""

    name = CONTROL

    def __init__(self, servers: ComparisonServers, postgres: "psycopg.Connection[Any]", broker: redis.Redis) -> None:
        self._servers, self._postgres, self._broker = servers, postgres, broker
        self._app = control.make_app(servers.redis_url)
        self._processes: list[Process] = []
        self._pools: PoolConfig | None = None
        postgres.execute(control.TABLES)

    @property
    def sessions(self) -> Collection[int]:
        """The sessions of the processes."""
        return [process.session for process in self._processes]

    def start(self, work: RunWork, *, is_safe: bool = False) -> None:
        """Start workers: prefork where tasks compute, threads where they wait."""
        pools = SAFE if is_safe else WAITING if work.wait_ms else WORKING
        if pools != self._pools:
            self.stop()
            self._pools = pools
            self.restart()

    def restart(self) -> None:
        """Start workers, and wait until each accepts tasks."""
        assert self._pools is not None
        pools, before = self._pools, count_blocked_clients(self._broker)
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self._servers.folder),  # a killed pool leaves files there
            "CONTROL_DATABASE_URL": self._servers.psycopg_database_url,
            "CONTROL_REDIS_URL": self._servers.redis_url,
            "CONTROL_MODEL_URL": self._servers.model_url,
            "CONTROL_SAFE": str(int(pools.is_safe)),
        }
        options = ["-P", pools.kind, "-c", str(pools.concurrency), "--without-gossip", "--without-mingle"]
        for number in range(pools.processes):
            node = f"control{number}@%h"
            argv = [sys.executable, "-m", "celery", "-A", "bench.compare.control", "worker", *options, "-n", node]
            log = self._servers.folder / "control.log"
            self._processes.append(Process("control", argv, environment, log))
        await_blocked_clients(self._broker, before + pools.processes, self._processes)

    def pause(self) -> None:
        """Do nothing: no other side receives the control's messages."""

    def start_runs(self, work: RunWork, runs: int) -> Sequence[str]:
        """Send the first task of each run; return the runs' names."""
        names = [uuid4().hex for _ in range(runs)]
        for name in names:
            if work.is_fan:
                self._app.send_task(control.FAN, (name, 0, work.size, work.wait_ms))
            else:
                self._app.send_task(control.HOP, (None, name, 0, work.size, work.wait_ms))
        return names

    def await_end(self, runs: Sequence[str], timeout: float) -> int:
        """Wait for the message of each run's last task; return how many runs have ended."""
        waiting, deadline = set(runs), Deadline(timeout, "")
        while waiting and not deadline.is_over:
            popped: Any = self._broker.blpop([control.DONE.format(run=run) for run in waiting], timeout=1)
            if popped is not None:
                waiting.discard(popped[0].decode().rpartition(":")[2])
                deadline.reset()
        return len(runs) - len(waiting)

    def commit_times(self, runs: Sequence[str]) -> Sequence[float]:
        """Return the times at which nodes were first committed, in seconds, ascending."""
        return [moment for (moment,) in self._postgres.execute(COMMIT_TIMES, (list(runs),))]

    def count_committed_twice(self, runs: Sequence[str]) -> int:
        """Return the number of nodes that were committed more than once."""
        row = self._postgres.execute(COUNT_COMMITTED_TWICE, (list(runs),)).fetchone()
        return int(row[0]) if row is not None else 0

    def kill(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
        self._processes.clear()

    def stop(self) -> None:
        """Stop all processes in order."""
        stop_all(self._processes)
        self._processes.clear()


def count_blocked_clients(broker: redis.Redis) -> int:
    """Return how many clients of Redis wait for a message: the highest of several samples."""
    looks: list[int] = []
    for _ in range(5):
        looks.append(broker.info("clients")["blocked_clients"])
        time.sleep(POLL_INTERVAL)
    return max(looks)


def await_blocked_clients(broker: redis.Redis, number: int, processes: Sequence[Process]) -> None:
    """Wait until `number` clients of Redis wait for a message. Raises RuntimeError if a process ends first."""
    deadline = Deadline(START_TIMEOUT, f"The workers did not accept messages within {START_TIMEOUT:.0f} s.")
    while broker.info("clients")["blocked_clients"] < number:
        for process in processes:
            process.assert_running()
        deadline.check()
        time.sleep(POLL_INTERVAL)
