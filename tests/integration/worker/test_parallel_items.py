"""Parallel items on real rows: they run at the same time and give the events and values of sequential items."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from canvas.graph import parallel_items
from canvas.outcome import Finished
from components import registry
from components.context import NodeContext
from scheduler.views import run_view
from tests.builders import content
from tests.integration.engine import Bench, Run, at_work, until

EACH = {"items_ref": "list@result", "outputs": {"all": {"ref": "b@result"}}}
MAIN = ("begin -> list -> each -> say", "each: item -> a -> b")
PARAMS: Mapping[str, Any] = {
    "each": EACH,
    "a": {"script": "{item@item}"},
    "b": {"script": "{a@result}"},
    "say": content("{each@all}"),
}


@pytest.fixture(autouse=True)
def parallel_test_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test's nodes run in parallel items, three at the same time."""
    monkeypatch.setattr(parallel_items, "INDEPENDENT", parallel_items.INDEPENDENT | {"act"})
    monkeypatch.setattr(parallel_items, "WRITES_NOTHING", parallel_items.WRITES_NOTHING | {"act"})
    monkeypatch.setattr(parallel_items, "AT_ONCE", 3)


def set_node_functions(bench: Bench, count: int = 5, *, fails: int = -1) -> None:
    """Set a list of `count` items; node `a` fails in item `fails`."""

    async def a(ctx: NodeContext) -> Finished:
        if ctx.lookup("item@item") == fails:
            raise ValueError(f"bad {fails}")
        return Finished(outputs={"result": ctx.lookup("item@item") * 10})

    bench.does(
        list=lambda ctx: Finished(outputs={"result": list(range(count))}),
        a=a,
        b=lambda ctx: Finished(outputs={"result": ctx.lookup("a@result") + 1}),
    )


def play_items(bench: Bench, *, in_order: bool) -> Run:
    params = {**PARAMS, "each": {**EACH, "max_concurrency": 1}} if in_order else PARAMS
    run = bench.start(*MAIN, **params)
    bench.play()
    return run


def events_of(run: Run) -> list[tuple[str, str | None, Any]]:
    """Return the events of a run, with their outputs."""
    return [(event.name, event.node_id, without_times(event.outputs)) for event in run.events]


def final_outputs(bench: Bench, run: Run) -> dict[str, Any]:
    """Return the final outputs of all nodes."""
    with bench.database.transaction() as tx:
        outputs = run_view.outputs_of(tx, bench.coordinator.versions, run.row, registry.default_outputs)
    return {node: without_times(values) for node, values in outputs.items()}


def without_times(outputs: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return {name: value for name, value in (outputs or {}).items() if name not in ("_created_time", "_elapsed_time")}


def test_items_run_at_the_same_time_and_their_results_stay_in_order(bench: Bench):
    set_node_functions(bench)
    run = bench.start(*MAIN, **PARAMS)
    bench.play(until=lambda: "item" in run.statuses)
    assert [row.scope for row in run.activations if row.status == "ready"] == ["each#0.0", "each#0.1", "each#0.2"]

    bench.play()

    assert (run.status, run.text) == ("succeeded", "[1, 11, 21, 31, 41]")


def test_overlapping_items_give_the_events_and_values_of_sequential_ones(bench: Bench):
    set_node_functions(bench)
    in_order, overlapping = play_items(bench, in_order=True), play_items(bench, in_order=False)

    assert events_of(overlapping) == events_of(in_order)
    assert final_outputs(bench, overlapping) == final_outputs(bench, in_order)


@pytest.mark.parametrize("item", [0, 1, 3])
def test_failing_overlapping_item_gives_the_events_and_values_of_sequential_ones(bench: Bench, item: int):
    set_node_functions(bench, fails=item)
    in_order, overlapping = play_items(bench, in_order=True), play_items(bench, in_order=False)

    assert (overlapping.status, overlapping.row["error"]) == ("failed", f"Node a (Act): bad {item}")
    assert events_of(overlapping) == events_of(in_order)
    assert final_outputs(bench, overlapping) == final_outputs(bench, in_order)
    assert len(overlapping.activations) > len(in_order.activations)


def test_failed_item_fails_its_run_without_waiting_for_the_other_items(bench: Bench):
    set_node_functions(bench)
    started_items: list[int] = []

    async def a(ctx: NodeContext) -> Finished:
        started_items.append(ctx.scope_item)
        while len(started_items) < 3 or ctx.scope_item:  # the items after the first never end
            await asyncio.sleep(0.01)
        raise ValueError("bad")

    bench.does(a=a)
    run = bench.start(*MAIN, **PARAMS)
    worker = bench.a_worker(renew_every=timedelta(milliseconds=50))

    with at_work(bench, worker, threads=4):
        until(lambda: run.status == "failed")

    assert run.row["error"] == "Node a (Act): bad"


def test_cancelled_run_keeps_no_outputs_of_later_items(bench: Bench):
    set_node_functions(bench)
    run = bench.start(*MAIN, **PARAMS)
    bench.play(until=lambda: "b" in run.statuses)
    late = [row for row in run.activations if row.scope == "each#0.2" and row.status == "done"]

    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.play()

    assert late
    assert run.status == "cancelled"
    assert final_outputs(bench, run)["item"]["index"] == 0


def test_failing_parallel_item_stops_the_items_after_it(bench: Bench):
    set_node_functions(bench)
    started_items: list[int] = []

    async def a(ctx: NodeContext) -> Finished:
        started_items.append(ctx.scope_item)
        while len(started_items) < 2 or ctx.scope_item:
            await asyncio.sleep(0.01)
        raise ValueError("bad")

    bench.does(a=a)
    run = bench.start(*MAIN, **{**PARAMS, "each": {**EACH, "max_concurrency": 2}})

    with at_work(bench, bench.a_worker(renew_every=timedelta(milliseconds=50)), threads=3):
        until(lambda: run.status == "failed")

    assert run.row["error"] == "Node each (Iteration): item 0: bad"
    assert sorted(started_items) == [0, 1]
    assert final_outputs(bench, run)["each"] == {"all": None, "_ERROR": "item 0: bad"}


def test_exception_target_can_read_the_failure_of_a_parallel_item(bench: Bench):
    set_node_functions(bench, fails=1)
    rescued = {"max_concurrency": 2, "exception_method": "goto", "exception_goto": ["sayno"]}
    parts = ("begin -> list -> each -> say", "each: item -> a -> b", "sayno")

    run = bench.start(*parts, **{**PARAMS, "each": {**EACH, **rescued}, "sayno": content("{each@_ERROR}{each@all}")})
    bench.play()

    assert (run.status, run.text) == ("succeeded", "item 1: bad 1")
    (finished,) = [event for event in run.events if event.name == "node_finished" and event.node_id == "each"]
    assert without_times(finished.outputs) == {"all": None, "_ERROR": "item 1: bad 1"}


def test_parallel_items_read_the_state_at_the_containers_entry(bench: Bench):
    seen: list[int] = []
    bench.does(
        list=lambda ctx: Finished(outputs={"result": [1, 2, 3]}),
        late=lambda ctx: Finished(assign={"env.n": 1}),
        a=lambda ctx: (seen.append(ctx.lookup("env.n")), Finished())[1],
    )
    each = {"items_ref": "list@result", "max_concurrency": 2}
    run = bench.start(
        "begin -> list, late; list -> each", "each: item -> a", variables={"n": 0}, each=each, a={"script": "{env.n}"}
    )
    delay_message(bench, run, "late", until=lambda: len(seen) == 1)

    bench.play()

    assert seen == [0, 0, 0]


def delay_message(bench: Bench, run: Run, node: str, *, until: Any) -> None:
    """Deliver the task message of a node only after `until` is true."""
    bench.play(until=lambda: node in run.statuses)
    (message,) = [sent for sent in bench.outbox.sent if sent.args[1:] == (str(run.activation(node).id),)]
    bench.outbox.sent.remove(message)
    bench.play(until=until)
    bench.outbox.sent.insert(0, message)
