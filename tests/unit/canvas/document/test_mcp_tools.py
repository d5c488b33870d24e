"""The MCP tools that the Agents of a document offer, and the digests by which changed tools are recognised."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document.mcp_tools import digest_of, offered_tools, schema_in

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.dictionaries(st.text(max_size=5), VALUES, max_size=4)


def agent(*mcp: Any, tools: list[Any] | None = None) -> dict[str, Any]:
    return {"component_name": "Agent", "params": {"mcp": list(mcp), "tools": tools or []}}


def test_tools_with_a_schema_are_offered_by_agents_and_sub_agents():
    inner = agent({"mcp_id": "s2", "tools": {"b": {"inputSchema": {"type": "object"}}}})
    outer = agent(
        {
            "mcp_id": "s1",
            "tools": {"a": {"description": "A.", "parameters": {"x": "string"}}, "vague": {"description": "V."}},
        },
        tools=[inner],
    )
    dsl = {"components": {"Agent:0": {"obj": outer}}}

    found = [(offer.server, offer.name, offer.description) for offer in offered_tools(dsl)]

    assert found == [("s1", "a", "A."), ("s2", "b", "")]


@pytest.mark.parametrize(
    ("tool", "schema"),
    [
        ({"inputSchema": {"type": "object"}, "parameters": {"x": "string"}}, {"type": "object"}),
        ({"parameters": CITY}, CITY),
        ({"parameters": {"city": {"type": "string", "required": True}}}, {**CITY, "required": ["city"]}),
        ({"parameters": {"city": "string"}}, CITY),
        (
            {"parameters": {"city": "The city's name", "days": {"type": "integer", "required": False}}},
            {"type": "object", "properties": {"city": {"description": "The city's name"}, "days": {"type": "integer"}}},
        ),
        (
            {"parameters": {"city": "", "days": 5}},
            {"type": "object", "properties": {"city": {}, "days": {}}},
        ),
        ({"parameters": {}}, None),
        ({"parameters": ["city"]}, None),
        ({}, None),
    ],
)
def test_the_schema_of_a_tool_may_be_written_as_parameters(tool: dict[str, Any], schema: dict[str, Any] | None):
    assert schema_in(tool) == schema


@given(VALUES)
def test_offered_tools_accepts_any_document(value: Any):
    assert list(offered_tools({"mcp": value, "components": [value]})) is not None


@given(st.text(max_size=8), SCHEMAS)
def test_digest_of_a_tool_does_not_depend_on_the_order_of_keys(description: str, schema: dict[str, Any]):
    reversed_schema = dict(reversed(schema.items()))

    assert digest_of(description, schema) == digest_of(description, json.loads(json.dumps(reversed_schema)))


@given(st.text(max_size=8), SCHEMAS, st.text(min_size=1, max_size=5))
def test_digest_of_a_tool_changes_with_every_added_word(description: str, schema: dict[str, Any], word: str):
    assert digest_of(description + word, schema) != digest_of(description, schema)
    assert digest_of(description, {**schema, "title": word}) != digest_of(description, {**schema, "title": word + "."})
