"""A stage for measurements of growth: scheduler, worker and sweeper as threads of this process, and runs on them.

with stage() as growing:
    version = growing.version(chain(200))
    run_id = growing.play(version)
    growing.finished(run_id)
"""

import os
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import text

import embedded
import local
import settings
from canvas.document import parsing
from scheduler.coordinator.run_start import Request
from scheduler.lifecycle.accept import Start
from store.agents import canvases, versions
from store.db.database import Database
from store.maintenance import migrate, partitions
from store.primitives.ids import new_id
from store.runs import run_rows
from store.tables.runs import PARTITIONED
from store.tenants import tenants

PATIENCE = 1800.0  # seconds for a run; ten thousand items take minutes

FINISHED = text("""
    select extract(epoch from finished_at) from activations
    where run_id = :run_id and finished_at is not null and component = :component order by finished_at
""")
CREATED = text("""
    select extract(epoch from created_at) as began, extract(epoch from finished_at) as ended
    from runs where id = :run_id
""")
BASE = text("select octet_length(base::text) from runs where id = :run_id")
BYTES = text("""
    select sum(pg_total_relation_size(inhrelid)) from pg_inherits
    where inhparent in (select oid from pg_class where relkind = 'p')
""")


@dataclass(frozen=True, slots=True)
class Made:
    """A version that can be played."""

    canvas_id: UUID
    id: UUID


@dataclass
class Growing:
    """An engine, a tenant, and what is asked of them. `api` are connections as the API has them, for lists."""

    engine: local.Engine
    tenant: UUID
    api: Database

    @property
    def database(self) -> Database:
        """The engine's own."""
        return self.engine.database

    def version(self, components: Mapping[str, Any]) -> Made:
        """A version of a canvas of these components."""
        with self.database.transaction() as tx:
            document = parsing.parse({"components": components})
            canvas_id = canvases.create(tx, self.tenant, f"growth {new_id().hex}", document.raw)
            return Made(canvas_id, versions.snapshot(tx, self.tenant, canvas_id).id)

    def start(self, version: Made, query: str = "q", conversation: UUID | None = None) -> tuple[UUID, UUID]:
        """Start a run; it and its conversation."""
        wanted = Start(self.tenant, version.canvas_id, version.id, Request(query=query), conversation_id=conversation)
        started = self.engine.lifecycle.start_run(wanted)
        return started.run_id, started.conversation_id

    def play(self, version: Made, query: str = "q") -> UUID:
        """Start a run and wait for its end."""
        run_id, _ = self.start(version, query)
        self.ends(run_id)
        return run_id

    def ends(self, run_id: UUID) -> None:
        """Wait for the end of a run. Raises RuntimeError if it does not succeed."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with self.database.transaction() as tx:
                row = run_rows.read(tx, self.tenant, run_id)
            assert row is not None
            if row["status"] == "succeeded":
                return
            if row["status"] in ("failed", "cancelled"):
                raise RuntimeError(f"The run has not succeeded: {row['error']}")
            time.sleep(0.02)
        raise RuntimeError("The run does not end.")

    def finished(self, run_id: UUID, component: str = "StringTransform") -> Sequence[float]:
        """When the nodes of a component finished, in seconds, the first one first."""
        with self.database.transaction() as tx:
            return [float(at) for (at,) in tx.rows(FINISHED, run_id=run_id, component=component)]

    def seconds(self, run_id: UUID) -> float:
        """How long a run has taken, by the database's clock."""
        with self.database.transaction() as tx:
            created, finished = tx.rows(CREATED, run_id=run_id)[0]
        return float(finished - created)

    def base(self, run_id: UUID) -> int:
        """Bytes of what a run began with."""
        with self.database.transaction() as tx:
            return int(tx.scalar(BASE, run_id=run_id))

    def make_week(self, moment: datetime) -> None:
        """Make the partitions of a week."""
        for table in PARTITIONED:
            with self.database.transaction() as tx:
                partitions.ensure(tx, moment, weeks=0, tables=[table])

    def stored(self) -> int:
        """Bytes of all that belongs to runs, indexes included."""
        with self.database.transaction() as tx:
            return int(tx.scalar(BYTES))


@contextmanager
def stage() -> Generator[Growing]:
    """Servers of our own, with commits that wait for the disk, and an engine on them, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="easel-growth-") as home:
        os.chmod(home, 0o711)  # noqa: S103 (as root, PostgreSQL is somebody else, who must get through)
        with embedded.services(Path(home), durable=True) as services:
            migrate.upgrade(services.database_url)
            figures = settings.Settings(home=Path(home)).on(services.database_url, services.redis_url)
            with local.engine(figures, services.database_url, services.redis_url) as engine:
                with engine.database.transaction() as tx:
                    tenant = tenants.ensure_tenant(tx, "growth")
                api = Database(services.database_url, pool_size=1)
                try:
                    yield Growing(engine, tenant, api)
                finally:
                    api.close()


# -- canvases --------------------------------------------------------------------------------------------------------
def node(component: str, params: Mapping[str, Any], *downstream: str, parent: str | None = None) -> dict[str, Any]:
    """A component of a document."""
    shown = {"obj": {"component_name": component, "params": dict(params)}, "downstream": list(downstream)}
    return {**shown, "parent_id": parent} if parent else shown


def merging(script: str, *downstream: str, parent: str | None = None) -> dict[str, Any]:
    """A node that fills in a text."""
    return node(
        "StringTransform", {"method": "merge", "script": script, "delimiters": [","]}, *downstream, parent=parent
    )


def chain(length: int, script: str = "{sys.query}", first: str = "{sys.query}") -> dict[str, Any]:
    """Nodes one after another; the first one may have a text of its own."""
    names = [f"StringTransform:{number}" for number in range(length)]
    following = [[name] for name in names[1:]] + [[]]
    nodes = {
        name: merging(script if number else first, *after)
        for number, (name, after) in enumerate(zip(names, following, strict=True))
    }
    return {"begin": node("Begin", {}, names[0]), **nodes}


def wide(width: int) -> dict[str, Any]:
    """Nodes side by side, and one that waits for them all."""
    names = [f"StringTransform:{number}" for number in range(width)]
    nodes = {name: merging("{sys.query}", "StringTransform:join") for name in names}
    return {"begin": node("Begin", {}, *names), **nodes, "StringTransform:join": merging("joined")}


def iterating(concurrency: int) -> dict[str, Any]:
    """One node for each item of the query, which commas part."""
    over = {
        "items_ref": "StringTransform:split@result",
        "outputs": {"results": {"ref": "StringTransform:each@result", "type": "Array<string>"}},
        "max_concurrency": concurrency,
    }
    split = {"method": "split", "split_ref": "sys.query", "delimiters": [","]}
    return {
        "begin": node("Begin", {}, "StringTransform:split"),
        "StringTransform:split": node("StringTransform", split, "Iteration:all"),
        "Iteration:all": node("Iteration", over),
        "IterationItem:one": node("IterationItem", {}, "StringTransform:each", parent="Iteration:all"),
        "StringTransform:each": merging("{item}", parent="Iteration:all"),
    }
