"""Easel as one side of a comparison, with processes as in production.

This process starts runs with the function that the HTTP routes call, so that neither HTTP nor a client is measured; its
CPU time counts. A run is over when the notification of its last event arrives, which ends a listener's stream.
"""

import json
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import psycopg
import redis

import settings
from bench.compare import canvases
from bench.compare.control_side import await_blocked_clients, count_blocked_clients
from bench.compare.processes import Deadline, Process, stop_all
from bench.compare.servers import ROOT, ComparisonServers
from bench.compare.side import EASEL, MODES, RunWork
from canvas.ids import CanvasId, RunId, VersionId
from scheduler.bootstrap import Role, build_coordinator
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.redis_bus import channel
from store.agents import canvases as stored_canvases
from store.agents import versions
from store.maintenance import migrate
from store.tenants import tenants

SERVER_VARIABLES = (
    "DATABASE_URL",
    "REDIS_URL",
    "CELERY_BROKER_URL",
    "EASEL_DATABASE_URL",
    "EASEL_REDIS_URL",
    "EASEL_BROKER_URL",
)
CHANNELS = "easel:run:*"
OVER = b'"over":true'
IS_OVER = "select id from runs where id = any(%s) and status in ('succeeded', 'failed', 'cancelled')"
COMMIT_TIMES = """
    select min(extract(epoch from created_at))::float from run_events
    where run_id = any(%s) and event = 'node_finished' group by run_id, node_id order by 1
"""
COUNT_COMMITTED_TWICE = """
    select count(*) from (select 1 from run_events where run_id = any(%s) and event = 'node_finished'
    group by run_id, node_id having count(*) > 1) as twice
"""
ACCOUNT = """
[[account]]
factory = "OpenAI-API-Compatible"
base_url = "{url}"
api_key = "key"
[account.models.wait-50]
[account.models.wait-100]
"""


class EaselSide:
    """Runs worker processes, one scheduler and one sweeper.

    Settings in the environment apply, except server URLs and those of the mode, which is also the side's name.
    """

    def __init__(
        self,
        servers: ComparisonServers,
        postgres: "psycopg.Connection[Any]",
        broker: redis.Redis,
        workers: int,
        mode: str = EASEL,
    ) -> None:
        self.name = mode
        self._servers, self._postgres, self._broker, self._workers = servers, postgres, broker, workers
        self._processes: list[Process] = []
        self._versions: dict[RunWork, tuple[CanvasId, VersionId]] = {}
        self._models = servers.folder / "models.toml"
        self._models.write_text(ACCOUNT.format(url=servers.model_url))
        migrate.upgrade(servers.database_url)
        self._coordinator = build_coordinator(
            make_app(servers.redis_url),
            servers.database_url,
            servers.redis_url,
            settings.load(),
            Role("easel-bench", pool_size=2),
        )
        self._lifecycle = Lifecycle(self._coordinator)
        with self._coordinator.database.transaction() as tx:
            self._tenant = tenants.ensure_tenant(tx, "bench")
        self._ends: Any = broker.pubsub(ignore_subscribe_messages=True)
        self._ends.psubscribe(CHANNELS)

    @property
    def sessions(self) -> Collection[int]:
        """The sessions of the processes."""
        return [process.session for process in self._processes]

    def start(self, work: RunWork, *, is_safe: bool = False) -> None:
        """Start the processes, the same for all work, and create the version of the canvas."""
        if not self._processes:
            self.restart()
        if work not in self._versions:
            draw = canvases.fan_canvas(work.size, wait_ms=work.wait_ms) if work.is_fan else canvases.chain_canvas(
                work.size, wait_ms=work.wait_ms, has_large_output=work.has_large_output
            )  # fmt: skip
            with self._coordinator.database.transaction() as tx:
                canvas = stored_canvases.create(tx, self._tenant, f"{work} {self.name}", draw)
                self._versions[work] = canvas, versions.lock_draft_version(tx, self._tenant, canvas).id

    def restart(self) -> None:
        """Start all processes, and wait until they accept messages."""
        before, environment = count_blocked_clients(self._broker), self._environment()
        commands = [["worker", "-n", f"worker{number}@%h"] for number in range(self._workers)]
        for words in [*commands, ["scheduler", "-n", "scheduler@%h"], ["sweeper"]]:
            argv = [sys.executable, "-m", "cli", *words]
            self._processes.append(Process(words[0], argv, environment, self._servers.folder / f"{words[0]}.log"))
        await_blocked_clients(self._broker, before + self._workers + 1, self._processes)

    def start_runs(self, work: RunWork, runs: int) -> Sequence[str]:
        """Start runs, one after another; return their ids."""
        canvas, version = self._versions[work]
        start = Start(self._tenant, canvas, version, RunRequest(query=canvases.QUERY))
        return [str(self._lifecycle.start_run(start).run_id) for _ in range(runs)]

    def await_end(self, runs: Sequence[str], timeout: float) -> int:
        """Wait for event notifications, and read the rows after a second without any.

        Returns how many runs have ended.
        """
        waiting, deadline = {channel(RunId(UUID(run))).encode(): run for run in runs}, Deadline(timeout, "")
        while waiting and not deadline.is_over:
            message = self._ends.get_message(timeout=1.0)
            if message is None:
                ids = [UUID(run) for run in waiting.values()]
                for (run,) in self._postgres.execute(IS_OVER, (ids,)).fetchall():
                    waiting.pop(channel(run).encode(), None)
            elif message["channel"] in waiting:
                deadline.reset()
                if OVER in message["data"] and json.loads(message["data"])["over"]:
                    del waiting[message["channel"]]
        return len(runs) - len(waiting)

    def commit_times(self, runs: Sequence[str]) -> Sequence[float]:
        """Return the times of each node's first `node_finished`, in seconds, ascending."""
        return [moment for (moment,) in self._postgres.execute(COMMIT_TIMES, ([UUID(run) for run in runs],))]

    def count_committed_twice(self, runs: Sequence[str]) -> int:
        """Return the number of nodes with more than one `node_finished`."""
        row = self._postgres.execute(COUNT_COMMITTED_TWICE, ([UUID(run) for run in runs],)).fetchone()
        return int(row[0]) if row is not None else 0

    def kill(self) -> None:
        """Kill workers, scheduler and sweeper."""
        for process in self._processes:
            process.kill()
        self._processes.clear()

    def pause(self) -> None:
        """Stop all processes: those of another mode would receive the same messages."""
        stop_all(self._processes)
        self._processes.clear()

    def stop(self) -> None:
        """Stop all processes in order, and close connections."""
        self.pause()
        self._ends.close()
        self._coordinator.database.close()
        self._coordinator.dispatch.bus.close()

    def _environment(self) -> Mapping[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in SERVER_VARIABLES}
        return {
            **inherited,
            **MODES[self.name],
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self._servers.folder),
            "EASEL_HOME": str(self._servers.folder / "easel"),
            "EASEL_DATABASE_URL": self._servers.database_url,
            "EASEL_REDIS_URL": self._servers.redis_url,
            "EASEL_MODELS_FILE": str(self._models),
        }
