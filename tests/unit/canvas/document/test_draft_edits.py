"""Edits of a draft: JSON Patches that apply as a whole, and entries that follow from the drawing."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import draft_edits, drawing
from canvas.document.draft_edits import BadPatch, apply_patch, complete_variables, follow_drawing, follow_variables

LIMIT = 1_000_000
RECORDED = [
    json.loads(path.read_text())
    for path in sorted((Path(__file__).parents[4] / "tests/recordings/ragflow").rglob("*.json"))
]


def node(node_id: str, label: str, **form: Any) -> dict[str, Any]:
    return {"id": node_id, "data": {"label": label, "name": node_id, "form": form}}


def edge(source: str, target: str, source_handle: str = "start", target_handle: str = "end") -> dict[str, Any]:
    handles = {"sourceHandle": source_handle, "targetHandle": target_handle}
    return {"source": source, "target": target, **handles}


def drawn(*nodes: dict[str, Any], edges: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """Return a document with a drawing, and the entries that follow from it."""
    graph = {"nodes": list(nodes), "edges": list(edges)}
    return {"graph": graph, "components": drawing.components_of(graph)}


DRAWN = drawn(
    node("begin", "Begin"),
    node("Agent:0", "Agent", llm_id="echo", tools=[]),
    node("Agent:1", "Agent", llm_id="echo"),
    node("Message:0", "Message", content=["hi"]),
    edges=(
        edge("begin", "Agent:0"),
        edge("Agent:0", "Agent:1", "agentBottom", "agentTop"),
        edge("Agent:0", "Message:0"),
    ),
)


def changed(document: Mapping[str, Any], *operations: Mapping[str, Any]) -> dict[str, Any]:
    return follow_drawing(document, apply_patch(document, operations, LIMIT))


def put(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def test_changed_form_sets_the_parameters_of_its_entry_and_leaves_the_others() -> None:
    document = copy.deepcopy(DRAWN)
    params = document["components"]["Message:0"]["obj"]["params"]
    params["outputs"] = {"content": {"value": "of a run"}}
    document["components"]["Message:0"]["unknown"] = 1.0

    after = changed(document, put("/graph/nodes/3/data/form/content", ["new"]))

    assert after["components"]["Message:0"] == {
        **document["components"]["Message:0"],
        "obj": {"component_name": "Message", "params": {**params, "content": ["new"]}},
    }
    for other in ("begin", "Agent:0"):
        assert after["components"][other] == document["components"][other]


def test_parameter_that_is_removed_from_a_form_is_removed_from_its_entry() -> None:
    after = changed(DRAWN, {"op": "remove", "path": "/graph/nodes/3/data/form/content"})

    assert "content" not in after["components"]["Message:0"]["obj"]["params"]


def test_changed_form_of_a_sub_agent_changes_the_agent_above() -> None:
    after = changed(DRAWN, put("/graph/nodes/2/data/form/llm_id", "other"))

    (tool,) = after["components"]["Agent:0"]["obj"]["params"]["tools"]
    assert tool["params"]["llm_id"] == "other"
    assert "Agent:1" not in after["components"]


def test_edges_set_downstream_and_upstream_of_both_ends() -> None:
    after = changed(DRAWN, {"op": "remove", "path": "/graph/edges/2"})

    assert after["components"]["Agent:0"]["downstream"] == []
    assert after["components"]["Message:0"]["upstream"] == []


def test_nodes_that_are_drawn_and_removed_get_and_lose_their_entries() -> None:
    added = changed(DRAWN, put("/graph/nodes/-", node("Switch:0", "Switch", conditions=[])))
    removed = changed(added, {"op": "remove", "path": "/graph/nodes/4"})

    assert added["components"]["Switch:0"]["obj"] == {"component_name": "Switch", "params": {"conditions": []}}
    assert json.dumps(removed) == json.dumps(DRAWN)


def test_entry_that_the_patch_sets_itself_is_left_alone() -> None:
    own = {"obj": {"component_name": "Message", "params": {"content": ["own"]}}, "downstream": [], "upstream": []}

    after = changed(DRAWN, put("/graph/nodes/3/data/form/content", ["new"]), put("/components/Message:0", own))

    assert after["components"]["Message:0"] == own


def test_first_drawing_of_a_document_leaves_its_entries() -> None:
    document = {"components": DRAWN["components"]}

    after = changed(document, put("/graph", drawing.with_drawing(document)["graph"]))

    assert after["components"] == document["components"]


def test_document_whose_drawing_is_removed_keeps_its_entries() -> None:
    document = copy.deepcopy(DRAWN)

    assert changed(document, {"op": "remove", "path": "/graph"}) == {"components": DRAWN["components"]}


def test_node_that_can_be_derived_again_gets_its_entry() -> None:
    second = edge("Agent:2", "Agent:1", "agentBottom", "agentTop")
    broken = changed(
        DRAWN, put("/graph/nodes/-", node("Agent:2", "Agent", llm_id="echo")), put("/graph/edges/-", second)
    )
    renamed = changed(broken, put("/graph/nodes/1/data/form/llm_id", "other"))
    repaired = changed(renamed, {"op": "remove", "path": "/graph/edges/3"})

    assert set(drawing.derive(broken["graph"]).errors) == {"Agent:0", "Agent:2"}
    assert renamed["components"]["Agent:0"] == DRAWN["components"]["Agent:0"]
    assert repaired["components"]["Agent:0"]["obj"]["params"]["llm_id"] == "other"
    assert "Agent:2" in repaired["components"]


def test_flat_entry_stays_flat() -> None:
    flat = {"name": "Message", "params": {"content": ["hi"]}, "downstream": [], "upstream": ["Agent:0"]}
    document = {**DRAWN, "components": {**DRAWN["components"], "Message:0": flat}}

    after = changed(document, put("/graph/nodes/3/data/form/content", ["new"]))

    assert after["components"]["Message:0"] == {**flat, "params": {"content": ["new"]}}


def test_document_without_entries_stays_without() -> None:
    assert "components" not in changed({"graph": DRAWN["graph"]}, put("/graph/nodes/3/data/form/content", ["new"]))


@pytest.mark.parametrize("document", RECORDED[:200])
def test_move_of_a_node_changes_its_position_only(document: dict[str, Any]) -> None:
    written = dict(draft_edits.unwrap(document))
    nodes = (written.get("graph") or {}).get("nodes") or []
    if not nodes:
        pytest.skip("the document has no drawing")

    after = changed(written, put("/graph/nodes/0/position", {"x": 1, "y": 2}))

    expected = copy.deepcopy(written)
    expected["graph"]["nodes"][0]["position"] = {"x": 1, "y": 2}
    assert json.dumps(after) == json.dumps(expected)


def test_first_drawing_of_a_document_keeps_its_entries_and_takes_what_was_changed_with_it() -> None:
    written = copy.deepcopy(DRAWN["components"])
    written["Message:0"] = {
        "name": "Message",
        "params": {"content": ["hi"], "own": 1},
        "upstream": [],
        "downstream": [],
    }
    written["begin"]["downstream"] = ["Message:0", *written["begin"]["downstream"]]  # the drawing has it, too
    graph = copy.deepcopy(DRAWN["graph"])
    graph["edges"].append(edge("begin", "Message:0"))
    written["Message:0"]["upstream"] = ["Agent:0", "begin"]
    document = {"components": written}

    only_drawn = changed(document, put("/graph", graph))
    graph["nodes"][3]["data"]["form"]["content"] = ["new"]
    del graph["edges"][-1]
    with_changes = changed(document, put("/graph", graph))

    assert json.dumps(only_drawn["components"]) == json.dumps(written)
    assert with_changes["components"]["begin"]["downstream"] == ["Agent:0"]
    message = with_changes["components"]["Message:0"]
    assert (message["params"], message["upstream"]) == ({"content": ["new"], "own": 1}, ["Agent:0"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text("ab/~0", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "0"]), inner, max_size=3),
    max_leaves=8,
)
POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "~0"]), max_size=3).map(
    lambda steps: "".join(f"/{step}" for step in steps)
)
OPERATIONS = st.fixed_dictionaries(
    {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTERS},
    optional={"from": POINTERS, "value": JSON},
)


@given(st.dictionaries(st.sampled_from(["a", "b"]), JSON), st.lists(OPERATIONS | JSON, max_size=5))
def test_patch_gives_an_object_or_is_refused_and_never_changes_its_document(
    document: dict[str, Any], operations: list[Any]
) -> None:
    before = json.dumps(document)

    try:
        after = apply_patch(document, operations, LIMIT)
    except BadPatch:
        after = {}

    assert isinstance(after, dict)
    assert json.dumps(document) == before


@given(JSON, JSON, st.sampled_from(["graph", "components"]))
def test_unfinished_drawings_and_entries_of_any_shape_are_followed(one: Any, other: Any, key: str) -> None:
    before, after = {**DRAWN, key: one}, {**DRAWN, key: other}

    followed = follow_drawing(before, after)

    assert followed["graph"] == after["graph"]
    assert follow_drawing(followed, followed) == followed


def test_copies_are_limited_by_what_they_add() -> None:
    with pytest.raises(BadPatch, match="copies more than"):
        apply_patch({"a": "x" * 1000}, [{"op": "copy", "from": "", "path": "/b"}] * 60, LIMIT)


def test_patch_of_too_many_operations_is_refused() -> None:
    with pytest.raises(BadPatch, match="operations"):
        apply_patch({}, [put("/a", 1)] * (draft_edits.MAX_OPERATIONS + 1), LIMIT)


# -- variables --------------------------------------------------------------------------------------------------------
def variable(value: Any, kind: str = "string") -> dict[str, Any]:
    return {"type": kind, "value": value, "description": ""}


DECLARED: Mapping[str, Any] = {
    "variables": {"a": variable("x"), "b": variable(None, "number")},
    "globals": {"sys.query": "", "env.a": "x", "env.b": 0, "env.stray": 1},
}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([{"op": "add", "path": "/variables/c", "value": variable(None, "array<string>")}], {"env.c": []}),
        ([{"op": "replace", "path": "/variables/a/value", "value": "y"}], {"env.a": "y"}),
        ([{"op": "replace", "path": "/variables/a/description", "value": "z"}], {}),
        ([{"op": "remove", "path": "/variables/a"}], {"env.a": None}),
        ([{"op": "move", "from": "/variables/a", "path": "/variables/c"}], {"env.a": None, "env.c": "x"}),
        ([{"op": "replace", "path": "/variables", "value": []}], {"env.a": None, "env.b": None}),
        (
            [
                {"op": "replace", "path": "/variables/a/value", "value": "y"},
                {"op": "replace", "path": "/globals/env.a", "value": "own"},
            ],
            {"env.a": "own"},
        ),
        ([{"op": "remove", "path": "/globals/env.a"}], {"env.a": None}),
    ],
)
def test_values_of_variables_follow_a_patch_that_does_not_set_them(
    operations: list[dict[str, Any]], expected: Mapping[str, Any]
) -> None:
    followed = follow_variables(DECLARED, apply_patch(DECLARED, operations, LIMIT))

    every = {**DECLARED["globals"], **expected}
    assert followed["globals"] == {key: value for key, value in every.items() if value is not None}


def test_variables_of_a_whole_document_get_the_values_that_it_lacks() -> None:
    document = {"variables": {"a": variable("x"), "b": variable(7, "number")}, "globals": {"env.b": 8}, "z": 1}

    assert complete_variables(document)["globals"] == {"env.b": 8, "env.a": "x"}
    assert complete_variables({"variables": {"a": variable("x")}}) == {"variables": {"a": variable("x")}}
    assert complete_variables(DECLARED) == DECLARED
