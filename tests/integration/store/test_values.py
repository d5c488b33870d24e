"""What a node reads: earlier levels, its own region and the enclosing ones, and the same on every attempt."""

import random
from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update

from canvas.outcome import Finished
from components.context import NodeContext
from scheduler.messaging.celery_app import EXECUTE
from store.monitoring import sweep_queries
from store.runs import values
from store.runs.values import ReadView
from store.tables.runs import INDEXED_KEY_BYTES, node_values
from tests.builders import reads
from tests.integration.engine import Bench, NodeFunction, Run, values_of

COUNTS = {"count": 0}
READS_COUNT = {"script": "{env.count}"}  # params that refer to the variable, so that it is loaded


@pytest.fixture
def recorded() -> dict[str, list[Any]]:
    """The values that nodes have read, by node."""
    return {}


def test_node_reads_outputs_of_earlier_nodes(bench: Bench, recorded: dict[str, list[Any]]):
    bench.does(one=returns(result=["a", {"b": 1}]), two=records(recorded, "one@result.1.b"))

    bench.start("begin -> one -> two", two={"script": "{one@result.1.b}"})
    bench.play()

    assert recorded == {"two": [1]}


def test_node_reads_no_outputs_of_its_own_level(bench: Bench, recorded: dict[str, list[Any]]):
    bench.does(one=assigns(1), two=records(recorded, "env.count"), three=records(recorded, "env.count"))

    bench.start("begin -> one, two -> three", variables=COUNTS, two=READS_COUNT, three=READS_COUNT)
    bench.play()

    assert recorded == {"two": [0], "three": [1]}


def test_node_reads_no_outputs_of_later_levels_of_another_branch(bench: Bench, recorded: dict[str, list[Any]]):
    bench.does(far=assigns(1), late=records(recorded, "env.count"))
    run = bench.start("begin -> slow, quick; slow -> late; quick -> next -> far", variables=COUNTS, late=READS_COUNT)

    delay_node(bench, run, "slow")
    bench.play()

    assert run.status == "succeeded"
    assert recorded == {"late": [0]}


@pytest.mark.parametrize("seed", range(3))
def test_value_of_the_last_writer_in_canonical_order_is_read(bench: Bench, recorded: dict[str, list[Any]], seed: int):
    bench.does(one=assigns(1), two=assigns(2), three=assigns(3), after=records(recorded, "env.count"))
    run = bench.start("begin -> one, two, three -> after", variables=COUNTS, after=READS_COUNT)

    play_in_random_order(bench, seed)

    assert run.status == "succeeded"
    assert recorded == {"after": [3]}


def test_a_retry_reads_what_the_first_attempt_read(bench: Bench, recorded: dict[str, list[Any]]):
    bench.does(quick=assigns(1), slow=records(recorded, "env.count"))
    run = bench.start("begin -> before -> slow; begin -> quick -> next", variables=COUNTS, slow=READS_COUNT)
    bench.play(until=lambda: "slow" in run.statuses)
    claimed = bench.claim(run, "slow", lease=timedelta(0))
    first = read_values(bench, claimed.run_id, ReadView(run.id, claimed.order_key, claimed.limits))
    bench.play()
    with bench.database.transaction() as tx:
        sweep_queries.expire_leases(tx)
    bench.coordinator.advance_run(run.id)

    again = bench.claim(run, "slow")

    assert again.attempt == 2
    assert again.limits == claimed.limits
    assert read_values(bench, run.id, ReadView(run.id, again.order_key, again.limits)) == first


def test_outputs_that_no_advance_has_applied_are_not_read(bench: Bench, recorded: dict[str, list[Any]]):
    run = bench.start("begin -> one, two -> three", variables=COUNTS, three=READS_COUNT)
    bench.play(until=lambda: "one" in run.statuses)
    one = bench.claim(run, "one")
    everything = ReadView(run.id, one.order_key.child(0).child(0), [(b"", 10**6)])

    bench.report(one, values=[values_of(one, {"result": 1})])
    before = read_outputs(bench, everything)
    bench.coordinator.advance_run(run.id)

    assert before == {}
    assert read_outputs(bench, everything) == {"one": {"result": 1}}


def test_awaited_outputs_are_read_only_if_applied_by_the_revision_and_in_a_visible_region(bench: Bench):
    run = bench.start("begin -> one, two -> three")
    bench.play(until=lambda: "one" in run.statuses)
    one = bench.claim(run, "one")

    def read(region: bytes, revision: int) -> list[str]:
        view = ReadView(run.id, one.order_key, [(region, revision)])
        with bench.database.transaction() as tx:
            return list(values.query_awaited_outputs(tx, view, {"one": None})())

    bench.report(one, values=[values_of(one, {"result": 1})])
    before = read(b"", 10**6)
    bench.coordinator.advance_run(run.id)
    applied = run.activation("one").applied_rev

    assert before == []
    assert (read(b"", applied), read(b"", applied - 1), read(b"item", applied)) == (["one"], [], [])


def test_outputs_are_read_if_their_order_key_differs_only_beyond_its_indexed_part(bench: Bench):
    run = bench.start("begin -> one -> two")
    bench.play()
    written, applied = b"x" * 2 * INDEXED_KEY_BYTES, run.activation("one").applied_rev
    of_one = (node_values.c.run_id == run.id, node_values.c.node_id == "one")
    with bench.database.transaction() as tx:
        tx.execute(update(node_values).where(*of_one).values(order_key=written))

    def read(order_key: bytes) -> list[str]:
        with bench.database.transaction() as tx:
            view: Any = SimpleNamespace(
                run_id=run.id, order_key=SimpleNamespace(level_key=order_key), limits=[(b"", applied)]
            )
            return list(values.query_outputs(tx, view, ["one"])())

    assert (read(written + b"y"), read(written), read(written[:-1])) == (["one"], ["one"], [])


def test_each_iteration_of_a_loop_reads_the_outputs_of_the_one_before(bench: Bench, recorded: dict[str, list[Any]]):
    bench.does(add=adds(1), after=records(recorded, "env.count"))

    bench.start(
        "begin -> loop -> after",
        "loop: visit -> add",
        variables=COUNTS,
        loop={"maximum_loop_count": 3, "logical_operator": "or"},
        add=READS_COUNT,
        after=READS_COUNT,
    )
    bench.play()

    assert recorded == {"after": [3]}


@pytest.mark.parametrize("seed", range(3))
def test_concurrent_items_have_their_own_values_and_results_in_item_order(bench: Bench, seed: int):
    bench.does(list=returns(result=[10, 20, 30, 40, 50]), add=adds_item)
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

    play_in_random_order(bench, seed)

    assert run.status == "succeeded"
    assert run.outputs("each")["sums"] == [10, 20, 30, 40, 50]
    assert run.outputs("each")["twice"] == [[n, n] for n in (10, 20, 30, 40, 50)]
    with bench.database.transaction() as tx:
        assert "env.count" not in values.load_final(tx, run.id).variables


def test_no_more_than_max_concurrency_items_run_at_once(bench: Bench):
    bench.does(list=returns(result=list(range(9))))
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


def test_iteration_without_concurrency_collects_results_in_item_order(bench: Bench):
    bench.does(
        list=returns(result=["a", "b", "c"]), work=lambda ctx: Finished(outputs={"result": ctx.lookup("item@item") * 2})
    )
    run = bench.start(
        "begin -> list -> each -> after",
        "each: item -> work",
        each={"items_ref": "list@result", "outputs": {"all": {"ref": "work@result"}}},
        work={"script": "{item@item}"},
    )

    bench.play()

    assert run.outputs("each")["all"] == ["aa", "bb", "cc"]


def test_values_of_every_size_are_read_as_written(bench: Bench, recorded: dict[str, list[Any]]):
    value = {"text": "ü" * 200_000, "big": 10**40, "deep": [[[[{"a": None}]]]], "float": 0.1, "empty": [{}, [], ""]}
    bench.does(one=returns(result=value), two=records(recorded, "one@result"))

    bench.start("begin -> one -> two", two=reads("one"))
    bench.play()

    assert recorded["two"] == [value]


# -- helpers ---------------------------------------------------------------------------------------------------------
def returns(**outputs: Any) -> NodeFunction:
    return lambda ctx: Finished(outputs=outputs)


def assigns(count: int) -> NodeFunction:
    return lambda ctx: Finished(assign={"env.count": count})


def adds(more: int) -> NodeFunction:
    return lambda ctx: Finished(assign={"env.count": ctx.lookup("env.count") + more})


def adds_item(ctx: NodeContext) -> Finished:
    total = ctx.lookup("env.count") + ctx.lookup("item@item")
    return Finished(outputs={"result": total}, assign={"env.count": total})


def records(recorded: dict[str, list[Any]], expression: str) -> NodeFunction:
    def record(ctx: NodeContext) -> Finished:
        recorded.setdefault(ctx.node_id, []).append(ctx.lookup(expression))
        return Finished()

    return record


def play_in_random_order(bench: Bench, seed: int) -> None:
    """Carry out messages in a random order."""
    rng = random.Random(seed)
    while bench.outbox.sent:
        rng.shuffle(bench.outbox.sent)
        bench.play(until=count_down(1))


def delay_node(bench: Bench, run: Run, node: str) -> None:
    """Carry out all messages but that of one node, and put it back as the last."""
    bench.play(until=lambda: node in run.statuses)
    (delayed,) = [m for m in bench.outbox.sent if m.task == EXECUTE and m.args[1] == str(run.activation(node).id)]
    bench.outbox.sent.remove(delayed)
    bench.play()
    bench.outbox.sent.append(delayed)


def count_down(steps: int) -> Any:
    """Return a function that is false `steps` times and then true."""
    left = iter([False] * steps)
    return lambda: next(left, True)


def read_values(bench: Bench, run_id: Any, view: ReadView) -> Any:
    with bench.database.transaction() as tx:
        outputs = values.query_outputs(tx, view, ["begin", "before", "quick"])
        variables = values.query_variables(tx, view, ["env.count"])
        return outputs(), variables()


def read_outputs(bench: Bench, view: ReadView) -> Mapping[str, Any]:
    with bench.database.transaction() as tx:
        return {node: found.value for node, found in values.query_outputs(tx, view, ["one"])().items()}
