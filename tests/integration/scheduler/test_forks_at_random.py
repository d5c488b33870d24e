"""A fork of any activation of a random canvas ends as a whole run with the same change would have ended."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import bindparam, select

from canvas.document import references
from canvas.events.run_events import MESSAGE_RESET
from canvas.outcome import Failed, Outcome, WaitingForInput
from canvas.state.run_state import scope_text
from components import registry
from components.base import Component, Params
from scheduler.lifecycle import run_copies
from scheduler.lifecycle.run_copies import ForkOptions
from store.primitives.ids import new_id
from store.tables.runs import node_values
from tests.builders import NodeAttempt
from tests.canvases_at_random import CanvasCase, random_case
from tests.integration.engine import Bench, Run, secrets_of
from tests.integration.worker.test_output_cache import KINDS, create_version, items_of
from worker.context.node_context import WorkerContext

VALUES = select(node_values.c.activation_id, node_values.c.node_id, node_values.c.outputs).where(
    node_values.c.run_id == bindparam("run_id")
)
CANVASES = 6
FORKS = 4

Place = tuple[str, str, int]
"""Node, scope and ordinal of an activation."""


class Story:
    """Components that follow a story. What an activation returns depends on what it reads and on its change."""

    def __init__(self, bench: Bench, case: CanvasCase, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench = bench
        self.case = case
        self.changed: set[Place] = set()
        self.executed = Counter[Place]()
        monkeypatch.setattr(registry, "COMPONENTS", {name: Component(name, Params, self.act) for name in KINDS})

    async def act(self, params: Params, ctx: WorkerContext) -> Outcome:
        claim = ctx.claim
        place = (ctx.node_id, scope_text(claim.scope), claim.ordinal)
        self.executed[place] += 1
        count = items_of(self.bench, claim.run_id, claim.scope) if ctx.node.kind.is_item else None
        at = NodeAttempt(ctx.compiled.canvas, ctx.node_id, claim.scope, claim.ordinal, claim.attempt, False, count)
        outcome = self.case.script(at)
        found = references.find(str(ctx.params.get("script") or ""))
        read = [ctx.lookup(each.expression) for each in found if each.ref.node and _waits_for(ctx, each.ref.node)]
        outputs = {"result": _digest([*place, place in self.changed, *read]), "content": ctx.node_id}
        return outcome if isinstance(outcome, Failed | WaitingForInput) else replace(outcome, outputs=outputs)


def _waits_for(ctx: WorkerContext, read: str) -> bool:
    """Whether a node runs after another one in any order of messages, so that it always reads the same."""
    canvas = ctx.compiled.canvas
    reader, writer = canvas.node(ctx.node_id), canvas.node(read)
    around: dict[int | None, int] = {reader.parent: reader.number}
    around |= {canvas.nodes[each].parent: each for each in canvas.containers_of(reader.number)}
    outermost = [writer.number, *canvas.containers_of(writer.number)]
    pair = next(
        ((each, around[canvas.nodes[each].parent]) for each in outermost if canvas.nodes[each].parent in around), None
    )
    return pair is not None and pair[0] != pair[1] and bool(canvas.reachability.above[pair[1]] >> pair[0] & 1)


def _digest(value: Any) -> str:
    return f"{hash(repr(value)) & 0xFFFFFFFF:08x}"


def play(bench: Bench, run: Run, rng: random.Random) -> None:
    """Process all messages of the run, in random order."""
    while bench.outbox.sent:
        rng.shuffle(bench.outbox.sent)
        left = len(bench.outbox.sent)
        bench.play(until=lambda left=left: len(bench.outbox.sent) != left)


def outputs_by_place(bench: Bench, run: Run) -> dict[Place, Any]:
    rows = {row.id: (row.node_id, row.scope, row.ordinal) for row in run.activations if row.status == "done"}
    with bench.database.transaction() as tx:
        stored = tx.rows(VALUES, run_id=run.id)
    return {
        (rows[row.activation_id], row.node_id): row.outputs.get("result") for row in stored if row.activation_id in rows
    }


@pytest.mark.parametrize("seed", range(4))
def test_fork_ends_as_a_whole_run_with_the_change(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int):  # T084
    rng = random.Random(seed)
    taken = executed = 0
    for _ in range(CANVASES):
        case = random_case(rng, forms=False)
        story = Story(bench, case, monkeypatch)
        drawn = create_version(bench, case, rng)
        source = bench.start("", drawn=drawn)
        play(bench, source, rng)
        places = {row.id: (row.node_id, row.scope, row.ordinal) for row in source.activations if row.attempt}
        for chosen in rng.sample(sorted(places), min(FORKS, len(places))):
            story.changed = {places[chosen]}
            whole = bench.start("", drawn=drawn)
            story.executed.clear()
            play(bench, whole, rng)
            of_whole = dict(story.executed)
            story.executed.clear()
            copy = _fork(bench, source, chosen, rng)

            assert copy.status == whole.status, (case, places[chosen])
            assert outputs_by_place(bench, copy) == outputs_by_place(bench, whole), (case, places[chosen])
            assert _lasting(copy) == _lasting(whole), (case, places[chosen])
            assert dict(story.executed).items() <= of_whole.items()
            executed += len(story.executed)
            taken += len([row for row in copy.activations if row.worker is None and row.outcome is not None])
            story.changed = set()
    assert taken > executed / 4


def _lasting(run: Run) -> Counter[str]:
    """Count the events of a run by name, without those of texts that failed attempts have begun."""
    return Counter(name for name in run.event_names if name != MESSAGE_RESET)


def _fork(bench: Bench, source: Run, chosen: UUID, rng: random.Random) -> Run:
    with bench.database.transaction() as tx:
        planned = run_copies.plan_fork(
            tx,
            bench.coordinator.versions,
            bench.tenant_id,
            source.id,
            ForkOptions(places=[chosen.hex]),
            new_id(),
            secrets_of,
        )
    copy = bench.start_run(planned.start)
    play(bench, copy, rng)
    return copy
