"""Differences of JSON values, texts and documents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.document import differences
from canvas.document.differences import MAX_CHANGES, MAX_PREVIEW, MISSING, Room, document_differences, find_changes
from canvas.document.document import Document
from tests.builders import document_of

values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "c d"]), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("a", "b", "paths"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({"a": 1}, {"a": True}, ["a"]),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3, 4]}}, ["a.b[1]", "a.b[2]"]),
        ({"sys.query": 1}, {}, ['["sys.query"]']),
        ({"a": {}}, {"a": []}, ["a"]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
    ],
)
def test_changes_have_the_path_of_the_innermost_value_that_differs(a: Any, b: Any, paths: list[str]):
    assert [path for path, _, _ in find_changes("", a, b)] == paths


@given(values, values)
def test_values_without_changes_are_equal_and_changes_mirror(a: Any, b: Any):
    found = list(find_changes("x", a, b))

    assert (not found) == differences.is_equal(a, b)
    assert sorted(path for path, _, _ in found) == sorted(path for path, _, _ in find_changes("x", b, a))
    assert list(find_changes("x", a, a)) == []
    assert all(old is not MISSING or new is not MISSING for _, old, new in found)


def test_text_diff_shows_lines_that_differ_also_at_the_end_of_the_text():
    assert differences.text_diff("a\nb", "a\nc", Room()) == {
        "diff": "--- A\n+++ B\n@@ -1,2 +1,2 @@\n a\n-b\n+c", "diff_cut": False,
    }  # fmt: skip
    assert differences.text_diff("a\n", "a", Room())["diff"].endswith("\n a\n-")


@pytest.mark.parametrize("text", ["x" * (MAX_PREVIEW + 1), "\n" * 1001])
def test_diff_of_a_long_text_says_that_it_is_cut(text: str):
    assert differences.text_diff(text, "a", Room())["diff_cut"]


def test_value_that_is_too_long_is_cut_and_says_so():
    shown = differences.preview({"text": "x" * MAX_PREVIEW}, Room())

    assert (shown["cut"], len(shown["value"]), shown["chars"]) == (True, MAX_PREVIEW, MAX_PREVIEW + len('{"text": ""}'))
    assert differences.preview([1], Room()) == {"value": [1], "chars": 3, "cut": False}


def test_values_of_a_reply_share_its_room():
    room = Room(left=MAX_PREVIEW)

    shown = [len(differences.preview("x" * MAX_PREVIEW, room)["value"]) for _ in range(2)]

    assert shown == [MAX_PREVIEW, differences.MIN_PREVIEW]


def test_short_text_has_no_diff_and_a_text_of_lines_has():
    assert "diff" not in differences.change_of("x", "a", "b", Room())
    assert "diff" in differences.change_of("x", "a\nb", "a\nc", Room())
    assert differences.change_of("x", MISSING, "b", Room())["kind"] == "only_b"


def test_document_has_no_differences_from_itself():
    document = document_of("begin -> pick -> say, model")

    found = document_differences(document, document)

    assert (found["same"], found["cut"]) == (True, False)
    assert [found[name] for name in ("changed", "only_a", "only_b", "variables")] == [[], [], [], []]


def test_documents_differ_in_parameters_nodes_edges_and_variables():
    a = document_of("begin -> work -> say", work={"script": "x"})
    b = document_of("begin -> work -> other", work={"script": "y"})
    b = Document(b.entries, {}, globals={"env.tone": "kind"})

    found = document_differences(a, b)

    assert not found["same"]
    assert [(node["node_id"], [change["path"] for change in node["changes"]]) for node in found["changed"]] == [
        ("work", ["params.script"])
    ]
    assert [node["node_id"] for node in found["only_a"]] == ["say"]
    assert [node["node_id"] for node in found["only_b"]] == ["other"]
    assert found["edges"] == {
        "only_a": [{"from": "work", "to": "say"}], "only_b": [{"from": "work", "to": "other"}],
    }  # fmt: skip
    assert [(change["path"], change["b"]["value"]) for change in found["variables"]] == [
        ('globals["env.tone"]', "kind")
    ]


def test_more_changes_than_are_listed_are_said_to_be_cut():
    a = document_of("begin -> work", work={"list": [0] * (MAX_CHANGES + 1)})
    b = document_of("begin -> work", work={"list": [1] * (MAX_CHANGES + 1)})

    found = document_differences(a, b)

    assert (len(found["changed"][0]["changes"]), found["cut"]) == (MAX_CHANGES, True)
