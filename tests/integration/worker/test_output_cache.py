"""Cached outputs of other nodes equal those in the database, for random canvases."""

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
from tests.builders import NodeAttempt
from tests.canvases_at_random import CanvasCase, random_case
from tests.integration.engine import Bench, Run, execute_with_continuations
from worker.caches.outputs import OutputCache
from worker.context.node_context import WorkerContext
from worker.worker import Worker

pytestmark = pytest.mark.usefixtures("local_continuation")

CANVASES = 5
GET_VISIBLE = OutputCache.get_visible
KINDS = (
    "begin", "act", "message", "llm", "switch", "iteration", "iterationitem", "loop", "loopitem", "exitloop",
)  # fmt: skip


@dataclass
class CacheComparison:
    """Replaces the lookup in the output cache, and compares each result with the database."""

    bench: Bench
    hits: int = 0
    misses: int = 0

    def get_visible(self, cache: OutputCache, view: ReadView, nodes: Iterable[str]) -> dict[str, StoredValue]:
        requested = set(nodes)
        found = GET_VISIBLE(cache, view, requested)
        with self.bench.database.transaction() as tx:
            stored = values.query_outputs(tx, view, requested)()
        assert found == {node: stored[node] for node in found}
        self.hits += len(found)
        self.misses += len(stored) - len(found)
        return found


@pytest.fixture
def comparison(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> CacheComparison:
    comparison = CacheComparison(bench)
    monkeypatch.setattr(OutputCache, "get_visible", lambda *args: comparison.get_visible(*args))
    return comparison


@pytest.mark.parametrize("seed", range(3))
def test_cached_outputs_are_those_of_the_database(
    bench: Bench, comparison: CacheComparison, monkeypatch: pytest.MonkeyPatch, seed: int
):
    rng = random.Random(seed)
    workers = bench.worker, bench.a_worker(inline_advance=False)

    for number in range(CANVASES):
        story = random_case(rng, forms=False, cycles=number % 2 == 1)
        monkeypatch.setattr(registry, "COMPONENTS", components_of(bench, story))
        run = play_in_random_order(bench, workers, create_version(bench, story, rng), rng)
        assert run.status in ("succeeded", "failed"), story

    assert comparison.hits > 5 * CANVASES
    assert comparison.misses > 0


def test_output_of_the_later_level_counts_although_the_other_ended_last(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    switch = Component("Switch", Params, route_back_once)
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

    play_nodes_in_order(bench, run, "begin", "first", "t", "node", "u", "after", "pick", "first", "u", "pick", "end")
    visits = {row.ordinal: row for row in run.activations if row.node_id == "node"}
    execute_with_continuations(bench.worker, run.id, visits[1].id)

    assert [(visits[ordinal].status, visits[ordinal].level) for ordinal in (0, 1)] == [("done", 6), ("ready", 4)]
    assert [(row.ordinal, row.status) for row in run.activations if row.node_id == "after"] == [
        (0, "done"),
        (1, "done"),
    ]
    assert run.outputs("after") == {"result": "visit 0"}


# -- helpers ---------------------------------------------------------------------------------------------------------
def create_version(bench: Bench, story: CanvasCase, rng: random.Random) -> tuple[UUID, UUID]:
    """Create a version of the canvas of a story, whose nodes refer to several other nodes."""
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


def components_of(bench: Bench, story: CanvasCase) -> dict[str, Component[Any]]:
    """Return components that follow a story, and whose outputs identify their activation."""

    async def act(params: Params, ctx: WorkerContext) -> Outcome:
        claim = ctx.claim
        count = items_of(bench, claim.run_id, claim.scope) if ctx.node.kind.is_item else None
        at = NodeAttempt(ctx.compiled.canvas, ctx.node_id, claim.scope, claim.ordinal, claim.attempt, False, count)
        outcome = story.script(at)
        outputs = {"result": [ctx.node_id, scope_text(claim.scope), claim.ordinal], "content": ctx.node_id}
        return outcome if isinstance(outcome, Failed | WaitingForInput) else replace(outcome, outputs=outputs)

    return {name: Component(name, Params, act) for name in KINDS}


def items_of(bench: Bench, run_id: UUID, scope: ScopeKey) -> int | None:
    """Return the number of items of the enclosing container."""
    (container, ordinal, _), outer = scope[-1], scope[:-1]
    query = select(rows.c.outcome).where(
        rows.c.run_id == run_id,
        rows.c.node_id == container,
        rows.c.ordinal == ordinal,
        rows.c.scope == scope_text(outer),
    )
    with bench.database.transaction() as tx:
        return tx.scalar(query).get("count")


def play_in_random_order(
    bench: Bench, workers: tuple[Worker, Worker], version: tuple[UUID, UUID], rng: random.Random
) -> Run:
    """Process the messages in random order, on a worker with local continuation and on one without inline advance."""
    continuing, other = workers
    run = bench.start(drawn=version)
    while bench.outbox.sent:
        message = bench.outbox.sent.pop(rng.randrange(len(bench.outbox.sent)))
        ids = [UUID(each) for each in message.args]
        if message.task == ADVANCE:
            bench.coordinator.advance_run(ids[0])
        elif rng.random() < 0.3:
            other.execute(*ids)
        else:
            execute_with_continuations(continuing, *ids)
    return run


async def route_back_once(params: Params, ctx: WorkerContext) -> Outcome:
    return Routed(to=("end" if ctx.claim.ordinal else "first",))


def play_nodes_in_order(bench: Bench, run: Run, *names: str) -> None:
    """For each name in turn, execute the ready activations of nodes whose ids begin with it, until there are none."""
    for name in names:
        while ready := [row for row in run.activations if row.status == "ready" and row.node_id.startswith(name)]:
            bench.worker.execute(run.id, ready[0].id)
