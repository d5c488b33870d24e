"""Runs whose order keys grow long: each step to a target that is not the first of its node adds eight bytes."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from canvas.outcome import Finished, Outcome, Routed
from components import registry
from components.base import Component, Params
from components.context import NodeContext
from scheduler.coordinator.stopping import RunStopper
from tests.integration.engine import Bench

LONGEST_KEY = text("select max(octet_length(order_key)) from activations where run_id = :run_id")
INDEXABLE = 2704  # bytes of an index row
NODES_PER_ROUND = 8  # nodes of a round, each with a side branch
ROUNDS = 120  # a thousand, which are allowed, take 16,000 steps and minutes


REFUSE = text("""
    create function refuse() returns trigger language plpgsql as $$ begin
        raise exception 'index row size exceeds the maximum' using errcode = '54000';
    end $$
""")
REFUSE_OUTPUTS = text("""
    create trigger refuse before insert on node_values for each row
    when (new.node_id = 'work') execute function refuse()
""")
DROP_REFUSAL = text("drop trigger refuse on node_values"), text("drop function refuse")


@pytest.fixture
def refusing_bench(bench: Bench) -> Iterator[Bench]:
    """A database that refuses every row of values of the node `work`."""
    with bench.database.transaction() as tx:
        tx.execute(REFUSE)
        tx.execute(REFUSE_OUTPUTS)
    yield bench
    with bench.database.transaction() as tx:
        for statement in DROP_REFUSAL:
            tx.execute(statement)


def test_run_of_a_node_whose_failure_cannot_be_stored_either_fails_at_once(refusing_bench: Bench):
    run = refusing_bench.start("begin -> work -> say; begin -> aside -> later", say={"content": ["{work@result}"]})

    refusing_bench.play()

    assert run.status == "failed"
    assert run.row["error"] == 'Node "work": neither its outputs nor a failure can be stored.'
    assert run.activation("work").attempt == 1
    assert run.event_names[-1] == "run_failed"
    assert {row.status for row in run.activations} <= {"done", "closed"}


def test_run_whose_failure_cannot_be_stored_fails_after_an_outage(
    refusing_bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    run = refusing_bench.start("begin -> work")
    fail_by_force = RunStopper.fail_by_force

    def fail_during_an_outage(*args: Any) -> bool:
        monkeypatch.undo()
        raise OperationalError("select", {}, Exception("connection refused"), connection_invalidated=True)

    monkeypatch.setattr(RunStopper, "fail_by_force", fail_during_an_outage)
    refusing_bench.play()

    assert RunStopper.fail_by_force is fail_by_force, "the outage was met"
    assert (run.status, run.activation("work").attempt) == ("failed", 1)


def test_run_continues_if_the_attempt_that_cannot_be_stored_has_lost_its_lease(refusing_bench: Bench):
    run = refusing_bench.start("begin -> work")
    refusing_bench.play(until=lambda: "work" in run.statuses)
    claimed = refusing_bench.claim(run, "work")
    lost = replace(claimed, lease_id=uuid4())

    is_ended = refusing_bench.coordinator.stopper.fail_by_force(lost, "no reason", RuntimeError("refused"))

    assert not is_ended
    assert run.status == "running"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_chain_of_two_thousand_nodes_with_side_branches_succeeds(bench: Bench):
    length = 999
    bench.does(**{f"n{number}": add_one_to(f"n{number - 1}") for number in range(1, length)})
    edges = [f"n{number} -> s{number}, n{number + 1}" for number in range(length - 1)]
    references = {f"n{number}": {"script": f"{{n{number - 1}@result}}"} for number in range(1, length)}

    run = bench.start("begin -> n0", *edges, f"n{length - 1} -> say", **references)
    bench.play()

    assert run.status == "succeeded", run.row["error"]
    assert longest_key(bench, run.id) > 2 * INDEXABLE
    assert run.outputs(f"n{length - 1}") == {"result": length - 1}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_cycle_with_side_branches_runs_for_many_rounds(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    set_cycle_nodes(bench, monkeypatch, ROUNDS)

    run = bench.start(*cycle_parts(), **references())
    bench.play()

    assert run.status == "succeeded", run.row["error"]
    assert longest_key(bench, run.id) > 2 * INDEXABLE
    assert run.outputs("n0") == {"result": ROUNDS - 1}
    assert run.outputs(f"n{NODES_PER_ROUND - 1}") == {"result": ROUNDS + NODES_PER_ROUND - 2}


def set_cycle_nodes(bench: Bench, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Set nodes that count, and a Switch that leads back to the first node until the last round."""

    async def switch(params: Params, ctx: NodeContext) -> Outcome:
        return Routed(("n0",) if ctx.visit + 1 < rounds else ("say",))

    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, "switch": Component("Switch", Params, switch)})
    bench.does(
        n0=lambda ctx: Finished(outputs={"result": ctx.visit}),
        **{f"n{number}": add_one_to(f"n{number - 1}") for number in range(1, NODES_PER_ROUND)},
    )


def cycle_parts() -> list[str]:
    row = [f"n{number} -> s{number}, n{number + 1}" for number in range(NODES_PER_ROUND - 1)]
    return ["begin -> n0", *row, f"n{NODES_PER_ROUND - 1} -> s{NODES_PER_ROUND - 1}, pick", "pick -> n0, say"]


def references() -> dict[str, Any]:
    return {f"n{number}": {"script": f"{{n{number - 1}@result}}"} for number in range(1, NODES_PER_ROUND)}


def add_one_to(node: str) -> Any:
    return partial(one_more, node)


def one_more(node: str, ctx: NodeContext) -> Outcome:
    """Return the number that another node has output, plus one."""
    value = ctx.lookup(f"{node}@result")
    return Finished(outputs={"result": (value if isinstance(value, int) else 0) + 1})


def longest_key(bench: Bench, run_id: UUID) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(LONGEST_KEY, run_id=run_id)
