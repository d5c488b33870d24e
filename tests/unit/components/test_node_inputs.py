"""Input forms of nodes, and the places of given inputs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.document.document import Document
from canvas.errors import InvalidRequest
from components.node_inputs import input_form, place_inputs

FILE = {"id": "f", "name": "a.txt", "mime_type": "text/plain", "created_by": "x"}


def document_with(component: str, params: dict[str, Any], parent: str | None = None) -> Document:
    """Return a document with the node `N:0` and others that it may read."""
    nodes: dict[str, Any] = {
        "begin": {"obj": {"component_name": "Begin", "params": {}}},
        "LLM:0": {"obj": {"component_name": "LLM", "params": {"llm_id": "echo"}}},
        "N:0": {"obj": {"component_name": component, "params": params}, "parent_id": parent},
    }
    if parent is not None:
        nodes[parent] = {"obj": {"component_name": "Iteration", "params": {"items_ref": "begin@list"}}}
    names = [{"id": "LLM:0", "data": {"name": "Writer"}}]
    return parsing.parse({"components": nodes, "graph": {"nodes": names}})


FORMS: list[tuple[str, dict[str, Any], list[tuple[str, str, str]]]] = [
    ("Categorize", {"query": "begin@q", "category_description": {"a": {"to": ["x"]}}}, [("query", "line", "Query")]),
    ("Iteration", {"items_ref": "LLM:0@list"}, [("items", "json", "Items")]),
    ("Loop", {"loop_variables": []}, [("items", "json", "Items")]),
    ("TavilySearch", {"query": "{LLM:0@content}"}, [("query", "line", "Query")]),
    ("ExeSQL", {"sql": "{LLM:0@content}"}, [("sql", "line", "SQL")]),
    ("Google", {"q": "x"}, [("q", "line", "Query")]),
    ("TavilyExtract", {"urls": "x"}, [("urls", "json", "Urls")]),
    ("CodeExec", {"script": "def main(a): {a}", "arguments": {"a": "LLM:0@content"}}, [("a", "line", "a")]),
    (
        "Invoke",
        {"url": "http://x/{env.path}", "variables": [{"key": "k", "ref": "LLM:0@content"}]},
        [("LLM:0@content", "line", "Writer@content"), ("env.path", "line", "env.path")],
    ),
    (
        "LLM",
        {"prompts": [{"role": "user", "content": "{LLM:0@structured.name} {sys.query} {sys.query}"}]},
        [("LLM:0@structured.name", "line", "Writer@structured.name"), ("sys.query", "line", "sys.query")],
    ),
    ("StringTransform", {"method": "split", "split_ref": "LLM:0@content"}, [("line", "line", "String")]),
    (
        "StringTransform",
        {"method": "merge", "script": "{LLM:0@content}"},
        [("LLM:0@content", "line", "Writer@content")],
    ),
    ("DocGenerator", {"content": "{LLM:0@content}"}, [("content", "text", "Content")]),
    ("ExcelProcessor", {"input_files": ["begin@file"]}, [("begin@file", "file", "begin@file")]),
    ("VariableAssigner", {"variables": [{"variable": "env.x", "operator": "clear"}]}, []),
    ("ListOperations", {"query": "LLM:0@list"}, [("LLM:0@list", "line", "Writer@list")]),
    ("Begin", {"inputs": {"a": {"type": "line", "name": "A"}}}, [("a", "line", "A")]),
]


@pytest.mark.parametrize(("component", "params", "fields"), FORMS)
def test_form_has_the_own_fields_and_then_the_references(
    component: str, params: dict[str, Any], fields: list[tuple[str, str, str]]
):
    form = input_form(document_with(component, params), "N:0")

    assert [(name, field["type"], field["name"]) for name, field in form.items()] == fields


def test_node_of_a_body_shows_the_alias_that_it_reads():
    document = document_with("StringTransform", {"method": "merge", "script": "{item}"}, parent="Iteration:0")

    assert list(input_form(document, "N:0")) == ["item"]
    assert place_inputs(document, "N:0", {"item": 3}).globals == {"item": 3}


@pytest.mark.parametrize(
    ("name", "value", "is_literal"),
    [
        ("query", "plain text", True),
        ("query", "{sys.query}", False),
        ("query", "a@b", False),
        ("channel", "news", True),
    ],
)
def test_argument_of_a_tool_that_may_be_read_as_a_reference_is_given_as_an_output(
    name: str, value: str, is_literal: bool
):
    placed = place_inputs(document_with("DuckDuckGo", {"query": "{LLM:0@content}"}), "N:0", {name: value})

    if is_literal:
        assert (placed.params, placed.outputs) == ({name: value}, {})
    else:
        assert placed.params == {name: "{NodeInput@value0}"}
        assert placed.outputs == {"NodeInput": {"value0": value}}


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)))
def test_argument_of_a_program_keeps_its_value(value: Any):
    code = {"script": "def main(a): return a", "arguments": {"a": "LLM:0@content", "b": "sys.query"}}

    placed = place_inputs(document_with("CodeExec", code), "N:0", {"a": value})

    assert placed.params == {"arguments": {"a": "{NodeInput@value0}", "b": "sys.query"}}
    assert placed.outputs["NodeInput"]["value0"] == value


def test_two_paths_into_one_output_are_merged():
    prompt = {"sys_prompt": "{LLM:0@structured.a} {LLM:0@structured.b.c}"}

    placed = place_inputs(
        document_with("LLM", prompt), "N:0", {"LLM:0@structured.a": 1, "LLM:0@structured.b.c": 2, "{sys.query}": "x"}
    )

    assert placed.outputs == {"LLM:0": {"structured": {"a": 1, "b": {"c": 2}}}}
    assert placed.globals == {"sys.query": "x"}
    assert placed.warnings == []


def test_file_of_a_form_keeps_its_descriptor():
    document = document_with("ExcelProcessor", {"input_files": ["begin@file"]})

    placed = place_inputs(document, "N:0", {"begin@file": FILE, "sys.files": [FILE]})

    assert placed.outputs["begin"] == {"file": FILE, "_files": {"file": [FILE]}}
    assert placed.files == [FILE]


def test_replaced_parameter_needs_no_output_any_more():
    document = document_with("Iteration", {"items_ref": "LLM:0@list"})

    assert place_inputs(document, "N:0", {}).warnings == ["`LLM:0@list` is not given, so it is empty."]
    assert place_inputs(document, "N:0", {"items": [1]}).warnings == []


def test_field_without_an_effect_is_accepted_with_a_warning():
    assigner = {"variables": [{"variable": "env.x", "operator": "clear"}]}

    (warning,) = place_inputs(document_with("VariableAssigner", assigner), "N:0", {"items": []}).warnings

    assert warning.startswith("`items` has no effect")


LOOP = {"loop_variables": [{"variable": "n", "input_mode": "variable", "value": "LLM:0@x"}, {"variable": "m"}]}


def test_items_of_a_loop_are_initial_values_of_its_variables():
    placed = place_inputs(document_with("Loop", LOOP), "N:0", {"items": {"n": 2}})

    assert placed.params["loop_variables"] == [
        {"variable": "n", "input_mode": "constant", "value": 2}, {"variable": "m"}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "given_inputs", "text"),
    [
        (document_with("Loop", LOOP), {"items": {"x": 2}}, "object of its variables: n, m"),
        (document_with("Loop", LOOP), {"items": [1]}, "object of its variables: n, m"),
        (document_with("ExitLoop", {}), {}, "only runs as a part of a container"),
        (document_with("Answer", {}), {}, "waits for the next message"),
        (document_with("UserFillUp", {"inputs": {"a": {"type": "line"}}}), {}, "asks a person for a"),
        (document_with("Message", {"content": ["x"]}), {"a": 1}, "has no input 'a'. It has none"),
        (document_with("Message", {"content": ["{sys.query}"]}), {"N:0@content": 1}, "It has: sys.query"),
        (document_with("Message", {"content": ["x"]}), {"sys.files": "a"}, "as an upload returns them"),
    ],
)
def test_inputs_without_a_place_are_refused(document: Document, given_inputs: dict[str, Any], text: str):
    with pytest.raises(InvalidRequest, match=text):
        place_inputs(document, "N:0", given_inputs)
