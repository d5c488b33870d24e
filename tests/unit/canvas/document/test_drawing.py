"""Canvases of which only the drawing is stored, and drawings of canvases that have none."""

import json
from pathlib import Path
from typing import Any

import pytest

from canvas.document import drawing, parsing
from canvas.errors import InvalidCanvas

CANVASES = Path(__file__).parents[3] / "recordings" / "ragflow" / "dsl_testdata"


def drawn(node_id: str, label: str, parent: str | None = None, **form: Any) -> dict[str, Any]:
    node = {"id": node_id, "data": {"label": label, "name": f"{label} node", "form": form}}
    return {**node, "parentId": parent} if parent else node


def edge(source: str, target: str, source_handle: str = "start", target_handle: str = "end") -> dict[str, Any]:
    return {"source": source, "target": target, "sourceHandle": source_handle, "targetHandle": target_handle}


def derived(nodes: list[dict[str, Any]], *edges: dict[str, Any]) -> dict[str, Any]:
    return drawing.components_of({"nodes": nodes, "edges": list(edges)})


def test_entries_follow_from_nodes_and_edges():
    components = derived(
        [drawn("begin", "Begin"), drawn("Message:0", "Message", "Loop:0", content=["hi"]), drawn("Note:0", "Note")],
        edge("begin", "Message:0"),
        edge("begin", "Note:0"),
    )

    assert components == {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["Message:0"], "upstream": []},
        "Message:0": {
            "obj": {"component_name": "Message", "params": {"content": ["hi"]}},
            "downstream": [],
            "upstream": ["begin"],
            "parent_id": "Loop:0",
        },
    }


def test_an_agents_sub_agents_become_tools_and_its_exception_edge_a_goto():
    components = derived(
        [
            drawn("Agent:top", "Agent", tools=[{"component_name": "ArXiv"}]),
            drawn("Agent:sub", "Agent", x=1),
            drawn("Agent:deep", "Agent"),
            drawn("Tool:0", "Tool"),
            drawn("Message:0", "Message"),
            drawn("Message:error", "Message"),
        ],
        edge("Agent:top", "Agent:sub", "agentBottom", "agentTop"),
        edge("Agent:sub", "Agent:deep", "agentBottom", "agentTop"),
        edge("Agent:top", "Tool:0", "tool"),
        edge("Agent:top", "Message:0"),
        edge("Agent:top", "Message:error", "agentException"),
    )

    deep = {
        "component_name": "Agent",
        "id": "Agent:deep",
        "name": "Agent node",
        "params": {"exception_goto": [], "tools": []},
    }
    sub_params = {"x": 1, "exception_goto": [], "tools": [deep]}
    assert list(components) == ["Agent:top", "Message:0", "Message:error"]
    assert components["Agent:top"]["downstream"] == ["Message:0"]
    assert components["Message:error"]["upstream"] == ["Agent:top"]
    assert components["Agent:top"]["obj"]["params"] == {
        "exception_goto": ["Message:error"],
        "tools": [
            {"component_name": "ArXiv"},
            {"component_name": "Agent", "id": "Agent:sub", "name": "Agent node", "params": sub_params},
        ],
    }


def test_categories_lead_where_their_handles_are_drawn():
    components = derived(
        [
            drawn(
                "Categorize:0",
                "Categorize",
                items=[
                    {"name": "a", "uuid": "u1", "description": "A", "examples": [{"value": "x"}]},
                    {"name": "b", "uuid": "u2"},
                ],
                parameter="Precise",
                temperature=0.1,
                temperatureEnabled=True,
                top_p=0.3,
                topPEnabled=False,
                max_tokens=5,
                llm_id="m@F",
            )
        ],
        edge("Categorize:0", "Message:1", "u1"),
        edge("Categorize:0", "Message:2", "u2"),
        edge("Categorize:0", "Message:3", "u2"),
    )

    assert components["Categorize:0"]["obj"]["params"] == {
        "llm_id": "m@F",
        "temperature": 0.1,
        "category_description": {
            "a": {"description": "A", "examples": ["x"], "to": ["Message:1"]},
            "b": {"examples": [], "to": ["Message:2", "Message:3"]},
        },
    }
    assert components["Categorize:0"]["downstream"] == ["Message:1", "Message:2", "Message:3"]


def test_rows_of_data_operations_become_lists():
    form = {
        "query": [{"input": "a@b"}],
        "select_keys": [{"name": "id"}],
        "remove_keys": [{"name": "x"}],
        "updates": [{"key": "k"}],
    }

    components = derived([drawn("DataOperations:0", "DataOperations", **form)])

    assert components["DataOperations:0"]["obj"]["params"] == {
        "query": ["a@b"],
        "select_keys": ["id"],
        "remove_keys": ["x"],
        "updates": [{"key": "k"}],
    }


def test_a_webhooks_rows_become_schemas_and_plain_lists():
    form = {
        "mode": "Webhook",
        "schema": {
            "query": [{"key": "q", "type": "string", "required": True}, {"key": "n", "type": "number"}],
            "body": [],
        },
        "security": {
            "auth_type": "jwt",
            "allow_anonymous": True,
            "ip_whitelist": [{"value": "10.0.0.1"}],
            "jwt": {"secret": "s", "required_claims": [{"value": "sub"}]},
        },
    }

    params = derived([drawn("begin", "Begin", **form)])["begin"]["obj"]["params"]

    assert params["schema"] == {
        "query": {
            "type": "object",
            "required": ["q"],
            "properties": {"q": {"type": "string"}, "n": {"type": "number"}},
        },
        "body": {"type": "object", "required": [], "properties": {}},
    }
    assert params["security"] == {
        "auth_type": "jwt",
        "ip_whitelist": ["10.0.0.1"],
        "jwt": {"secret": "s", "required_claims": ["sub"]},
    }


def test_anonymous_webhooks_stay_so_only_without_authentication():
    form = {"mode": "Webhook", "security": {"auth_type": "none", "allow_anonymous": True}}

    params = derived([drawn("begin", "Begin", **form)])["begin"]["obj"]["params"]

    assert params["security"] == {"auth_type": "none", "allow_anonymous": True}


@pytest.mark.parametrize(
    ("graph", "field"),
    [
        ({"nodes": {}}, "graph.nodes"),
        ({"nodes": [{"data": {}}]}, "graph.nodes[0]"),
        ({"nodes": [], "edges": [{"source": "a"}]}, "graph.edges[0]"),
    ],
)
def test_a_drawing_that_cannot_be_read_is_refused_naming_the_place(graph: dict[str, Any], field: str):
    with pytest.raises(InvalidCanvas) as caught:
        drawing.components_of(graph)

    assert caught.value.field == field


def test_a_sub_agent_belongs_to_one_agent():
    nodes = [drawn("Agent:a", "Agent"), drawn("Agent:b", "Agent"), drawn("Agent:s", "Agent")]
    edges = [edge(top, "Agent:s", "agentBottom", "agentTop") for top in ("Agent:a", "Agent:b")]

    with pytest.raises(InvalidCanvas, match="Agent:s"):
        derived(nodes, *edges)


def test_sub_agents_are_not_nested_without_end():
    nodes = [drawn(f"Agent:{depth}", "Agent") for depth in range(20)]
    edges = [edge(f"Agent:{depth}", f"Agent:{depth + 1}", "agentBottom", "agentTop") for depth in range(19)]

    with pytest.raises(InvalidCanvas, match="deeper than 8"):
        derived(nodes, *edges)


def test_the_upstream_fixture_with_sub_agents_is_derived():
    document = parsing.parse((CANVASES / "subaget.json").read_text())

    assert list(document.entries) == ["begin", "Agent:GentleCrabsWrite", "Message:FieryDragonsTry"]
    assert [tool["id"] for tool in document.entries["Agent:GentleCrabsWrite"].params["tools"]] == [
        "Agent:PlentyParrotsCamp"
    ]


def test_the_upstream_fixture_with_categories_is_derived():
    document = parsing.parse((CANVASES / "questions_category.json").read_text())

    described = document.entries["Categorize:TamePartsLook"].params["category_description"]
    assert [category["to"] for category in described.values()] == [
        ["Message:AngryTeamsKnock"],
        ["Message:PunyPetsFollow"],
    ]


def test_a_canvas_without_drawing_is_drawn_in_a_row():
    document = parsing.parse(
        {
            "components": {
                "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["Message:0", "Message:0"]},
                "Message:0": {"obj": {"component_name": "Message", "params": {"content": ["x"]}}},
            }
        }
    )

    graph = drawing.with_drawing(parsing.dump(document))["graph"]

    assert [(node["id"], node["position"]) for node in graph["nodes"]] == [
        ("Message:0", {"x": 50, "y": 200}),
        ("begin", {"x": 400, "y": 200}),
    ]
    assert graph["nodes"][0]["data"] == {"label": "Message", "name": "Message:0", "form": {"content": ["x"]}}
    assert graph["edges"] == [{"id": "xy-edge__begin-Message:0", **edge("begin", "Message:0")}]


def test_plain_handles_follow_the_convention_and_others_keep_their_meaning():
    graph = {
        "nodes": [],
        "edges": [
            {"source": "a", "target": "b", "sourceHandle": "end"},
            edge("a", "c", "Case 1"),
            edge("a", "d", "u", "agentTop"),
        ],
    }

    normal = drawing.with_drawing({"components": {}, "graph": graph})

    assert normal["graph"]["edges"] == [edge("a", "b"), edge("a", "c", "Case 1"), edge("a", "d", "u", "agentTop")]


def test_drawing_a_canvas_that_is_drawn_changes_nothing():
    source = json.loads((CANVASES / "all.json").read_text())

    assert drawing.with_drawing(source) == source
