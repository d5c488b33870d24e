"""Iterations on real rows: the values that items read, and the cost of long lists."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from canvas.outcome import Finished
from components.context import NodeContext
from scheduler.views import run_view
from store.runs import values
from tests.builders import content
from tests.integration.engine import Bench, NodeFunction, Run
from worker.caches.list_sources import ListCache

IN_ORDER = {"max_concurrency": 1}
COLLECTS = {"items_ref": "list@result", "outputs": {"all": {"ref": "work@result"}}}
READS_ITEM = {"script": "{item@item}"}


def return_items(items: Any) -> NodeFunction:
    return lambda ctx: Finished(outputs={"result": items})


def double_item(ctx: NodeContext) -> Finished:
    return Finished(outputs={"result": ctx.lookup("item@item") * 2})


def play_iteration(bench: Bench, items: Any, *, params: dict[str, Any] | None = None, **more: Any) -> Run:
    """Play a run that doubles each item of a list."""
    bench.does(list=return_items(items), work=double_item)
    each = {**COLLECTS, **(params or {})}
    run = bench.start("begin -> list -> each -> say", "each: item -> work", each=each, work=READS_ITEM, **more)
    bench.play()
    return run


@pytest.fixture
def call_counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the outputs of items were collected, and lists cached."""
    counts: Counter[str] = Counter()

    def count_calls(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            counts[name] += 1
            return original(*args, **named)

        return call

    monkeypatch.setattr(values, "load_iteration_outputs", count_calls("collect", values.load_iteration_outputs))
    monkeypatch.setattr(ListCache, "put_list", count_calls("cache", ListCache.put_list))
    return counts


@pytest.mark.parametrize("params", [IN_ORDER, {"max_concurrency": "3"}])
def test_long_list_is_fetched_once_and_its_results_are_collected_once(
    bench: Bench, call_counts: Counter[str], params: dict[str, Any]
):
    items = [f"{number}{'x' * 500}" for number in range(20)]

    run = play_iteration(bench, items, params=params)

    assert run.outputs("each")["all"] == [item * 2 for item in items]
    assert call_counts == {"cache": 1, "collect": 1}


def test_body_that_shortens_the_list_shortens_its_iteration(bench: Bench):
    def shortens(ctx: NodeContext) -> Finished:
        return Finished(outputs={"result": ctx.lookup("item@item")}, assign={"env.items": ctx.lookup("env.items")[:-1]})

    bench.does(work=shortens)
    run = bench.start(
        "begin -> each -> say",
        "each: item -> work",
        variables={"items": ["y" * 5000, "b", "c", "d"]},
        each={"items_ref": "env.items", "outputs": {"all": {"ref": "work@result"}}},
        work={"script": "{item@item} {env.items}"},
    )

    bench.play()

    assert run.outputs("each")["all"] == ["y" * 5000, "b"]


def test_sequential_items_read_the_results_collected_so_far(bench: Bench):
    bench.does(list=return_items([1, 2, 3]), work=lambda ctx: Finished(outputs={"result": ctx.lookup("each@all")}))

    run = bench.start(
        "begin -> list -> each -> say",
        "each: item -> work -> loop",
        "loop: visit -> saya",
        each=COLLECTS,
        work={"script": "{each@all}"},
        loop={"maximum_loop_count": 1, "logical_operator": "or"},
        saya=content("{each@all};"),
    )
    bench.play()

    assert run.outputs("each")["all"] == [None, [None], [None, [None]]]
    assert run.text.startswith(";[null];[null, [null]];")


def test_iteration_that_is_entered_again_starts_with_empty_results(bench: Bench):
    bench.does(list=return_items([1, 2]), work=double_item)

    run = bench.start(
        "begin -> list -> loop -> say",
        "loop: visit -> each -> saya",
        "each: item -> work",
        loop={"maximum_loop_count": 2, "logical_operator": "or"},
        each=COLLECTS,
        work=READS_ITEM,
        saya=content("{each@all};"),
    )
    bench.play()

    assert run.text.startswith("[2, 4];[2, 4];")


def test_child_node_that_did_not_run_contributes_its_previous_output(bench: Bench):
    bench.does(list=return_items(["x", "y", "x", "z"]), one=double_item, two=double_item)
    conditions = [{"items": [{"cpn_id": "item@item", "operator": "=", "value": "x"}], "to": ["one"]}]

    run = bench.start(
        "begin -> list -> each -> say",
        "each: item -> pick -> one, two",
        each={"items_ref": "list@result", "outputs": {"a": {"ref": "one@result"}, "b": {"ref": "two@result"}}},
        pick={"conditions": conditions, "end_cpn_ids": ["two"]},
        one=READS_ITEM,
        two=READS_ITEM,
    )
    bench.play()

    assert run.outputs("each") == {"a": ["xx", "xx", "xx", "xx"], "b": ["", "yy", "yy", "zz"]}


@pytest.mark.parametrize("items", [[], None])
def test_parallel_iteration_over_no_items_gives_empty_lists(bench: Bench, items: Any):
    run = play_iteration(bench, items, params={"max_concurrency": 2})

    assert run.status == "succeeded"
    assert run.outputs("each") == {"all": [], "_result": []} or run.outputs("each") == {"all": []}


def test_parallel_iteration_outputs_the_results_of_each_item(bench: Bench):
    run = play_iteration(bench, [1, 2, 3], params={"max_concurrency": "2"})

    (row,) = [row for row in run.rows_of_values("each") if row.get("all")]
    assert row["all"] == [2, 4, 6]
    assert row["_result"] == [{"item": n, "index": n - 1, "work": {"result": 2 * n}} for n in (1, 2, 3)]


def test_parallel_iteration_names_its_first_failed_item_and_collects_nothing(bench: Bench):
    def fails(ctx: NodeContext) -> Finished:
        raise ValueError("bad")

    bench.does(
        list=return_items([1, 2, 3]), work=lambda ctx: fails(ctx) if ctx.lookup("item@item") == 2 else double_item(ctx)
    )
    run = bench.start(
        "begin -> list -> each -> say", "each: item -> work", each={**COLLECTS, "max_concurrency": 2}, work=READS_ITEM
    )

    bench.play()

    assert (run.status, run.row["error"]) == ("failed", "Node each (Iteration): item 1: bad")
    assert run.outputs("each").get("all") is None


def test_parallel_items_read_the_values_before_the_container_and_not_of_each_other(bench: Bench):
    seen: list[Any] = []

    def record_values(ctx: NodeContext) -> Finished:
        seen.append((ctx.lookup("env.n"), ctx.previous_output("result")))
        return Finished(outputs={"result": 1}, assign={"env.n": 99})

    bench.does(list=return_items([1, 2, 3]), first=lambda ctx: Finished(assign={"env.n": 5}), work=record_values)

    bench.start(
        "begin -> first -> list -> each -> say",
        "each: item -> work",
        variables={"n": 0},
        each={**COLLECTS, "max_concurrency": 2},
        work={"script": "{env.n}"},
    )
    bench.play()

    assert seen == [(5, None)] * 3


@pytest.mark.parametrize("inner", [{}, {"max_concurrency": 2}])
def test_containers_in_parallel_items_read_their_own_and_the_outer_item(bench: Bench, inner: dict[str, Any]):
    bench.does(
        list=return_items([[1, 2], [], [3]]),
        first=lambda ctx: Finished(outputs={"result": len(ctx.lookup("itemo@item")) * 100}),
        work=lambda ctx: Finished(outputs={"result": ctx.lookup("first@result") + ctx.lookup("item@item")}),
    )

    run = bench.start(
        "begin -> list -> eacho -> say",
        "eacho: itemo -> first -> each",
        "each: item -> work",
        eacho={"items_ref": "list@result", "max_concurrency": 2, "outputs": {"all": {"ref": "each@all"}}},
        each={"items_ref": "itemo@item", "outputs": {"all": {"ref": "work@result"}}, **inner},
        first={"script": "{itemo@item}"},
        work={"script": "{first@result} {item@item}"},
    )
    bench.play()

    assert run.outputs("eacho")["all"] == [[201, 202], [] if inner else None, [103]]


def test_loop_in_parallel_items_counts_separately_in_each_item(bench: Bench):
    adds = {"variable": "n", "input_mode": "constant", "type": "number", "value": 0}
    bench.does(
        list=return_items([1, 2, 3]),
        work=lambda ctx: Finished(assign={"loop@n": ctx.lookup("loop@n") + ctx.lookup("item@item")}),
        after=lambda ctx: Finished(outputs={"result": ctx.lookup("loop@n")}),
    )

    run = bench.start(
        "begin -> list -> each -> say",
        "each: item -> loop -> after",
        "loop: visit -> work",
        each={"items_ref": "list@result", "max_concurrency": 3, "outputs": {"all": {"ref": "after@result"}}},
        loop={"loop_variables": [adds], "maximum_loop_count": 4, "logical_operator": "or"},
        work={"script": "{loop@n} {item@item}"},
        after={"script": "{loop@n}"},
    )
    bench.play()

    assert run.outputs("each")["all"] == [4, 8, 12]


def test_loop_exit_keeps_a_variable_that_a_slower_branch_sets_later(bench: Bench):
    bench.does(slow=lambda ctx: Finished(assign={"loop@n": 1}))
    row = {"variable": "n", "type": "number", "input_mode": "constant", "value": 0}
    run = bench.start(
        "begin -> loop -> say",
        "loop: visit -> slow, quick; quick -> exit",
        loop={"loop_variables": [row], "maximum_loop_count": 5, "logical_operator": "or"},
        say=content("{loop@n}"),
    )
    bench.play(until=lambda: "slow" in run.statuses)
    bench.outbox.sent.sort(key=lambda sent: sent.args[1:] == (str(run.activation("slow").id),))

    bench.play()

    assert (run.status, run.text) == ("succeeded", "1")
    assert run.outputs("loop") == {"n": 1}


def test_variable_of_a_loop_in_progress_is_shown_as_its_output(bench: Bench):
    bench.does(work=lambda ctx: Finished(assign={"loop@n": ctx.lookup("loop@n") + 1}))
    row = {"variable": "n", "type": "number", "input_mode": "constant", "value": 0}
    run = bench.start(
        "begin -> loop -> say",
        "loop: visit -> work -> later",
        loop={"loop_variables": [row], "maximum_loop_count": 5, "logical_operator": "or"},
        work={"script": "{loop@n}"},
        say=content("{loop@n}"),
    )

    bench.play(until=lambda: run.statuses.get("work") == "done")

    with bench.coordinator.database.transaction() as tx:
        shown = run_view.outputs_of(tx, bench.coordinator.versions, run.row, lambda entry: ("declared",))
    assert (shown["loop"]["declared"], shown["loop"]["n"]) == (None, 1)
