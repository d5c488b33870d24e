"""The document of one node alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.document.document import Document
from canvas.document.single_node import (
    NodeInputs,
    input_node_id,
    isolate,
    nodes_alone,
    outside_references,
    require_runnable_alone,
)
from canvas.errors import InvalidRequest
from canvas.graph.canvas import compile_canvas
from canvas.validation.check import check

ENTRIES = {
    "begin": ("Begin", {"layout_recognize": "Plain Text"}, ["Outer:0"], None),
    "Outer:0": ("Iteration", {"items_ref": "begin@list"}, ["Message:0"], None),
    "IterationItem:0": ("IterationItem", {}, ["Inner:0"], "Outer:0"),
    "Inner:0": ("Loop", {"loop_variables": [], "maximum_loop_count": 1}, ["LLM:0"], "Outer:0"),
    "LoopItem:0": ("LoopItem", {}, ["LLM:1"], "Inner:0"),
    "LLM:1": ("LLM", {"sys_prompt": "{begin@tone} {IterationItem:0@item}"}, [], "Inner:0"),
    "LLM:0": ("LLM", {"sys_prompt": "{LLM:1@content} {Nobody:0@x}"}, [], "Outer:0"),
    "Message:0": ("Message", {"content": ["{Outer:0@lines} {begin@tone}"]}, [], None),
    "Switch:0": (
        "Switch",
        {
            "conditions": [{"items": [{"cpn_id": "LLM:0@content", "operator": "empty", "value": ""}], "to": ["LLM:0"]}],
            "end_cpn_ids": ["Message:0"],
            "exception_method": "goto",
            "exception_goto": ["begin"],
            "exception_default_value": "x",
        },
        ["Message:0"],
        None,
    ),
}


def document() -> Document:
    return parsing.parse(
        {
            "components": {
                node: {"obj": {"component_name": name, "params": params}, "downstream": down, "parent_id": parent}
                for node, (name, params, down, parent) in ENTRIES.items()
            },
            "graph": {"nodes": [{"id": node, "data": {"name": f"the {node}"}} for node in ENTRIES]},
            "globals": {"env.tone": "changed"},
            "variables": {"tone": {"name": "tone", "value": "plain", "type": "string"}},
        }
    )


def test_container_keeps_its_body_at_any_depth():
    assert nodes_alone(document(), "Outer:0") == [
        "Outer:0", "IterationItem:0", "Inner:0", "LLM:0", "LoopItem:0", "LLM:1",
    ]  # fmt: skip


def test_outside_references_are_those_to_other_nodes_of_the_canvas():
    assert list(outside_references(document(), "Outer:0")) == [("begin", "list"), ("begin", "tone")]
    assert list(outside_references(document(), "LLM:1")) == [("IterationItem:0", "item"), ("begin", "tone")]


def test_isolated_node_is_the_only_one_that_the_run_reaches():
    alone = parsing.parse(isolate(document(), "Message:0", NodeInputs()))

    canvas = compile_canvas(alone)
    assert [canvas.nodes[target].id for target in canvas.nodes[canvas.begin].targets] == ["Message:0"]
    assert canvas.node("Message:0").targets == ()
    assert canvas.node("Outer:0").component == "VariableAssigner"
    assert alone.entries["begin"].params == {"layout_recognize": "Plain Text"}
    assert alone.entries["Message:0"].name == "the Message:0"


def test_failure_of_an_isolated_node_leads_nowhere():
    alone = parsing.parse(isolate(document(), "Switch:0", NodeInputs()))

    failure = compile_canvas(alone).node("Switch:0").failure
    assert (failure.method, failure.goto, failure.default) == ("", (), None)


def test_isolated_document_begins_with_the_declared_variables():
    assert isolate(document(), "LLM:0", NodeInputs())["globals"]["env.tone"] == "plain"


def test_given_parameters_replace_those_of_the_node():
    alone = isolate(
        document(), "Outer:0", NodeInputs(params={"items_ref": "{NodeInput@value0}"}, outputs={"NodeInput": {}})
    )

    assert alone["components"]["Outer:0"]["obj"]["params"]["items_ref"] == "{NodeInput@value0}"
    assert "NodeInput" in alone["components"]


def test_input_node_has_an_id_that_the_canvas_does_not_have():
    taken = parsing.parse(
        {"components": {node: {"obj": {"component_name": "Begin"}} for node in ("begin", "NodeInput", "NodeInput_")}}
    )

    assert input_node_id(document()) == "NodeInput"
    assert input_node_id(taken) == "NodeInput__"


@pytest.mark.parametrize("node", ["IterationItem:0", "LoopItem:0"])
def test_node_that_only_starts_the_passes_of_a_container_is_refused(node: str):
    with pytest.raises(InvalidRequest, match="Run its container"):
        require_runnable_alone(document().entries[node])


@given(st.sampled_from([node for node in ENTRIES if not node.startswith(("IterationItem", "LoopItem"))]))
def test_every_node_alone_is_a_canvas_without_structural_errors(node: str):
    errors, _ = check(parsing.parse(isolate(document(), node, NodeInputs())))

    assert errors == []
