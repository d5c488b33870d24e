"""What is at hand of other nodes' outputs is what the statement would give, whatever the canvas."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import select

from canvas.outcome import Failed, Finished, Outcome, Routed, WaitingForInput
from canvas.state.run_state import ScopeKey, scope_text
from components import registry
from components.base import Component, Params
from scheduler.messaging.celery_app import ADVANCE
from store.agents import canvases, versions
from store.primitives.ids import new_id
from store.runs import values
from store.runs.values import ReadView, StoredValue
from store.tables.runs import activations as rows
from tests.builders import At
from tests.canvases_at_random import Story, story_at_random
from tests.integration.engine import Bench, Run, carried_out
from worker.caches.outputs import OutputCache
from worker.context.node_context import WorkerContext
from worker.worker import Worker

CANVASES = 5
KNOWN = OutputCache.get_visible
KINDS = (
    "begin", "act", "message", "llm", "switch", "iteration", "iterationitem", "loop", "loopitem", "exitloop",
)  # fmt: skip


@dataclass
class Compared:
    """Stands where a reader looks at what is at hand, and holds all of it against the database."""

    bench: Bench
    hits: int = 0
    misses: int = 0

    def known(self, cache: OutputCache, view: ReadView, nodes: Iterable[str]) -> dict[str, StoredValue]:
        asked = set(nodes)
        found = KNOWN(cache, view, asked)
        with self.bench.database.transaction() as tx:
            stored = values.query_outputs(tx, view, asked)()
        assert found == {node: stored[node] for node in found}
        self.hits += len(found)
        self.misses += len(stored) - len(found)
        return found


@pytest.fixture
def compared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Compared:
    compared = Compared(bench)
    monkeypatch.setattr(OutputCache, "get_visible", lambda *given: compared.known(*given))
    return compared


@pytest.mark.parametrize("seed", range(3))
def test_cached_outputs_are_those_of_the_database(
    bench: Bench, compared: Compared, monkeypatch: pytest.MonkeyPatch, seed: int
):
    rng = random.Random(seed)
    workers = bench.worker, bench.a_worker(inline_advance=False)

    for number in range(CANVASES):
        story = story_at_random(rng, forms=False, circles=number % 2 == 1)
        monkeypatch.setattr(registry, "COMPONENTS", played_by(bench, story))
        run = played_in_any_order(bench, workers, drawn(bench, story, rng), rng)
        assert run.status in ("succeeded", "failed"), story

    assert compared.hits > 5 * CANVASES
    assert compared.misses > 0


def test_output_of_the_later_level_counts_although_the_other_ended_last(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    switch = Component("Switch", Params, leads_back_once)
    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, "switch": switch})
    bench.does(
        node=lambda ctx: Finished(outputs={"result": f"visit {ctx.visit}"}),
        after=lambda ctx: Finished(outputs={"result": ctx.lookup("node@result")}),
    )
    run = bench.start(
        "begin -> first -> node -> after; begin -> t0 -> t1 -> t2 -> t3 -> t4 -> node",
        "first -> u0 -> u1 -> u2 -> u3 -> u4 -> u5 -> after; first -> pick; pick -> first, end",
        after={"script": "{node@result}"},
    )

    played_as_told(bench, run, "begin", "first", "t", "node", "u", "after", "pick", "first", "u", "pick", "end")
    visits = {row.ordinal: row for row in run.activations if row.node_id == "node"}
    carried_out(bench.worker, run.id, visits[1].id)

    assert [(visits[ordinal].status, visits[ordinal].wave) for ordinal in (0, 1)] == [("done", 6), ("ready", 4)]
    assert [(row.ordinal, row.status) for row in run.activations if row.node_id == "after"] == [
        (0, "done"),
        (1, "done"),
    ]
    assert run.outputs("after") == {"result": "visit 0"}


# -- in other words --------------------------------------------------------------------------------------------------
def drawn(bench: Bench, story: Story, rng: random.Random) -> tuple[UUID, UUID]:
    """A version of a story's canvas, whose nodes refer to many others."""
    canvas = story.canvas
    names = {node.id: "Act" if node.component == "StringTransform" else node.component for node in canvas.nodes}
    components: dict[str, Any] = {}
    for node in canvas.nodes:
        others = rng.sample(list(names), rng.randint(1, min(4, len(names))))
        params = {**node.params, "script": " ".join(f"{{{other}@result}}" for other in others)}
        downstream = [canvas.nodes[number].id for number in node.downstream]
        components[node.id] = {
            "obj": {"component_name": names[node.id], "params": params},
            "downstream": downstream,
            "upstream": [other.id for other in canvas.nodes if node.number in other.downstream],
            **({"parent_id": canvas.nodes[node.parent].id} if node.parent is not None else {}),
        }
    with bench.database.transaction() as tx:
        canvas_id = canvases.create(tx, bench.tenant_id, f"canvas {new_id()}", {"components": components})
        return canvas_id, versions.lock_draft_version(tx, bench.tenant_id, canvas_id).id


def played_by(bench: Bench, story: Story) -> dict[str, Component[Any]]:
    """Components that do what a story says, and leave who they were."""

    async def act(params: Params, ctx: WorkerContext) -> Outcome:
        claim = ctx.claim
        count = items_of(bench, claim.run_id, claim.scope) if ctx.node.kind.is_item else None
        at = At(ctx.compiled.canvas, ctx.node_id, claim.scope, claim.ordinal, claim.attempt, False, count)
        outcome = story.script(at)
        left = {"result": [ctx.node_id, scope_text(claim.scope), claim.ordinal], "content": ctx.node_id}
        return outcome if isinstance(outcome, Failed | WaitingForInput) else replace(outcome, outputs=left)

    return {name: Component(name, Params, act) for name in KINDS}


def items_of(bench: Bench, run_id: UUID, scope: ScopeKey) -> int | None:
    """How many items the container around has been opened for."""
    (container, ordinal, _), around = scope[-1], scope[:-1]
    wanted = select(rows.c.outcome).where(
        rows.c.run_id == run_id,
        rows.c.node_id == container,
        rows.c.ordinal == ordinal,
        rows.c.scope == scope_text(around),
    )
    with bench.database.transaction() as tx:
        return tx.scalar(wanted).get("count")


def played_in_any_order(
    bench: Bench, workers: tuple[Worker, Worker], version: tuple[UUID, UUID], rng: random.Random
) -> Run:
    """Carry out what was sent in any order, by a worker that goes on and by one that leaves its steps to others."""
    goes_on, leaves = workers
    run = bench.start(drawn=version)
    while bench.outbox.sent:
        message = bench.outbox.sent.pop(rng.randrange(len(bench.outbox.sent)))
        ids = [UUID(each) for each in message.args]
        if message.task == ADVANCE:
            bench.coordinator.advance_run(ids[0])
        elif rng.random() < 0.3:
            leaves.execute(*ids)
        else:
            carried_out(goes_on, *ids)
    return run


async def leads_back_once(params: Params, ctx: WorkerContext) -> Outcome:
    return Routed(to=("end" if ctx.claim.ordinal else "first",))


def played_as_told(bench: Bench, run: Run, *names: str) -> None:
    """Carry out what is ready of the nodes that a name begins the names of, one after the other, each as often."""
    for name in names:
        while found := [row for row in run.activations if row.status == "ready" and row.node_id.startswith(name)]:
            bench.worker.execute(run.id, found[0].id)
