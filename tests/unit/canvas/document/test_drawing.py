"""Derive components from a drawing, and a drawing from components."""

import json
from pathlib import Path
from typing import Any

import pytest

from canvas.document import drawing, parsing
from canvas.errors import InvalidCanvas

CANVASES = Path(__file__).parents[3] / "recordings" / "ragflow" / "dsl_testdata"


def drawn_node(node_id: str, label: str, parent: str | None = None, **form: Any) -> dict[str, Any]:
    node = {"id": node_id, "data": {"label": label, "name": f"{label} node", "form": form}}
    return {**node, "parentId": parent} if parent else node


def edge(source: str, target: str, source_handle: str = "start", target_handle: str = "end") -> dict[str, Any]:
    return {"source": source, "target": target, "sourceHandle": source_handle, "targetHandle": target_handle}


def derive_components(nodes: list[dict[str, Any]], *edges: dict[str, Any]) -> dict[str, Any]:
    return drawing.components_of({"nodes": nodes, "edges": list(edges)})


def test_components_are_derived_from_drawn_nodes_and_edges():
    components = derive_components(
        [
            drawn_node("begin", "Begin"),
            drawn_node("Message:0", "Message", "Loop:0", content=["hi"]),
            drawn_node("Note:0", "Note"),
        ],
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
    components = derive_components(
        [
            drawn_node("Agent:top", "Agent", tools=[{"component_name": "ArXiv"}]),
            drawn_node("Agent:sub", "Agent", x=1),
            drawn_node("Agent:deep", "Agent"),
            drawn_node("Tool:0", "Tool"),
            drawn_node("Message:0", "Message"),
            drawn_node("Message:error", "Message"),
        ],
        edge("Agent:top", "Agent:sub", "agentBottom", "agentTop"),
        edge("Agent:sub", "Agent:deep", "agentBottom", "agentTop"),
        edge("Agent:top", "Tool:0", "tool"),
        edge("Agent:top", "Message:0"),
        edge("Agent:top", "Message:error", "agentException"),
    )

    nested_agent = {
        "component_name": "Agent",
        "id": "Agent:deep",
        "name": "Agent node",
        "params": {"exception_goto": [], "tools": []},
    }
    sub_params = {"x": 1, "exception_goto": [], "tools": [nested_agent]}
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


def test_category_targets_are_derived_from_edge_handles():
    components = derive_components(
        [
            drawn_node(
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

    components = derive_components([drawn_node("DataOperations:0", "DataOperations", **form)])

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

    params = derive_components([drawn_node("begin", "Begin", **form)])["begin"]["obj"]["params"]

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


@pytest.mark.parametrize("row", ["q", None, {"type": "string"}, {"key": 5, "type": "string"}])
def test_row_of_a_webhooks_schema_without_a_text_as_key_is_left_out(row: object):
    form = {"mode": "Webhook", "schema": {"body": [row, {"key": "q", "type": "string"}]}}

    params = derive_components([drawn_node("begin", "Begin", **form)])["begin"]["obj"]["params"]

    assert params["schema"]["body"] == {"type": "object", "required": [], "properties": {"q": {"type": "string"}}}


def test_webhook_allows_anonymous_access_only_without_authentication():
    form = {"mode": "Webhook", "security": {"auth_type": "none", "allow_anonymous": True}}

    params = derive_components([drawn_node("begin", "Begin", **form)])["begin"]["obj"]["params"]

    assert params["security"] == {"auth_type": "none", "allow_anonymous": True}


@pytest.mark.parametrize(
    ("graph", "field"),
    [
        ({"nodes": {}}, "graph.nodes"),
        ({"nodes": [{"data": {}}]}, "graph.nodes[0]"),
        ({"nodes": [], "edges": [{"source": "a"}]}, "graph.edges[0]"),
    ],
)
def test_invalid_drawing_is_refused_with_the_name_of_the_field(graph: dict[str, Any], field: str):
    with pytest.raises(InvalidCanvas) as caught:
        drawing.components_of(graph)

    assert caught.value.field == field


def test_sub_agent_of_two_agents_is_refused():
    nodes = [drawn_node("Agent:a", "Agent"), drawn_node("Agent:b", "Agent"), drawn_node("Agent:s", "Agent")]
    edges = [edge(top, "Agent:s", "agentBottom", "agentTop") for top in ("Agent:a", "Agent:b")]

    with pytest.raises(InvalidCanvas, match="Agent:s"):
        derive_components(nodes, *edges)


def test_sub_agents_that_are_nested_too_deeply_are_refused():
    nodes = [drawn_node(f"Agent:{depth}", "Agent") for depth in range(20)]
    edges = [edge(f"Agent:{depth}", f"Agent:{depth + 1}", "agentBottom", "agentTop") for depth in range(19)]

    with pytest.raises(InvalidCanvas, match="deeper than 8"):
        derive_components(nodes, *edges)


def test_the_upstream_fixture_with_sub_agents_is_derived():
    document = parsing.parse((CANVASES / "subaget.json").read_text())

    assert list(document.entries) == ["begin", "Agent:GentleCrabsWrite", "Message:FieryDragonsTry"]
    assert [tool["id"] for tool in document.entries["Agent:GentleCrabsWrite"].params["tools"]] == [
        "Agent:PlentyParrotsCamp"
    ]


def test_the_upstream_fixture_with_categories_is_derived():
    document = parsing.parse((CANVASES / "questions_category.json").read_text())

    categories = document.entries["Categorize:TamePartsLook"].params["category_description"]
    assert [category["to"] for category in categories.values()] == [
        ["Message:AngryTeamsKnock"],
        ["Message:PunyPetsFollow"],
    ]


def test_canvas_without_a_drawing_gets_its_nodes_in_a_row():
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


def test_plain_edge_handles_are_normalized_and_others_are_unchanged():
    graph = {
        "nodes": [],
        "edges": [
            {"source": "a", "target": "b", "sourceHandle": "end"},
            edge("a", "c", "Case 1"),
            edge("a", "d", "u", "agentTop"),
        ],
    }

    with_drawing = drawing.with_drawing({"components": {}, "graph": graph})

    assert with_drawing["graph"]["edges"] == [edge("a", "b"), edge("a", "c", "Case 1"), edge("a", "d", "u", "agentTop")]


def test_with_drawing_does_not_change_a_canvas_that_has_a_drawing():
    source = json.loads((CANVASES / "all.json").read_text())

    assert drawing.with_drawing(source) == source
