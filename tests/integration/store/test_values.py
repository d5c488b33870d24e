"""What a node may read: earlier waves, its own region and those around it, and always the same on every attempt."""

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from canvas.outcome import Finished
from components.context import NodeContext
from scheduler.messaging.celery_app import EXECUTE
from store.monitoring import sweep_queries
from store.runs import values
from store.runs.values import ReadView
from tests.builders import reads
from tests.integration.engine import Bench, Run, Work, values_of

COUNTS = {"count": 0}
NOTES = {"script": "{env.count}"}  # params that refer to the variable, so that it is at hand


@pytest.fixture
def noted() -> dict[str, list[Any]]:
    """What nodes have read, by node."""
    return {}


def test_node_reads_outputs_of_earlier_nodes(bench: Bench, noted: dict[str, list[Any]]):
    bench.does(one=leaves(result=["a", {"b": 1}]), two=notes(noted, "one@result.1.b"))

    bench.start("begin -> one -> two", two={"script": "{one@result.1.b}"})
    bench.play()

    assert noted == {"two": [1]}


def test_node_reads_no_outputs_of_its_own_level(bench: Bench, noted: dict[str, list[Any]]):
    bench.does(one=assigns(1), two=notes(noted, "env.count"), three=notes(noted, "env.count"))

    bench.start("begin -> one, two -> three", variables=COUNTS, two=NOTES, three=NOTES)
    bench.play()

    assert noted == {"two": [0], "three": [1]}


def test_node_reads_no_outputs_of_later_levels_of_another_branch(bench: Bench, noted: dict[str, list[Any]]):
    bench.does(far=assigns(1), late=notes(noted, "env.count"))
    run = bench.start("begin -> slow, quick; slow -> late; quick -> next -> far", variables=COUNTS, late=NOTES)

    last_of_all(bench, run, "slow")
    bench.play()

    assert run.status == "succeeded"
    assert noted == {"late": [0]}


@pytest.mark.parametrize("seed", range(3))
def test_of_several_writers_the_last_in_canonical_order_counts(bench: Bench, noted: dict[str, list[Any]], seed: int):
    bench.does(one=assigns(1), two=assigns(2), three=assigns(3), after=notes(noted, "env.count"))
    run = bench.start("begin -> one, two, three -> after", variables=COUNTS, after=NOTES)

    played_in_any_order(bench, seed)

    assert run.status == "succeeded"
    assert noted == {"after": [3]}


def test_a_retry_reads_what_the_first_attempt_read(bench: Bench, noted: dict[str, list[Any]]):
    bench.does(quick=assigns(1), slow=notes(noted, "env.count"))
    run = bench.start("begin -> before -> slow; begin -> quick -> next", variables=COUNTS, slow=NOTES)
    bench.play(until=lambda: "slow" in run.statuses)
    claimed = bench.claim(run, "slow", lease=timedelta(0))
    first = seen(bench, claimed.run_id, ReadView(run.id, claimed.order_key, claimed.limits))
    bench.play()
    with bench.database.transaction() as tx:
        sweep_queries.expire_leases(tx)
    bench.coordinator.advance_run(run.id)

    again = bench.claim(run, "slow")

    assert again.attempt == 2
    assert again.limits == claimed.limits
    assert seen(bench, run.id, ReadView(run.id, again.order_key, again.limits)) == first


def test_outputs_that_no_advance_has_applied_are_not_read(bench: Bench, noted: dict[str, list[Any]]):
    run = bench.start("begin -> one, two -> three", variables=COUNTS, three=NOTES)
    bench.play(until=lambda: "one" in run.statuses)
    one = bench.claim(run, "one")
    everything = ReadView(run.id, one.order_key.child(0).child(0), [(b"", 10**6)])

    bench.report(one, values=[values_of(one, {"result": 1})])
    before = values_seen(bench, everything)
    bench.coordinator.advance_run(run.id)

    assert before == {}
    assert values_seen(bench, everything) == {"one": {"result": 1}}


def test_each_iteration_of_a_loop_reads_the_outputs_of_the_one_before(bench: Bench, noted: dict[str, list[Any]]):
    bench.does(add=adds(1), after=notes(noted, "env.count"))

    bench.start(
        "begin -> loop -> after",
        "loop: visit -> add",
        variables=COUNTS,
        loop={"maximum_loop_count": 3, "logical_operator": "or"},
        add=NOTES,
        after=NOTES,
    )
    bench.play()

    assert noted == {"after": [3]}


@pytest.mark.parametrize("seed", range(3))
def test_items_side_by_side_have_their_own_values_and_results_stay_in_order(bench: Bench, seed: int):
    bench.does(list=leaves(result=[10, 20, 30, 40, 50]), add=adds_item)
    run = bench.start(
        "begin -> list -> each -> after",
        "each: item -> add -> double",
        variables=COUNTS,
        each={
            "items_ref": "list@result",
            "max_concurrency": 3,
            "outputs": {"sums": {"ref": "add@result"}, "twice": {"ref": "double@result"}},
        },
        add={"script": "{item@item} {env.count}"},
        double={"script": "{add@result} {env.count}"},
    )
    bench.does(double=lambda ctx: Finished(outputs={"result": [ctx.lookup("add@result"), ctx.lookup("env.count")]}))

    played_in_any_order(bench, seed)

    assert run.status == "succeeded"
    assert run.outputs("each")["sums"] == [10, 20, 30, 40, 50]
    assert run.outputs("each")["twice"] == [[n, n] for n in (10, 20, 30, 40, 50)]
    with bench.database.transaction() as tx:
        assert "env.count" not in values.load_final(tx, run.id).variables


def test_only_so_many_items_run_side_by_side(bench: Bench):
    bench.does(list=leaves(result=list(range(9))))
    run = bench.start(
        "begin -> list -> each -> after",
        "each: item -> add",
        each={"items_ref": "list@result", "max_concurrency": 4, "outputs": {"all": {"ref": "add@result"}}},
    )
    widest = 0

    while run.status != "succeeded":
        alive = [row for row in run.activations if row.region and row.status in ("ready", "running")]
        widest = max(widest, len(alive))
        bench.play(until=count_down(1))

    assert widest == 4
    assert run.outputs("each")["all"] == ["add"] * 9


def test_an_iteration_without_concurrency_collects_in_item_order_too(bench: Bench):
    bench.does(
        list=leaves(result=["a", "b", "c"]), work=lambda ctx: Finished(outputs={"result": ctx.lookup("item@item") * 2})
    )
    run = bench.start(
        "begin -> list -> each -> after",
        "each: item -> work",
        each={"items_ref": "list@result", "outputs": {"all": {"ref": "work@result"}}},
        work={"script": "{item@item}"},
    )

    bench.play()

    assert run.outputs("each")["all"] == ["aa", "bb", "cc"]


def test_values_of_every_size_are_read_as_written(bench: Bench, noted: dict[str, list[Any]]):
    value = {"text": "ü" * 200_000, "big": 10**40, "deep": [[[[{"a": None}]]]], "float": 0.1, "empty": [{}, [], ""]}
    bench.does(one=leaves(result=value), two=notes(noted, "one@result"))

    bench.start("begin -> one -> two", two=reads("one"))
    bench.play()

    assert noted["two"] == [value]


# -- in other words --------------------------------------------------------------------------------------------------
def leaves(**outputs: Any) -> Work:
    return lambda ctx: Finished(outputs=outputs)


def assigns(count: int) -> Work:
    return lambda ctx: Finished(assign={"env.count": count})


def adds(more: int) -> Work:
    return lambda ctx: Finished(assign={"env.count": ctx.lookup("env.count") + more})


def adds_item(ctx: NodeContext) -> Finished:
    total = ctx.lookup("env.count") + ctx.lookup("item@item")
    return Finished(outputs={"result": total}, assign={"env.count": total})


def notes(noted: dict[str, list[Any]], expression: str) -> Work:
    def note(ctx: NodeContext) -> Finished:
        noted.setdefault(ctx.node_id, []).append(ctx.lookup(expression))
        return Finished()

    return note


def played_in_any_order(bench: Bench, seed: int) -> None:
    """Carry out messages in an order of chance."""
    rng = random.Random(seed)
    while bench.outbox.sent:
        rng.shuffle(bench.outbox.sent)
        bench.play(until=count_down(1))


def last_of_all(bench: Bench, run: Run, node: str) -> None:
    """Carry out everything but one node, which comes after."""
    bench.play(until=lambda: node in run.statuses)
    (kept,) = [m for m in bench.outbox.sent if m.task == EXECUTE and m.args[1] == str(run.activation(node).id)]
    bench.outbox.sent.remove(kept)
    bench.play()
    bench.outbox.sent.append(kept)


def count_down(steps: int) -> Any:
    """False so often, then true."""
    left = iter([False] * steps)
    return lambda: next(left, True)


def seen(bench: Bench, run_id: Any, view: ReadView) -> Any:
    with bench.database.transaction() as tx:
        outputs = values.query_outputs(tx, view, ["begin", "before", "quick"])
        variables = values.query_variables(tx, view, ["env.count"])
        return outputs(), variables()


def values_seen(bench: Bench, view: ReadView) -> Mapping[str, Any]:
    with bench.database.transaction() as tx:
        return {node: found.value for node, found in values.query_outputs(tx, view, ["one"])().items()}
