"""Runs whose order keys grow long: each step to a target that is not the first of its node adds eight bytes."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from canvas.outcome import Finished, Outcome, Routed
from components import registry
from components.base import Component, Params
from components.context import NodeContext
from tests.integration.engine import Bench

LONGEST_KEY = text("select max(octet_length(place)) from activations where run_id = :run_id")
INDEXABLE = 2704  # bytes of an index row
ASIDE = 8  # nodes of a round with a side branch before the way on
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
LET_PASS = text("drop trigger refuse on node_values"), text("drop function refuse")


@pytest.fixture
def refusing(bench: Bench) -> Iterator[Bench]:
    """No row of values of the node `work` can be stored, whatever is in it."""
    with bench.database.transaction() as tx:
        tx.execute(REFUSE)
        tx.execute(REFUSE_OUTPUTS)
    yield bench
    with bench.database.transaction() as tx:
        for statement in LET_PASS:
            tx.execute(statement)


def test_run_of_a_node_whose_failure_cannot_be_stored_either_fails_at_once(refusing: Bench):
    run = refusing.start("begin -> work -> say; begin -> aside -> later", say={"content": ["{work@result}"]})

    refusing.play()

    assert run.status == "failed"
    assert run.row["error"] == 'Node "work": neither its outputs nor a failure can be stored.'
    assert run.activation("work").attempt == 1
    assert run.told[-1] == "run_failed"
    assert {row.status for row in run.activations} <= {"done", "closed"}


def test_run_goes_on_if_the_attempt_that_cannot_be_stored_has_lost_its_lease(refusing: Bench):
    run = refusing.start("begin -> work")
    refusing.play(until=lambda: "work" in run.statuses)
    claimed = refusing.claim(run, "work")
    lost = replace(claimed, lease_id=uuid4())

    is_ended = refusing.coordinator.stopper.fail_by_force(lost, "no reason", RuntimeError("refused"))

    assert not is_ended
    assert run.status == "running"


@pytest.mark.timeout(900)
def test_row_of_two_thousand_nodes_with_a_side_branch_each_runs_to_its_end(bench: Bench):
    length = 999
    bench.does(**{f"n{number}": reading(f"n{number - 1}") for number in range(1, length)})
    drawn = [f"n{number} -> s{number}, n{number + 1}" for number in range(length - 1)]
    references = {f"n{number}": {"script": f"{{n{number - 1}@result}}"} for number in range(1, length)}

    run = bench.start("begin -> n0", *drawn, f"n{length - 1} -> say", **references)
    bench.play()

    assert run.status == "succeeded", run.row["error"]
    assert longest_key(bench, run.id) > 2 * INDEXABLE
    assert run.outputs(f"n{length - 1}") == {"result": length - 1}


@pytest.mark.timeout(900)
def test_circle_with_side_branches_runs_for_hundreds_of_rounds(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    circle(bench, monkeypatch, ROUNDS)

    run = bench.start(*circle_parts(), **references())
    bench.play()

    assert run.status == "succeeded", run.row["error"]
    assert longest_key(bench, run.id) > 2 * INDEXABLE
    assert run.outputs("n0") == {"result": ROUNDS - 1}
    assert run.outputs(f"n{ASIDE - 1}") == {"result": ROUNDS + ASIDE - 2}


def circle(bench: Bench, monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Nodes that count what they find, and a Switch that leads back until the last round."""

    async def switch(params: Params, ctx: NodeContext) -> Outcome:
        return Routed(("n0",) if ctx.visit + 1 < rounds else ("say",))

    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, "switch": Component("Switch", Params, switch)})
    bench.does(
        n0=lambda ctx: Finished(outputs={"result": ctx.visit}),
        **{f"n{number}": reading(f"n{number - 1}") for number in range(1, ASIDE)},
    )


def circle_parts() -> list[str]:
    row = [f"n{number} -> s{number}, n{number + 1}" for number in range(ASIDE - 1)]
    return ["begin -> n0", *row, f"n{ASIDE - 1} -> s{ASIDE - 1}, pick", "pick -> n0, say"]


def references() -> dict[str, Any]:
    return {f"n{number}": {"script": f"{{n{number - 1}@result}}"} for number in range(1, ASIDE)}


def reading(node: str) -> Any:
    return partial(one_more, node)


def one_more(node: str, ctx: NodeContext) -> Outcome:
    """The number that another node has left, and one."""
    found = ctx.lookup(f"{node}@result")
    return Finished(outputs={"result": (found if isinstance(found, int) else 0) + 1})


def longest_key(bench: Bench, run_id: UUID) -> int:
    with bench.database.transaction() as tx:
        return tx.scalar(LONGEST_KEY, run_id=run_id)
