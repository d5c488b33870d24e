"""Compile a document: kinds, edges, bodies and stream targets."""

from typing import Any

import pytest

from canvas.document.document import Document, Entry
from canvas.errors import InvalidCanvas
from canvas.graph.canvas import Canvas, NodeKind, compile_canvas
from tests.builders import canvas_of, content, default, document_of, goto


def stream_targets(canvas: Canvas) -> dict[str, str]:
    return {canvas.nodes[model].id: canvas.nodes[target.message].id for model, target in canvas.stream_targets.items()}


def test_duplicate_edges_count_once_and_edges_to_unknown_nodes_are_ignored():
    entries = {
        "begin": Entry("begin", "Begin", {}, ("a", "a", "nowhere")),
        "a": Entry("a", "switch", {"end_cpn_ids": "begin", "conditions": [{"to": ["gone"]}, "broken"]}),
    }

    canvas = compile_canvas(Document(entries, raw={}))

    assert canvas.node("begin").downstream == (1,)
    assert canvas.node("a").targets == (0,)
    assert canvas.targets_of(["gone", "a", "a"]) == (1,)


@pytest.mark.parametrize(
    ("component", "params"),
    [
        ("Switch", {"conditions": [{"to": ["a"]}], "end_cpn_ids": ["b"]}),
        ("Categorize", {"category_description": {"first": {"to": ["a"]}, "second": {"to": ["b"]}}}),
        ("LLM", {"exception_method": "goto", "exception_goto": ["a", "b"]}),
    ],
)
def test_nodes_named_only_in_the_parameters_are_targets(component: str, params: dict[str, Any]):
    entries = {
        "begin": Entry("begin", "Begin", {}, ("choice",)),
        "choice": Entry("choice", component, params),
        "a": Entry("a", "Message", {}),
        "b": Entry("b", "Message", {}),
    }

    canvas = compile_canvas(Document(entries, raw={}))

    assert canvas.node("choice").targets == (canvas.numbers["a"], canvas.numbers["b"])


@pytest.mark.parametrize(
    ("component", "kind"), [("GENERATE", NodeKind.MODEL), ("fillup", NodeKind.FORM), ("Whatever", NodeKind.PLAIN)]
)
def test_component_names_are_matched_in_any_case_and_by_old_names(component: str, kind: NodeKind):
    canvas = compile_canvas(Document({"begin": Entry("begin", "Begin", {}), "x": Entry("x", component, {})}, raw={}))

    assert canvas.node("x").kind is kind


def test_a_canvas_without_begin_is_refused():
    with pytest.raises(InvalidCanvas, match='no node with the id "begin"'):
        compile_canvas(Document({"a": Entry("a", "Message", {})}, raw={}))


def test_a_container_without_an_item_and_an_item_without_a_container_are_refused():
    with pytest.raises(InvalidCanvas, match="has no item node"):
        canvas_of("begin -> each", "each: a")
    with pytest.raises(InvalidCanvas, match="is outside of a loop"):
        canvas_of("begin -> each", "each: item, visit")


def test_a_node_that_lies_inside_of_itself_is_refused():
    entries = {
        "begin": Entry("begin", "Begin", {}),
        "each": Entry("each", "Iteration", {}, parent="loop"),
        "loop": Entry("loop", "Loop", {}, parent="each"),
    }

    with pytest.raises(InvalidCanvas, match="is inside of itself") as refused:
        compile_canvas(Document(entries, raw={}))

    assert refused.value.field == "parent_id"


def test_parent_that_is_not_a_container_is_ignored():
    canvas = canvas_of("begin -> a", "a: b")

    assert canvas.node("b").parent is None


def test_model_streams_into_the_first_downstream_message_that_mentions_it():
    canvas = canvas_of("begin -> model -> saya, sayb, sayc", saya=content("nothing"))

    assert stream_targets(canvas) == {"model": "sayb"}


def test_stream_target_records_the_models_mentioned_before():
    canvas = canvas_of("begin -> modela, modelb -> say", say=content("{modelb@content} {modela@content}"))

    assert canvas.stream_targets[canvas.numbers["modela"]].mentioned_before == canvas.node("modelb").bit
    assert canvas.stream_targets[canvas.numbers["modelb"]].mentioned_before == 0


def test_model_with_a_goto_or_structured_output_does_not_stream():
    schema = {"outputs": {"structured": {"properties": {"a": {"type": "string"}}}}}
    canvas = canvas_of("begin -> modela, modelb -> say", "rescue", modela=goto("rescue"), modelb=schema)

    assert stream_targets(canvas) == {}
    assert canvas.streaming_models == 0


def test_model_with_goto_targets_but_no_goto_method_still_streams():
    canvas = canvas_of("begin -> model -> say", model={"exception_goto": ["say"]})

    assert stream_targets(canvas) == {"model": "say"}


def test_model_before_a_message_that_does_not_mention_it_is_not_called():
    canvas = canvas_of("begin -> model -> say", say=content("nothing"))

    assert canvas.uncalled_models == canvas.node("model").bit
    assert stream_targets(canvas) == {}


def test_stream_order_is_needed_where_two_texts_can_be_streamed_at_once():
    assert not canvas_of("begin -> model -> say").needs_stream_order
    assert canvas_of("begin -> saya, sayb").needs_stream_order
    assert canvas_of("begin -> each", "each: item -> say").needs_stream_order
    assert canvas_of("begin -> a -> say", a=default("sorry")).needs_stream_order
    assert not canvas_of("begin -> a -> say", "b", a={**default("sorry"), **goto("b")}).needs_stream_order


def test_streaming_nodes_are_grouped_by_container():
    canvas = canvas_of("begin -> each, a -> say", "each: item -> loop", "loop: visit -> sayb", a=default("sorry"))

    streaming_by_container = {
        canvas.nodes[container].id if container is not None else "": sorted(
            node.id for node in canvas.nodes if node.bit & streaming
        )
        for container, streaming in canvas.streaming_nodes.items()
    }
    assert streaming_by_container == {"": ["a", "each", "say"], "each": ["loop"], "loop": ["sayb"]}


def test_container_with_an_edge_out_of_its_body_is_recorded():
    canvas = canvas_of("begin -> each, loop -> end", "each: item -> a -> end", "loop: visit -> b")

    assert canvas.containers_with_escaping_edges == canvas.node("each").bit


def test_document_builder_creates_the_described_edges_and_conditions():
    document = document_of("begin -> pick -> a, b; a, b -> end")

    assert document.entries["pick"].params["conditions"] == [{"items": [], "to": ["a"]}, {"items": [], "to": ["b"]}]
    assert document.entries["b"].downstream == ("end",)
