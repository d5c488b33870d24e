"""Parse stored canvases of every shape, and dump them unchanged."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import parsing
from canvas.errors import InvalidCanvas
from canvas.validation import check

CANVASES = sorted((Path(__file__).parents[3] / "recordings" / "ragflow").rglob("*.json"))


def node(component: str, *downstream: str, **params: Any) -> dict[str, Any]:
    return {"obj": {"component_name": component, "params": params}, "downstream": list(downstream), "upstream": []}


def parse_error(source: Any, **options: Any) -> InvalidCanvas:
    with pytest.raises(InvalidCanvas) as caught:
        parsing.parse(source, **options)
    return caught.value


@pytest.mark.parametrize("path", CANVASES, ids=lambda path: path.stem)
def test_upstream_canvases_parse_without_errors_and_survive_a_round_trip(path: Path):
    document = parsing.parse(path.read_bytes())

    assert check.check(document)[0] == []
    assert parsing.parse(json.dumps(parsing.dump(document))) == document


def test_missing_parts_get_their_defaults():
    document = parsing.parse(
        {"components": {"begin": node("Begin")}, "variables": {"n": {"type": "number", "value": 3}}}
    )

    assert parsing.dump(document) == {
        "components": {"begin": node("Begin")},
        "variables": {"n": {"type": "number", "value": 3}},
        "path": [],
        "history": [],
        "retrieval": [],
        "memory": [],
        "globals": {
            "sys.query": "",
            "sys.user_id": "",
            "sys.conversation_turns": 0,
            "sys.files": [],
            "sys.history": [],
            "sys.date": "",
            "env.n": 3,
        },
    }


def test_unknown_fields_survive_the_round_trip():
    source = {
        "components": {"begin": {**node("Begin", unknown_param={"a": [1]}), "note": "mine"}},
        "answer": [],
        "messages": [{"role": "x"}],
        "embed_id": "z",
    }

    dumped = parsing.dump(parsing.parse(source))

    assert dumped["components"]["begin"]["note"] == "mine"
    assert dumped["components"]["begin"]["obj"]["params"] == {"unknown_param": {"a": [1]}}
    assert (dumped["answer"], dumped["messages"], dumped["embed_id"]) == ([], [{"role": "x"}], "z")


def test_changing_a_dump_does_not_change_the_document():
    document = parsing.parse({"components": {"begin": node("Begin", x=[1])}})

    parsing.dump(document)["components"]["begin"]["obj"]["params"]["x"].append(2)

    assert document.entries["begin"].params == {"x": [1]}


def test_flat_entries_and_edges_inside_obj_are_accepted():
    document = parsing.parse(
        {
            "components": {
                "begin": {"id": "begin", "name": "Begin", "params": {"mode": "task"}, "downstream": ["Message:0"]},
                "Message:0": {"obj": {"component_name": "Message", "params": None, "downstream": ["x", "y", "x"]}},
            }
        }
    )

    assert document.entries["begin"].component == "Begin"
    assert document.entries["begin"].params == {"mode": "task"}
    assert document.entries["Message:0"].downstream == ("x", "y")
    assert parsing.parse(parsing.dump(document)) == document


@pytest.mark.parametrize(
    ("written", "component"),
    [
        ("message", "Message"),
        ("llm", "LLM"),
        ("Generate", "LLM"),
        ("generate", "LLM"),
        ("tavily_search", "TavilySearch"),
        ("EXESQL", "ExeSQL"),
        ("search_my_dateset", "Retrieval"),
        ("DocsGenerator", "DocGenerator"),
        ("NoSuchThing", "NoSuchThing"),
    ],
)
def test_component_names_are_matched_in_every_spelling_and_unknown_names_stay(written: str, component: str):
    document = parsing.parse({"components": {"x": node(written)}})

    assert document.entries["x"].component == component


def test_nodes_that_belong_only_to_the_drawing_are_not_entries():
    document = parsing.parse({"components": {"begin": node("Begin", "Note:1", "Message:1"), "Note:1": node("Note")}})

    assert list(document.entries) == ["begin"]
    assert document.entries["begin"].downstream == ("Message:1",)
    assert "Note:1" in parsing.dump(document)["components"]


def test_display_names_and_missing_parents_come_from_the_drawing():
    nodes = [{"id": "Message:0", "parentId": "Loop:0", "data": {"name": "Answer"}}, {"id": "Loop:0", "data": {}}]

    document = parsing.parse(
        {"components": {"Loop:0": node("Loop"), "Message:0": node("Message")}, "graph": {"nodes": nodes}}
    )

    assert (document.entries["Message:0"].name, document.entries["Message:0"].parent) == ("Answer", "Loop:0")
    assert document.entries["Loop:0"].name == ""


def test_history_and_memory_may_be_objects_and_retrieval_a_single_one():
    document = parsing.parse(
        {
            "components": {},
            "history": [["user", "hi"], {"role": "assistant", "content": {"content": "ho"}, "payload": {}}],
            "memory": [{"user": "u", "assistant": "a", "summary": "s"}],
            "retrieval": {"chunks": [], "doc_aggs": []},
        }
    )

    assert document.history == (["user", "hi"], ["assistant", {"content": "ho"}])
    assert document.memory == (["u", "a", "s"],)
    assert document.retrieval == ({"chunks": [], "doc_aggs": []},)


def test_a_file_that_wraps_its_document_is_unwrapped():
    wrapped = {"id": 3, "title": "Template", "dsl": {"components": {"begin": node("Begin")}}}

    assert parsing.parse(wrapped) == parsing.parse(wrapped["dsl"])


def test_last_of_two_equal_json_keys_is_used():
    document = parsing.parse('{"components": {}, "globals": {"env.x": 1, "env.x": 2}}')

    assert document.globals["env.x"] == 2


@pytest.mark.parametrize("source", ["", "{", "{'a': 1}", b"\xff\xfe\x00", '{"a": 01}'])
def test_text_that_is_not_json_is_refused(source: str | bytes):
    assert parse_error(source).message == "Invalid DSL JSON string."


@pytest.mark.parametrize("source", ["[]", "3", '"text"', "null", b"[]"])
def test_json_that_is_not_an_object_is_refused(source: str | bytes):
    assert parse_error(source).message == "DSL must be a JSON object."


def test_byte_order_mark_is_ignored():
    assert parsing.parse('\ufeff{"components": {}}') == parsing.parse('{"components": {}}'.encode("utf-8-sig"))


def test_a_canvas_that_is_too_large_is_refused_before_it_is_read():
    error = parse_error('{"components": ' + " " * 100, max_bytes=64)

    assert "115 bytes" in error.message
    assert "64" in error.message


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("NaN", "nan is not a JSON number"),
        ("-Infinity", "-inf is not a JSON number"),
        ("1e999", "inf is not a JSON number"),
        ('"\\ud800"', "surrogate"),
        ('"a\\u0000b"', "U+0000"),
        ('{"\\u0000": 1}', "U+0000"),
        ("1" + "0" * 30, "64 bits"),
        ("[" * 120 + "]" * 120, "nested deeper"),
    ],
)
def test_values_that_cannot_be_stored_are_refused_naming_node_and_field(value: str, reason: str):
    text = '{"components": {"LLM:0": {"obj": {"component_name": "LLM", "params": {"x": [1, %s]}}}}}'

    error = parse_error(text % value)

    assert error.message.startswith("DSL is not JSON-serializable.")
    assert reason in error.message
    assert error.node == "LLM:0"
    assert error.field is not None
    assert error.field.startswith("obj.params.x.1")


@pytest.mark.parametrize(
    ("document", "node", "field"),
    [
        ({"components": float("nan")}, None, "components"),
        ({"components": {}, "graph": {"nodes": float("nan")}}, None, "graph.nodes"),
        ({"components": {"LLM:0": float("nan")}}, "LLM:0", None),
    ],
)
def test_a_value_that_cannot_be_stored_outside_of_a_node_is_refused_naming_its_field(
    document: dict[str, Any], node: str | None, field: str | None
):
    error = parse_error(document)

    assert (error.node, error.field) == (node, field)
    assert (f"Node {node}" if node else f"Field {field}") in error.message


def test_document_that_is_nested_too_deeply_is_refused():
    assert "nested deeper" in parse_error("[" * 200_000).message
    assert "nested deeper" in parse_error('{"a":' * 50_000 + "1" + "}" * 50_000).message


def test_python_object_that_is_not_json_is_refused():
    assert parse_error({"components": {"x": node("LLM", y={1, 2})}}).node == "x"
    assert parse_error({"components": {}, 3: 4}).message.startswith("DSL is not JSON-serializable.")


@pytest.mark.parametrize(
    ("source", "node_id", "field"),
    [
        ({"components": []}, None, "components"),
        ({"components": {}, "globals": []}, None, "globals"),
        ({"components": {}, "variables": ["x"]}, None, "variables"),
        ({"components": {}, "variables": {"x": 1}}, None, "variables.x"),
        ({"components": {}, "history": {}}, None, "history"),
        ({"components": {}, "history": [["user"]]}, None, "history[0]"),
        ({"components": {}, "memory": [4]}, None, "memory[0]"),
        ({"components": {}, "retrieval": "x"}, None, "retrieval"),
        ({"components": {}, "path": [1]}, None, "path"),
        ({"components": {"a": 3}}, "a", "components"),
        ({"components": {"": node("LLM")}}, "", "id"),
        ({"components": {"a": {"obj": []}}}, "a", "obj"),
        ({"components": {"a": {"obj": {"params": {}}}}}, "a", "component_name"),
        ({"components": {"a": {"name": 3}}}, "a", "component_name"),
        ({"components": {"a": {"obj": {"component_name": "LLM", "params": []}}}}, "a", "params"),
        ({"components": {"a": {**node("LLM"), "downstream": "b"}}}, "a", "downstream"),
        ({"components": {"a": {**node("LLM"), "downstream": [1]}}}, "a", "downstream"),
        ({"components": {"a": {**node("LLM"), "upstream": {}}}}, "a", "upstream"),
        ({"components": {"a": {**node("LLM"), "parent_id": 4}}}, "a", "parent_id"),
    ],
)
def test_parts_of_the_wrong_type_are_refused_naming_node_and_field(source: Any, node_id: str | None, field: str):
    error = parse_error(source)

    assert (error.node, error.field) == (node_id, field)
    assert field in error.message


def test_parse_error_contains_the_display_name_of_the_node():
    graph = {"nodes": [{"id": "a", "data": {"name": "Search"}}]}

    error = parse_error({"components": {"a": {"obj": {"component_name": "LLM", "params": 1}}}, "graph": graph})

    assert error.message == 'Node "Search" (a): `params` must be an object.'


def test_a_container_without_item_node_gets_one_that_starts_the_body():
    body = {"parent_id": "Parallel:p"}
    document = parsing.parse(
        {
            "components": {
                "begin": node("Begin", "Parallel:p"),
                "Parallel:p": node("Parallel", "Message:m", items_ref="sys.files"),
                "StringTransform:a": {**node("StringTransform", "StringTransform:b"), **body},
                "StringTransform:b": {**node("StringTransform"), **body},
                "Switch:c": {**node("Switch", end_cpn_ids=["StringTransform:b"]), **body},
                "Message:m": node("Message"),
            }
        }
    )

    container, item = document.entries["Iteration:p"], document.entries["IterationItem:p"]
    assert (container.component, container.params["max_concurrency"]) == ("Iteration", 4)
    assert container.downstream == ("Message:m",)
    assert (item.component, item.parent) == ("IterationItem", "Iteration:p")
    assert item.downstream == ("StringTransform:a", "Switch:c")
    assert parsing.parse(parsing.dump(document)) == document


def test_added_item_node_gets_the_id_that_the_body_refers_to():
    document = parsing.parse(
        {
            "components": {
                "Loop:1": node("Loop"),
                "Message:m": {**node("Message", content=["{LoopItem:Old@index}"]), "parent_id": "Loop:1"},
            }
        }
    )

    assert document.entries["LoopItem:Old"].downstream == ("Message:m",)


def test_existing_item_node_is_not_changed():
    document = parsing.parse(
        {
            "components": {
                "Iteration:1": node("Iteration"),
                "IterationItem:x": {**node("IterationItem"), "parent_id": "Iteration:1"},
            }
        }
    )

    assert list(document.entries) == ["Iteration:1", "IterationItem:x"]
    assert document.entries["IterationItem:x"].downstream == ()


def test_containers_that_contain_each_other_are_refused():
    entries = {"Loop:a": {**node("Loop"), "parent_id": "Loop:b"}, "Loop:b": {**node("Loop"), "parent_id": "Loop:a"}}

    assert parse_error({"components": entries}).field == "parent_id"


IDS = [
    "begin",
    "Message:0",
    "LLM:0",
    "Iteration:0",
    "IterationItem:0",
    "Loop:1",
    "Switch:2",
    "Generate:3",
    "Parallel:4",
]
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
PLAIN_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
REFERENCES = st.sampled_from(["{sys.query}", "{{ LLM:0@content }}", "Loop:1@x", "env.a", "{item}", "{cur.a}"])
VALUES = st.recursive(
    SCALARS | PLAIN_TEXT | REFERENCES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN_TEXT, inner, max_size=3),
    max_leaves=6,
)
PARAM_NAMES = st.sampled_from(
    ["content", "prompts", "prompt", "tools", "items", "item_var", "outputs", "inputs", "text", "query", "x"]
)
ENTRIES = st.fixed_dictionaries(
    {
        "obj": st.fixed_dictionaries(
            {
                "component_name": st.sampled_from(
                    ["Begin", "message", "LLM", "Agent", "Iteration", "Loop", "Parallel", "Fillup", "Zzz"]
                ),
                "params": st.dictionaries(PARAM_NAMES, VALUES, max_size=4),
            }
        )
    },
    optional={"downstream": st.lists(st.sampled_from(IDS), max_size=3), "note": VALUES},
)
DOCUMENTS = st.fixed_dictionaries(
    {"components": st.dictionaries(st.sampled_from(IDS), ENTRIES, max_size=6)},
    optional={
        "globals": st.dictionaries(st.sampled_from(["sys.query", "env.a", "other"]), VALUES),
        "variables": st.just([])
        | st.dictionaries(PLAIN_TEXT, st.dictionaries(PLAIN_TEXT, VALUES, max_size=2), max_size=2),
        "history": st.lists(st.tuples(st.sampled_from(["user", "assistant"]), VALUES).map(list), max_size=2),
        "retrieval": st.lists(VALUES, max_size=2) | st.dictionaries(PLAIN_TEXT, VALUES, max_size=2),
        "path": st.lists(st.sampled_from(IDS), max_size=2),
        "extra": VALUES,
    },
)


@given(DOCUMENTS)
def test_dump_of_a_document_parses_to_the_same_document(source: dict[str, Any]):
    document = parsing.parse(source)

    assert parsing.parse(parsing.dump(document)) == document
    assert parsing.parse(json.dumps(parsing.dump(document))) == document


@given(st.text() | st.binary() | VALUES.map(json.dumps))
def test_any_upload_is_parsed_or_refused(source: str | bytes):
    try:
        document = parsing.parse(source)
    except InvalidCanvas:
        return
    assert parsing.parse(parsing.dump(document)) == document
