"""Easel as one side of a comparison: processes as in production, runs started as the API starts them.

Runs are started by the verb that the HTTP routes call, in this process, so that neither HTTP nor a client is measured;
what it costs counts. A run is over when the bus echoes its last event, which is what lets a listener's stream end.
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
from bench.compare.control_side import await_blocked, blocked
from bench.compare.results import EASEL
from bench.compare.side import Work
from bench.fixtures import canvases
from bench.servers.processes import Deadline, Process, stop_all
from bench.servers.servers import ROOT, Servers
from scheduler.bootstrap import Role, build_coordinator
from scheduler.coordinator.run_start import Request
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.redis_bus import channel
from store.agents import canvases as stored_canvases
from store.agents import versions
from store.maintenance import migrate
from store.tenants import tenants

OTHERS = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL", "EASEL_DATABASE_URL", "EASEL_REDIS_URL", "EASEL_BROKER_URL")
CHANNELS = "easel:run:*"
OVER = b'"over":true'
IS_OVER = "select id from runs where id = any(%s) and status in ('succeeded', 'failed', 'cancelled')"
MOMENTS = """
    select min(extract(epoch from created_at))::float from run_events
    where run_id = any(%s) and event = 'node_finished' group by run_id, node_id order by 1
"""
TWICE = """
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
    """Worker processes, one scheduler, one sweeper. Settings in the environment count, but for where servers are."""

    name = EASEL

    def __init__(
        self, servers: Servers, postgres: "psycopg.Connection[Any]", broker: redis.Redis, workers: int
    ) -> None:
        self._servers, self._postgres, self._broker, self._workers = servers, postgres, broker, workers
        self._processes: list[Process] = []
        self._versions: dict[Work, tuple[UUID, UUID]] = {}
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
        """Sessions of its processes."""
        return [process.session for process in self._processes]

    def start(self, work: Work, *, is_safe: bool = False) -> None:
        """The same processes whatever the work, and whether or not they are killed."""
        if not self._processes:
            self.restart()
        if work not in self._versions:
            draw = canvases.fan(work.size, wait_ms=work.wait_ms) if work.is_fan else canvases.chain(
                work.size, wait_ms=work.wait_ms, has_large_output=work.has_large_output
            )  # fmt: skip
            with self._coordinator.database.transaction() as tx:
                canvas = stored_canvases.create(tx, self._tenant, str(work), draw)
                self._versions[work] = canvas, versions.snapshot(tx, self._tenant, canvas).id

    def restart(self) -> None:
        """Start all processes, and wait until they take messages."""
        before, environment = blocked(self._broker), self._environment()
        commands = [["worker", "-n", f"worker{number}@%h"] for number in range(self._workers)]
        for words in [*commands, ["scheduler", "-n", "scheduler@%h"], ["sweeper"]]:
            argv = [sys.executable, "-m", "cli", *words]
            self._processes.append(Process(words[0], argv, environment, self._servers.folder / f"{words[0]}.log"))
        await_blocked(self._broker, before + self._workers + 1, self._processes)

    def begin(self, work: Work, runs: int) -> Sequence[str]:
        """Start runs, one after another."""
        canvas, version = self._versions[work]
        start = Start(self._tenant, canvas, version, Request(query=canvases.QUERY))
        return [str(self._lifecycle.start_run(start).run_id) for _ in range(runs)]

    def await_end(self, runs: Sequence[str], patience: float) -> int:
        """Listen to the bus; where it says nothing for a second, look at the rows."""
        waiting, deadline = {channel(UUID(run)).encode(): run for run in runs}, Deadline(patience, "")
        while waiting and not deadline.is_over:
            said = self._ends.get_message(timeout=1.0)
            if said is None:
                ids = [UUID(run) for run in waiting.values()]
                for (run,) in self._postgres.execute(IS_OVER, (ids,)).fetchall():
                    waiting.pop(channel(run).encode(), None)
            elif said["channel"] in waiting:
                deadline.moves()
                if OVER in said["data"] and json.loads(said["data"])["over"]:
                    del waiting[said["channel"]]
        return len(runs) - len(waiting)

    def committed(self, runs: Sequence[str]) -> Sequence[float]:
        """When each node was first said to have finished."""
        return [moment for (moment,) in self._postgres.execute(MOMENTS, ([UUID(run) for run in runs],))]

    def committed_twice(self, runs: Sequence[str]) -> int:
        """Nodes that were said to have finished more than once."""
        row = self._postgres.execute(TWICE, ([UUID(run) for run in runs],)).fetchone()
        return int(row[0]) if row is not None else 0

    def kill(self) -> None:
        """End workers, scheduler and sweeper at once."""
        for process in self._processes:
            process.kill()
        self._processes.clear()

    def stop(self) -> None:
        """End its processes in order."""
        stop_all(self._processes)
        self._processes.clear()
        self._ends.close()
        self._coordinator.database.close()
        self._coordinator.dispatch.bus.close()

    def _environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in OTHERS}
        return {
            **kept,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self._servers.folder),
            "EASEL_HOME": str(self._servers.folder / "easel"),
            "EASEL_DATABASE_URL": self._servers.database_url,
            "EASEL_REDIS_URL": self._servers.redis_url,
            "EASEL_MODELS_FILE": str(self._models),
        }
