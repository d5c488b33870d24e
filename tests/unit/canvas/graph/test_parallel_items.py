"""When the items of an Iteration may overlap: only where the run stays the same."""

from dataclasses import replace
from typing import Any

import pytest

from canvas.graph import parallel_items
from canvas.graph.canvas import Canvas
from canvas.graph.parallel_items import INDEPENDENT, WRITES_NOTHING, pipelined_levels, requested_concurrency
from components import registry
from tests.builders import canvas_of, content, default, goto, reads

MAIN = "begin -> list -> each -> say"
ITEMS = {"items_ref": "list@result", "outputs": {"all": {"ref": "a@result"}}}


@pytest.fixture(autouse=True)
def allow_eight_overlapping_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_items, "AT_ONCE", 8)


def levels(*parts: str, **params: Any) -> int:
    """Return the number of levels of a pass of the Iteration `each`; 0 if its items may not overlap."""
    canvas = canvas_of(*(parts or (MAIN, "each: item -> a -> b")), **{"each": ITEMS, **params})
    return pipelined_levels(canvas, canvas.node("each"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (None, 0),
        (0, 0),
        ("", 0),
        ("many", 0),
        (-3, 0),
        (True, 0),
        ([4], 0),
        (1, 1),
        ("1", 1),
        (4, 4),
        ("4", 4),
        (" 8 ", 8),
        (2.0, 2),
        ("²", 0),
        ("9" * 400, 999_999_999),
        (float("inf"), 1_000_000_000),
    ],
)
def test_requested_concurrency_is_a_positive_integer_or_zero(written: Any, expected: int):
    assert requested_concurrency({"max_concurrency": written}) == expected


def test_items_whose_body_only_writes_outputs_may_overlap():
    assert levels() == 3


def test_pass_has_as_many_levels_as_its_longest_path():
    assert levels(MAIN, "each: item -> a, b; a -> c -> d; b -> d") == 4


def test_model_calls_may_overlap():
    assert levels(MAIN, "each: item -> model -> a", a=reads("model"), model={"prompts": "{item} {sys.query}"}) == 3


def test_items_whose_body_reads_earlier_nodes_and_its_own_pass_may_overlap():
    assert levels(MAIN, "each: item -> a -> b", a=reads("list", "item", "begin"), b=reads("a", "item")) == 3


def test_items_may_overlap_beside_nodes_whose_outputs_the_body_does_not_read():
    assert levels("begin -> list -> each; begin -> modelx -> say", "each: item -> a") == 2


def test_items_do_not_overlap_where_max_concurrency_is_set():
    for concurrency in (1, "1", 4):
        assert levels(each={**ITEMS, "max_concurrency": concurrency}) == 0


def with_component(name: str, *parts: str, node: str = "a", **params: Any) -> Canvas:
    """Return a canvas in which one plain node has another component."""
    canvas = canvas_of(*parts, **{"each": ITEMS, **params})
    number = canvas.numbers[node]
    nodes = list(canvas.nodes)
    nodes[number] = replace(nodes[number], component=name)
    return replace(canvas, nodes=tuple(nodes))


@pytest.mark.parametrize(
    "component", ["VariableAssigner", "VariableAggregator", "Invoke", "CodeExec", "TavilySearch", "Retrieval", "Email"]
)
def test_items_whose_body_has_side_effects_run_in_order(component: str):
    canvas = with_component(component, MAIN, "each: item -> a -> b")

    assert pipelined_levels(canvas, canvas.node("each")) == 0


@pytest.mark.parametrize(
    ("body", "params"),
    [
        pytest.param("each: item -> a -> sayx", {}, id="a message streams"),
        pytest.param("each: item -> form -> a", {}, id="a form waits"),
        pytest.param("each: item -> pick -> a, b", {}, id="a router chooses"),
        pytest.param("each: item -> loop -> a | loop: visit -> c", {}, id="another container is inside"),
        pytest.param("each: item -> a -> b -> a", {}, id="a cycle"),
        pytest.param("each: item -> a -> say", {}, id="an edge leads out"),
        pytest.param("each: item -> a; b -> c", {}, id="a node is not reached"),
        pytest.param("each: item -> a -> b", {"a": goto("b")}, id="a goto"),
        pytest.param("each: item -> a -> b", {"a": default("sorry")}, id="a default"),
        pytest.param("each: item -> a -> b", {"item": default("sorry")}, id="a default of the item node"),
        pytest.param("each: item -> a -> b", {"a": reads("a")}, id="a node reads its own earlier output"),
        pytest.param("each: item -> a -> b", {"a": reads("b")}, id="a node reads a later node"),
        pytest.param("each: item -> a, b", {"b": reads("a")}, id="a node reads a parallel node"),
        pytest.param("each: item -> a -> b", {"a": reads("each")}, id="a node reads the outputs of the iteration"),
        pytest.param("each: item -> a", {"each": {"items_ref": "a@result"}}, id="the list is an output of the body"),
        pytest.param(
            "each: item -> a", {"each": {"items_ref": "each@all"}}, id="the list is an output of the iteration"
        ),
    ],
)
def test_items_that_depend_on_each_other_or_stream_text_run_in_order(body: str, params: dict[str, Any]):
    assert levels(MAIN, *body.split(" | "), **params) == 0


def test_items_with_an_agent_may_overlap_only_if_it_has_no_tools():
    for tools, expected in (([], 2), ([{"component_name": "TavilySearch"}], 0)):
        canvas = with_component("Agent", MAIN, "each: item -> a", a={"tools": tools})

        assert pipelined_levels(canvas, canvas.node("each")) == expected


def test_assigner_parallel_to_the_iteration_keeps_its_items_in_order():
    main, body = "begin -> list -> each -> say; begin -> x -> say", "each: item -> a"
    in_parallel = with_component("VariableAssigner", main, body, node="x")
    before = with_component("VariableAssigner", "begin -> x -> each -> say; begin -> list -> each", body, node="x")
    after = with_component("VariableAssigner", "begin -> list -> each -> x -> say", body, node="x")

    assert pipelined_levels(in_parallel, in_parallel.node("each")) == 0
    assert pipelined_levels(before, before.node("each")) == 2
    assert pipelined_levels(after, after.node("each")) == 2


def test_assigner_in_a_parallel_loop_keeps_the_items_in_order():
    parts = ("begin -> loop, loopx -> say", "loop: visit -> each", "each: item -> a", "loopx: visitx -> x")
    canvas = with_component("VariableAssigner", *parts, node="x")

    assert pipelined_levels(canvas, canvas.node("each")) == 0
    assert levels(*parts) == 2


def test_passes_of_a_loop_never_overlap():
    canvas = canvas_of("begin -> loop", "loop: visit -> a")

    assert pipelined_levels(canvas, canvas.node("loop")) == 0


def test_message_in_the_body_that_streams_a_model_keeps_the_items_in_order():
    assert levels("begin -> each -> say", "each: item -> model", say=content("{model@content}")) == 2
    assert levels("begin -> each", "each: item -> model -> sayx", sayx=content("{model@content}")) == 0


def test_components_that_may_overlap_are_pure_or_idempotent():
    components = [found for name in INDEPENDENT - {"agent"} if (found := registry.find(name)) is not None]

    assert {component.effect for component in components} <= {"pure", "idempotent"}
    assert {"llm", "stringtransform"} <= {component.name.lower() for component in components}
    assert "variableassigner" not in WRITES_NOTHING
