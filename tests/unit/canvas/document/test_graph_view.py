"""The graph of a canvas for pages that show it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.document.graph_view import graph_json

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab@", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "id"]), inner, max_size=3),
    max_leaves=8,
)


def component(name: str, *downstream: str, parent: str | None = None, **params: Any) -> dict[str, Any]:
    entry = {"obj": {"component_name": name, "params": params}, "downstream": list(downstream)}
    return {**entry, "parent_id": parent} if parent else entry


def node(node_id: str, x: float, y: float, **more: Any) -> dict[str, Any]:
    return {
        "id": node_id,
        "position": {"x": x, "y": y},
        "data": {"name": f"the {node_id}", **more.pop("data", {})},
        **more,
    }


def edge(source: str, target: str, source_handle: str = "start", target_handle: str = "end") -> dict[str, Any]:
    handles = {"sourceHandle": source_handle, "targetHandle": target_handle}
    return {"id": f"{source}-{target}", "source": source, "target": target, **handles}


def graph_of(components: dict[str, Any], nodes: Any = None, edges: Any = None) -> dict[str, Any]:
    drawn = {"graph": {"nodes": nodes, "edges": edges if edges is not None else []}} if nodes is not None else {}
    return graph_json(parsing.parse({"components": components, **drawn}))


COMPONENTS = {
    "begin": component("Begin", "Iteration:0"),
    "Iteration:0": component("Iteration", "Message:0"),
    "IterationItem:0": component("IterationItem", parent="Iteration:0"),
    "Message:0": component("Message"),
}
NODES = [
    node("begin", 0, 10, type="beginNode"),
    node("Iteration:0", 300, 0, type="group", width=500, height=200),
    node(
        "IterationItem:0",
        0,
        10,
        type="iterationStartNode",
        parentId="Iteration:0",
        measured={"width": 80, "height": 45},
    ),
    node("Message:0", 900, -20, type="messageNode"),
    node("Note:0", 0, 300, type="noteNode", data={"label": "Note"}),
]


def test_drawn_nodes_have_their_places_sizes_and_parents() -> None:
    graph = graph_of(COMPONENTS, NODES)

    nodes = {each["id"]: each for each in graph["nodes"]}
    assert graph["drawn"] is True
    assert (nodes["begin"]["kind"], nodes["begin"]["is_start"], nodes["begin"]["name"]) == (
        "beginNode",
        True,
        "the begin",
    )
    assert (nodes["Iteration:0"]["w"], nodes["Iteration:0"]["h"]) == (500, 200)
    assert (nodes["IterationItem:0"]["parent"], nodes["IterationItem:0"]["w"]) == ("Iteration:0", 80)
    assert nodes["Note:0"]["component"] == "Note"
    assert graph["size"] == {"x": 0, "y": -20, "w": 1100, "h": 440}
    assert graph["components"] == ["Begin", "Iteration", "IterationItem", "Message", "Note"]


def test_nodes_without_or_on_the_same_place_are_not_drawn() -> None:
    moved = [*NODES[:-1], node("Note:0", 0, 10)]
    without = [{"id": "begin"}, *NODES[1:]]

    for nodes in (None, moved, without, NODES[1:]):
        graph = graph_of(COMPONENTS, nodes)
        assert (graph["drawn"], graph["size"]) == (False, None)
    assert {each["id"] for each in graph_of(COMPONENTS, NODES[1:])["nodes"]} == {each["id"] for each in NODES}


def test_children_of_different_containers_may_have_the_same_place() -> None:
    assert graph_of(COMPONENTS, NODES)["drawn"]  # begin and the item node are both at (0, 10)


def test_branches_of_a_switch_are_the_handles_of_its_edges() -> None:
    switch = component(
        "Switch", "a", "b", conditions=[{"to": ["a"], "items": []}, {"to": ["b"], "items": []}], end_cpn_ids=["b"]
    )
    components = {"begin": component("Begin", "s"), "s": switch, "a": component("Message"), "b": component("Message")}
    nodes = [node(each, number, 0) for number, each in enumerate(components)]
    edges = [edge("s", "a", "Case 1"), edge("s", "b", "end_cpn_ids"), edge("s", "b", "Case 9")]

    drawn, derived = graph_of(components, nodes, edges), graph_of(components)

    (shown,) = [each for each in drawn["nodes"] if each["id"] == "s"]
    assert [branch["key"] for branch in shown["branches"]] == ["Case 1", "Case 2", "end_cpn_ids"]
    assert [each["branch"] for each in drawn["edges"]] == ["Case 1", "end_cpn_ids", None]
    assert {(each["from"], each["to"], each["branch"]) for each in derived["edges"]} == {
        ("begin", "s", None), ("s", "a", "Case 1"), ("s", "b", "Case 2"), ("s", "b", "end_cpn_ids"),
    }  # fmt: skip


def test_branches_of_a_categorize_have_the_names_of_its_categories() -> None:
    categorize = component("Categorize", "a", category_description={"Invoice": {"to": ["a"]}, "Other": {"to": []}})
    components = {"begin": component("Begin", "c"), "c": categorize, "a": component("Message")}
    form = {"items": [{"name": "Invoice", "uuid": "u1"}, {"name": "Other", "uuid": "u2"}]}
    nodes = [node("begin", 0, 0), node("c", 1, 0, data={"form": form}), node("a", 2, 0)]

    drawn, derived = graph_of(components, nodes, [edge("c", "a", "u1")]), graph_of(components)

    branches = [{"key": "u1", "label": "Invoice"}, {"key": "u2", "label": "Other"}]
    assert next(each for each in drawn["nodes"] if each["id"] == "c")["branches"] == branches
    assert drawn["edges"][0]["branch"] == "u1"
    assert [each["branch"] for each in derived["edges"] if each["from"] == "c"] == ["Invoice"]


def test_edges_to_tools_sub_agents_and_exceptions_have_their_kinds() -> None:  # T038
    components = {"begin": component("Begin", "Agent:0"), "Agent:0": component("Agent", "m"), "m": component("Message")}
    nodes = [
        *(node(each, number, 0) for number, each in enumerate(components)),
        node("Tool:0", 0, 9, data={"label": "Tool"}),
        node("Agent:1", 9, 9, data={"label": "Agent"}),
    ]
    edges = [
        edge("Agent:0", "m"),
        edge("Agent:0", "Tool:0", "tool"),
        edge("Agent:0", "Agent:1", "agentBottom", "agentTop"),
        edge("Agent:0", "m", "agentException"),
    ]

    assert [each["kind"] for each in graph_of(components, nodes, edges)["edges"]] == [
        "flow",
        "tool",
        "agent",
        "exception",
    ]


def test_ids_of_edges_are_unique_in_a_document_without_a_drawing() -> None:
    edges = graph_of(COMPONENTS)["edges"]

    assert len({each["id"] for each in edges}) == len(edges) == 2


@given(st.lists(ANY_JSON, max_size=4), st.lists(ANY_JSON, max_size=4))
def test_any_drawing_gives_a_graph(nodes: list[Any], edges: list[Any]) -> None:
    graph = graph_of(COMPONENTS, nodes, edges)

    assert set(COMPONENTS) <= {each["id"] for each in graph["nodes"]}
