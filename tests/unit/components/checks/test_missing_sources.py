"""Knowledge bases, memories and MCP servers that a tenant lacks are reported by node and field."""

from typing import Any

from canvas.document.document import Document, Entry
from components.checks import missing_sources
from components.checks.missing_sources import Sources

EVERYTHING: dict[str, Any] = {
    "dataset_ids": ["policies", "begin@which", "k9"],
    "tools": [{"component_name": "Retrieval", "params": {"kb_ids": "k9", "memory_ids": ["m1"]}}],
    "mcp": [{"mcp_id": "s1", "tools": {}}],
}


def document_of(params: dict[str, Any]) -> Document:
    return Document(entries={"x": Entry("x", "Agent", params, name="Ask")}, raw={})


def test_sources_named_inside_tools_are_found():
    assert missing_sources.find_named_sources(document_of(EVERYTHING)) == Sources(
        frozenset({"policies", "k9"}), frozenset({"m1"}), frozenset({"s1"})
    )


def test_missing_source_is_a_warning_at_its_field():
    found = list(
        missing_sources.find_missing(document_of(EVERYTHING), Sources(frozenset({"policies"})), may_be_external=False)
    )

    assert [(each.field, each.code) for each in found] == [
        ("dataset_ids[2]", "unknown_dataset"),
        ("tools[0].params.kb_ids", "unknown_dataset"),
        ("tools[0].params.memory_ids[0]", "unknown_memory"),
        ("mcp[0].mcp_id", "unknown_mcp_server"),
    ]
    assert found[0].message == 'Node "Ask" (x): Dataset(k9) does not exist. Pick another.'
    assert {each.severity for each in found} == {"warning"}


def test_search_server_may_hold_bases_and_memories_but_no_mcp_servers():
    found = missing_sources.find_missing(document_of(EVERYTHING), Sources(), may_be_external=True)

    assert [each.code for each in found] == ["unknown_mcp_server"]


def test_empty_and_invalid_source_entries_are_ignored():
    odd = {"dataset_ids": ["", " ", 7, None], "memory_ids": None, "mcp_id": 3, "kb_ids": ["{begin@x}"]}

    assert missing_sources.find_named_sources(document_of(odd)) == Sources()
