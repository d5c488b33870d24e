"""Iteration runs its body once for every element of a list."""

from typing import Any

import pytest

from canvas.errors import NodeFailure
from canvas.outcome import ContainerExited, ContainerOpened, NextIteration
from components.nodes.flow.iteration import iteration, iteration_item
from tests.fakes import FakeContext, run

PARAMS = {"items_ref": "{env.items}", "outputs": {"lines": {"ref": "T:1@result"}, "note": {"type": "string"}}}


def visit(items: Any, index: int, lists: dict[str, list[Any]] | None = None, **params: Any) -> Any:
    ctx = FakeContext(
        globals={"env.items": items},
        parent={**PARAMS, **params},
        parent_outputs={"lines": None, "note": "n"},
        lists=lists or {},
        scope_item=index,
    )
    return run(iteration_item, {}, ctx)


def test_iteration_opens_its_container_with_the_item_count_and_empty_outputs():
    ctx = FakeContext(globals={"env.items": ["a", "b"]})

    assert run(iteration, PARAMS, ctx) == ContainerOpened(count=2, concurrency=1, outputs={"lines": None})


@pytest.mark.parametrize("items", ["abc", {"a": 1}, 5, None])
def test_anything_but_a_list_fails_and_names_the_reference(items: Any):
    with pytest.raises(NodeFailure, match=r"\{env\.items\} must be an array, but its type is"):
        run(iteration, PARAMS, FakeContext(globals={"env.items": items}))
    with pytest.raises(NodeFailure, match="must be an array"):
        visit(items, 0)


def test_each_iteration_outputs_its_element():
    assert visit(["a", "b"], 1) == NextIteration(outputs={"item": "b", "result": "b", "index": 1})


def test_last_visit_ends_the_container_with_the_collected_outputs():
    outcome = visit(["a", "b"], 2, {"lines": ["0:a", "1:b"]})

    assert outcome == ContainerExited(outputs={}, container={"lines": ["0:a", "1:b"], "note": "n"})


def test_an_empty_list_leaves_the_outputs_null():
    assert visit([], 0, {"lines": []}) == ContainerExited(container={"lines": None, "note": "n"})


def test_a_list_that_the_body_made_shorter_ends_early():
    assert isinstance(visit(["a"], 1), ContainerExited)


def test_parallel_iteration_treats_null_as_an_empty_list_and_outputs_lists():
    for items in (None, []):
        ctx = FakeContext(globals={"env.items": items})
        outcome = visit(items, 0, max_concurrency=2)

        assert run(iteration, {**PARAMS, "max_concurrency": 2}, ctx) == ContainerOpened(0, 2, {"lines": None})
        assert outcome == ContainerExited(container={"lines": [], "note": "n", "_result": []})


def test_parallel_results_are_collected():
    results = [{"item": 1, "index": 0, "T:1": {"result": "r"}}]

    outcome = visit([1], 1, {"lines": ["r"], "_result": results}, max_concurrency=2)

    assert outcome == ContainerExited(container={"lines": ["r"], "note": "n", "_result": results})


@pytest.mark.parametrize("concurrency", [4, "4", 4.0])
def test_concurrency_may_be_written_as_text(concurrency: Any):
    outcome = run(iteration, {**PARAMS, "max_concurrency": concurrency}, FakeContext(globals={"env.items": [1]}))

    assert isinstance(outcome, ContainerOpened)
    assert outcome.concurrency == 4
    assert visit([1], 1, max_concurrency=concurrency).container["_result"] == []


@pytest.mark.parametrize("concurrency", [0, 1, None, "1", "four", True, -1])
def test_items_run_sequentially_by_default(concurrency: Any):
    outcome = run(iteration, {**PARAMS, "max_concurrency": concurrency}, FakeContext(globals={"env.items": [1]}))

    assert isinstance(outcome, ContainerOpened)
    assert outcome.concurrency == 1


def test_wrap_single_treats_a_single_value_as_a_list_of_one():
    ctx = FakeContext(globals={"env.items": "abc"})

    assert run(iteration, {**PARAMS, "wrap_single": True}, ctx) == ContainerOpened(1, 1, {"lines": None})
    assert visit("abc", 0, wrap_single=True).outputs["item"] == "abc"
