"""Old component names: ids, names and references are renamed, and nothing else."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import component_names

OLD: dict[str, Any] = {
    "components": {
        "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["Splitter:a"], "upstream": []},
        "Splitter:a": {
            "obj": {"component_name": "Splitter", "params": {"Splitter:a": "Splitter:a", "n": 1}},
            "downstream": ["Message:b"],
            "upstream": ["begin"],
            "parent_id": "Parallel:p",
        },
        "Message:b": {
            "obj": {
                "component_name": "Message",
                "params": {
                    "content": ["{{ Splitter:a@chunks }} of Splitter:a, {Splitter:ab@x}"],
                    "ref": "Splitter:a@y",
                },
            },
            "downstream": [],
            "upstream": ["Splitter:a"],
        },
        "Parallel:p": {"obj": {"component_name": "Parallel", "params": {}}, "downstream": [], "upstream": []},
    },
    "path": ["begin", "Splitter:a"],
    "history": [["user", "{Splitter:a@x}"]],
    "globals": {"env.x": "{Splitter:a@x}"},
    "graph": {
        "nodes": [
            {
                "id": "Splitter:a",
                "parentId": "Parallel:p",
                "type": "splitterNode",
                "data": {"label": "Splitter", "name": "Splitter", "form": {"to": "Splitter:a"}},
            },
            {"id": "Message:b", "type": "messageNode", "data": {"label": "Message", "name": "Splitter 2"}},
        ],
        "edges": [
            {"id": "xy-edge__Splitter:astart-Message:bend", "source": "Splitter:a", "target": "Message:b"},
        ],
    },
}


def test_ids_names_and_references_are_renamed_together():
    renamed = component_names.rename_components(OLD)

    components = renamed["components"]
    assert list(components) == ["begin", "TokenChunker:a", "Message:b", "Iteration:p"]
    assert components["begin"]["downstream"] == ["TokenChunker:a"]
    assert components["TokenChunker:a"]["obj"]["component_name"] == "TokenChunker"
    assert components["TokenChunker:a"]["parent_id"] == "Iteration:p"
    assert components["Message:b"]["upstream"] == ["TokenChunker:a"]
    assert renamed["path"] == ["begin", "TokenChunker:a"]
    assert renamed["history"] == [["user", "{TokenChunker:a@x}"]]


def test_references_are_renamed_with_and_without_braces_but_words_and_unknown_ids_are_not():
    params = component_names.rename_components(OLD)["components"]["Message:b"]["obj"]["params"]

    assert params["content"] == ["{{ TokenChunker:a@chunks }} of Splitter:a, {Splitter:ab@x}"]
    assert params["ref"] == "TokenChunker:a@y"


def test_keys_and_globals_are_not_renamed():
    renamed = component_names.rename_components(OLD)

    assert renamed["components"]["TokenChunker:a"]["obj"]["params"] == {"Splitter:a": "TokenChunker:a", "n": 1}
    assert renamed["globals"] == OLD["globals"]


def test_drawing_is_renamed_without_changing_display_names():
    graph = component_names.rename_components(OLD)["graph"]

    chunker, message = graph["nodes"]
    assert (chunker["id"], chunker["parentId"], chunker["type"]) == ("TokenChunker:a", "Iteration:p", "chunkerNode")
    assert chunker["data"] == {"label": "TokenChunker", "name": "TokenChunker", "form": {"to": "TokenChunker:a"}}
    assert message["data"]["name"] == "Splitter 2"
    assert graph["edges"] == [
        {"id": "xy-edge__TokenChunker:astart-Message:bend", "source": "TokenChunker:a", "target": "Message:b"}
    ]


def test_ids_of_a_drawing_without_components_are_renamed():
    renamed = component_names.rename_components({"graph": OLD["graph"]})

    assert [node["id"] for node in renamed["graph"]["nodes"]] == ["TokenChunker:a", "Message:b"]


def test_parameters_implied_by_an_old_component_name_are_added():
    renamed = component_names.rename_components({"components": {"Fillup:a": {"name": "Fillup"}, **OLD["components"]}})

    assert renamed["components"]["Iteration:p"]["obj"]["params"] == {"max_concurrency": 4}
    assert renamed["components"]["UserFillUp:a"] == {"name": "UserFillUp", "params": {"enable_tips": False}}


def test_id_is_not_renamed_when_the_new_id_exists():
    renamed = component_names.rename_components(
        {"components": {"Generate:0": {}, "LLM:0": {"downstream": ["Generate:0"]}}}
    )

    assert renamed == {"components": {"Generate:0": {}, "LLM:0": {"downstream": ["Generate:0"]}}}


@pytest.mark.parametrize("source", [None, [], "text", 3])
def test_value_that_is_not_an_object_is_returned_unchanged(source: object):
    assert component_names.rename_components(source) is source


def test_rename_components_does_not_modify_its_argument():
    before = copy.deepcopy(OLD)

    component_names.rename_components(OLD)

    assert before == OLD


IDS = st.sampled_from(["begin", "Generate:0", "LLM:0", "PDFGenerator:x", "DocsGenerator:x", "Parallel:1", "Splitter:2"])
NAMES = st.sampled_from(["Generate", "generate", "LLM", "Parallel", "Fillup", "PDFGenerator", "Splitter", "Message"])
ENTRIES = st.builds(
    lambda name, downstream, text: {
        "obj": {"component_name": name, "params": {"content": [text]}},
        "downstream": downstream,
    },
    NAMES,
    st.lists(IDS, max_size=3),
    st.builds("say {{{}@content}} and {}@x".format, IDS, IDS) | IDS,
)


@given(st.dictionaries(IDS, ENTRIES, max_size=6))
def test_rename_components_is_idempotent(components: dict[str, Any]):
    once = component_names.rename_components({"components": components, "path": list(components)})

    assert component_names.rename_components(once) == once
