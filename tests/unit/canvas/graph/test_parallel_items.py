"""When the items of an Iteration may overlap: only where nobody could tell."""

from dataclasses import replace
from typing import Any

import pytest

from canvas.graph import parallel_items
from canvas.graph.canvas import Canvas
from canvas.graph.parallel_items import INDEPENDENT, WRITES_NOTHING, pipelined_levels, requested_concurrency
from components import registry
from tests.builders import canvas_of, default, goto, reads, says

MAIN = "begin -> list -> each -> say"
ITEMS = {"items_ref": "list@result", "outputs": {"all": {"ref": "a@result"}}}


@pytest.fixture(autouse=True)
def several_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_items, "AT_ONCE", 8)


def waves(*parts: str, **params: Any) -> int:
    """Waves of a pass of the Iteration `each`; 0 if somebody could tell."""
    canvas = canvas_of(*(parts or (MAIN, "each: item -> a -> b")), **{"each": ITEMS, **params})
    return pipelined_levels(canvas, canvas.node("each"))


@pytest.mark.parametrize(
    ("wanted", "said"),
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
def test_how_many_items_an_author_wants_side_by_side(wanted: Any, said: int):
    assert requested_concurrency({"max_concurrency": wanted}) == said


def test_a_body_that_leaves_nothing_but_outputs_may_overlap():
    assert waves() == 3


def test_a_pass_takes_as_many_waves_as_its_longest_way():
    assert waves(MAIN, "each: item -> a, b; a -> c -> d; b -> d") == 4


def test_model_calls_may_overlap():
    assert waves(MAIN, "each: item -> model -> a", a=reads("model"), model={"prompts": "{item} {sys.query}"}) == 3


def test_a_body_may_read_what_was_settled_before_and_what_stands_above_it_in_the_pass():
    assert waves(MAIN, "each: item -> a -> b", a=reads("list", "item", "begin"), b=reads("a", "item")) == 3


def test_nodes_beside_the_iteration_may_work_if_they_write_nothing_that_others_read():
    assert waves("begin -> list -> each; begin -> modelx -> say", "each: item -> a") == 2


def test_an_author_who_says_one_at_a_time_gets_one_at_a_time():
    for said in (1, "1", 4):
        assert waves(each={**ITEMS, "max_concurrency": said}) == 0


def with_component(name: str, *parts: str, node: str = "a", **params: Any) -> Canvas:
    """A canvas in which one plain node is of another component."""
    canvas = canvas_of(*parts, **{"each": ITEMS, **params})
    number = canvas.numbers[node]
    nodes = list(canvas.nodes)
    nodes[number] = replace(nodes[number], component=name)
    return replace(canvas, nodes=tuple(nodes))


@pytest.mark.parametrize(
    "component", ["VariableAssigner", "VariableAggregator", "Invoke", "CodeExec", "TavilySearch", "Retrieval", "Email"]
)
def test_a_body_that_assigns_acts_or_keeps_something_goes_in_order(component: str):
    canvas = with_component(component, MAIN, "each: item -> a -> b")

    assert pipelined_levels(canvas, canvas.node("each")) == 0


@pytest.mark.parametrize(
    ("body", "params"),
    [
        pytest.param("each: item -> a -> sayx", {}, id="it speaks"),
        pytest.param("each: item -> form -> a", {}, id="it asks"),
        pytest.param("each: item -> pick -> a, b", {}, id="it takes one way or another"),
        pytest.param("each: item -> loop -> a | loop: visit -> c", {}, id="it holds another container"),
        pytest.param("each: item -> a -> b -> a", {}, id="it goes round in a circle"),
        pytest.param("each: item -> a -> say", {}, id="a way leads out of it"),
        pytest.param("each: item -> a; b -> c", {}, id="a part of it never runs"),
        pytest.param("each: item -> a -> b", {"a": goto("b")}, id="a failure leads elsewhere"),
        pytest.param("each: item -> a -> b", {"a": default("sorry")}, id="a failure is heard"),
        pytest.param("each: item -> a -> b", {"item": default("sorry")}, id="a failure of the visit is heard"),
        pytest.param("each: item -> a -> b", {"a": reads("a")}, id="a node reads its own last pass"),
        pytest.param("each: item -> a -> b", {"a": reads("b")}, id="a node reads the last pass of a later one"),
        pytest.param("each: item -> a, b", {"b": reads("a")}, id="a node reads the last pass of one beside it"),
        pytest.param("each: item -> a -> b", {"a": reads("each")}, id="a node watches the results grow"),
        pytest.param("each: item -> a", {"each": {"items_ref": "a@result"}}, id="the body makes the list"),
        pytest.param("each: item -> a", {"each": {"items_ref": "each@all"}}, id="the results are the list"),
    ],
)
def test_a_body_whose_passes_differ_or_are_heard_goes_in_order(body: str, params: dict[str, Any]):
    assert waves(MAIN, *body.split(" | "), **params) == 0


def test_an_agent_with_tools_acts_and_one_without_is_a_model():
    for tools, expected in (([], 2), ([{"component_name": "TavilySearch"}], 0)):
        canvas = with_component("Agent", MAIN, "each: item -> a", a={"tools": tools})

        assert pipelined_levels(canvas, canvas.node("each")) == expected


def test_a_node_beside_the_iteration_that_assigns_keeps_it_in_order():
    main, body = "begin -> list -> each -> say; begin -> x -> say", "each: item -> a"
    beside = with_component("VariableAssigner", main, body, node="x")
    before = with_component("VariableAssigner", "begin -> x -> each -> say; begin -> list -> each", body, node="x")
    after = with_component("VariableAssigner", "begin -> list -> each -> x -> say", body, node="x")

    assert pipelined_levels(beside, beside.node("each")) == 0
    assert pipelined_levels(before, before.node("each")) == 2
    assert pipelined_levels(after, after.node("each")) == 2


def test_what_assigns_in_a_loop_beside_the_loop_around_the_iteration_keeps_it_in_order():
    parts = ("begin -> loop, loopx -> say", "loop: visit -> each", "each: item -> a", "loopx: visitx -> x")
    canvas = with_component("VariableAssigner", *parts, node="x")

    assert pipelined_levels(canvas, canvas.node("each")) == 0
    assert waves(*parts) == 2


def test_a_loop_never_overlaps():
    canvas = canvas_of("begin -> loop", "loop: visit -> a")

    assert pipelined_levels(canvas, canvas.node("loop")) == 0


def test_a_listener_that_shows_a_body_node_directly_keeps_it_in_order():
    assert waves("begin -> each -> say", "each: item -> model", say=says("{model@content}")) == 2
    assert waves("begin -> each", "each: item -> model -> sayx", sayx=says("{model@content}")) == 0


def test_components_that_may_overlap_cannot_act_twice():
    known = [found for name in INDEPENDENT - {"agent"} if (found := registry.find(name)) is not None]

    assert {component.effect for component in known} <= {"pure", "idempotent"}
    assert {"llm", "stringtransform"} <= {component.name.lower() for component in known}
    assert "variableassigner" not in WRITES_NOTHING
