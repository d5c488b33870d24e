"""DataOperations transforms lists of objects."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from canvas.errors import NodeFailure, UnresolvedReference
from canvas.outcome import Finished
from components.nodes.data.data_operations import OPERATIONS, DataOperationsParams, data_operations
from components.text.python_text import MAX_LITERAL_CHARS
from tests.fakes import FakeContext, run

PEOPLE = [{"id": 1, "n": "Ann", "t": "x"}, {"id": 2, "n": "Bob", "t": "x"}]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda it: st.lists(it, max_size=4) | st.dictionaries(st.text(), it, max_size=4), max_leaves=8
)
RULE = st.fixed_dictionaries({"key": st.sampled_from("ab"), "operator": st.just("="), "value": JSON})


def result(operation: str, *rows: Any, env: dict[str, Any] | None = None, **params: Any) -> Any:
    ctx = FakeContext(globals={**{f"env.r{i}": value for i, value in enumerate(rows)}, **(env or {})})
    query = [f"env.r{i}" for i in range(len(rows))]
    outcome = run(data_operations, {"query": query, "operations": operation, **params}, ctx)
    assert isinstance(outcome, Finished)
    assert list(outcome.outputs) == ["result"]
    return outcome.outputs["result"]


def read(text: Any) -> Any:
    return result("literal_eval", {"v": text})[0]["v"]


def exactly(value: Any) -> str:
    """Return JSON text, in which 1, 1.0 and true differ, and so do two orders of keys."""
    return json.dumps(value)


@pytest.mark.parametrize(
    ("values", "rows"),
    [
        ([PEOPLE, {"id": 9}], [*PEOPLE, {"id": 9}]), ([["a", {"k": 1}, None, [{"k": 2}]]], [{"k": 1}]),
        ([None, "", 5, '{"k": 1}', '[{"k": 1}]', []], []), ([], []),
    ],
)  # fmt: skip
def test_rows_are_all_objects_of_all_references_in_order(values: list[Any], rows: list[Any]):
    assert result("filter_values", *values) == rows


@pytest.mark.parametrize(
    "query", ["env.r", "{env.r}", ["env.r"], [{"input": "env.r"}], {"input": "{env.r}"}, [{"input": "{env.r}", "x": 1}]]
)
def test_references_are_resolved_in_every_stored_form(query: Any):
    ctx = FakeContext(globals={"env.r": PEOPLE})

    outcome = run(data_operations, {"query": query, "operations": "filter_values"}, ctx)

    assert outcome == Finished(outputs={"result": PEOPLE})
    assert ctx.inputs == {"env.r": PEOPLE}


def test_missing_output_adds_no_rows_and_an_unknown_node_fails_the_node():
    ctx = FakeContext(globals={"env.r": PEOPLE}, components={"begin": "Begin"})
    params = {"operations": "select_keys", "select_keys": ["id"]}

    outcome = run(data_operations, {**params, "query": ["env.r", "begin@nope"]}, ctx)

    assert outcome == Finished(outputs={"result": [{"id": 1}, {"id": 2}]})
    with pytest.raises(UnresolvedReference):
        run(data_operations, {**params, "query": ["env.r", "Gone:X@rows"]}, ctx)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["id", "zz"], '[{"id": 1}, {"id": 2}]'),
        ([{"name": "n"}, {"name": "id"}], '[{"id": 1, "n": "Ann"}, {"id": 2, "n": "Bob"}]'),
        ("t", '[{"t": "x"}, {"t": "x"}]'), ([], "[{}, {}]"), (None, "[{}, {}]"), ([5, None, ["id"]], "[{}, {}]"),
    ],
)  # fmt: skip
def test_selected_keys_stay_in_the_order_of_the_row(keys: Any, expected: str):
    assert exactly(result("select_keys", PEOPLE, select_keys=keys)) == expected


@pytest.mark.parametrize("keys", [["id", "nope", 5], [{"name": "id"}, {"name": ""}], "id"])
def test_removed_keys_are_gone_and_missing_ones_ignored(keys: Any):
    assert result("remove_keys", PEOPLE, remove_keys=keys) == [{"n": "Ann", "t": "x"}, {"n": "Bob", "t": "x"}]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([PEOPLE, {"id": 9, "tags": ["a"]}], {"id": [1, 2, 9], "n": ["Ann", "Bob"], "t": ["x", "x"], "tags": ["a"]}),
        (
            [{"a": [1], "b": 1, "c": 1}, {"a": 2, "b": [2, 3], "c": 2}, {"a": [4], "c": {"k": 1}}],
            {"a": [1, 2, 4], "b": [1, 2, 3], "c": [1, 2, {"k": 1}]},
        ),
        ([{"a": None}, {"a": [[1]]}], {"a": [None, [1]]}), ([{"a": []}, {"a": 1}], {"a": [1]}), ([[]], {}), ([], {}),
    ],
)  # fmt: skip
def test_combining_collects_the_values_of_a_key_in_a_list(rows: list[Any], expected: Any):
    assert result("combine", *rows) == expected


@pytest.mark.parametrize(
    ("rule", "ids"),
    [
        ({"key": "n", "operator": "=", "value": "{env.q}"}, [2]), ({"key": "id", "operator": "=", "value": "1"}, [1]),
        ({"key": "id", "operator": "=", "value": 1}, [1]), ({"key": "id", "operator": "≠", "value": "1"}, [2, 3]),
        ({"key": "id", "operator": "==", "value": "1"}, [1]), ({"key": "id", "operator": "Equals", "value": "1"}, [1]),
        ({"key": "id", "operator": "!=", "value": "1"}, [2, 3]),
        ({"key": "n", "operator": "CONTAINS", "value": "o"}, [2]),
        ({"key": "n", "operator": "contains", "value": "O"}, []),
        ({"key": "n", "operator": "start with", "value": "A"}, [1]),
        ({"key": "n", "operator": "End With", "value": "nn"}, [1]),
        ({"key": "n", "operator": "like", "value": "Ann"}, []),
        ({"key": "n", "value": "Ann"}, []), ({"key": "t", "operator": "=", "value": ""}, [3]),
        ({"key": "t", "operator": "=", "value": None}, [3]), ({"key": "t", "operator": "=", "value": "{env.none}"}, []),
        ({"key": "b", "operator": "=", "value": "True"}, [3]), ({"key": "b", "operator": "=", "value": True}, [3]),
        ({"key": "zz", "operator": "≠", "value": "x"}, []), ({"key": ["n"], "operator": "=", "value": "x"}, []),
        ("no rule", []), ({}, []),
    ],
)  # fmt: skip
def test_filter_returns_the_rows_that_match_the_rule(rule: Any, ids: list[int]):
    rows = [*PEOPLE, {"id": 3, "t": None, "b": True}]

    matching = result("filter_values", rows, env={"env.q": "Bob", "env.none": None}, filter_values=[rule])

    assert [row["id"] for row in matching] == ids


def test_filter_needs_all_rules_to_match_and_returns_all_rows_without_rules():
    rules = [{"key": "t", "operator": "=", "value": "x"}, {"key": "id", "operator": "≠", "value": "1"}]

    assert result("filter_values", PEOPLE, filter_values=rules) == [PEOPLE[1]]
    assert result("filter_values", PEOPLE, filter_values=[]) == PEOPLE


def test_keys_are_added_and_changed():
    updates = [
        {"key": "tag", "value": "demo"}, {"key": " n ", "value": "Hi {env.q}"}, {"key": "", "value": "x"}, {"key": " "},
        {"key": "blanks", "value": "a {env.q} b"}, {"key": "raw", "value": "{env.none}"},
        {"key": "list", "value": "{env.l}"},
        {"key": "number", "value": 5}, {"key": "object", "value": {"k": "{env.q}"}}, {"key": "null", "value": None},
        {"key": "empty", "value": ""}, "no update", None, {"value": "x"},
    ]  # fmt: skip
    values = {"env.q": "Bob", "env.none": None, "env.l": [1, "a"]}

    rows = result("append_or_update", PEOPLE, env=values, updates=updates)

    added = {
        "tag": "demo", "blanks": "a Bob b", "raw": "{env.none}", "list": '[1, "a"]', "number": 5,
        "object": {"k": "{env.q}"}, "null": None, "empty": "",
    }  # fmt: skip
    assert rows == [{"id": 1, "n": "Hi Bob", "t": "x", **added}, {"id": 2, "n": "Hi Bob", "t": "x", **added}]


@pytest.mark.parametrize(
    ("row", "pairs", "expected"),
    [
        ({"id": 9, "k": "v"}, [("k", "id")], '{"id": "v"}'),
        (
            {"id": 3, "name": "Cid", "tag": "x"},
            [("id", "key"), ("nope", "x"), (" name ", " tag "), ("tag", "")],
            '{"tag": "Cid", "key": 3}',
        ),
        ({"a": 1, "b": 2}, [("a", "a"), ("", "c"), ("a ", "z")], '{"b": 2, "z": 1}'),
        ({"a": 1}, [("a", "b"), ("b", "c")], '{"c": 1}'),
    ],
)
def test_keys_are_renamed_one_after_the_other(row: Any, pairs: list[tuple[str, str]], expected: str):
    rules = [{"old_key": old, "new_key": new} for old, new in pairs]

    assert exactly(result("rename_keys", row, rename_keys=[*rules, "no rule", {}])) == f"[{expected}]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2]", [1, 2]), ("{'x': True}", {"x": True}), ('{"x": True}', {"x": True}), ("(1,2)", [1, 2]),
        ("'quoted'", "quoted"),
        ("1.5", 1.5), ("12.5", 12.5), ("None", None), ("False", False), ("True", True), (" 7", 7), ("0", 0),
        (".5", 0.5),
        ("('a', ('b',))", ["a", ["b"]]), ("[(1, 2), {3}]", [[1, 2], [3]]), ("{3, 'b', 10}", [10, 3, "b"]), ("()", []),
        ("{1: 'a', True: 'b', None: 'c', (1, 'x'): 'd'}", {"1": "b", "null": "c", '[1, "x"]': "d"}),
        ("[-3, 1e3, 0xff]", [-3, 1000.0, 255]), ("'[1]'", "[1]"), ("['[1]']", ["[1]"]),
        (r"'\ud83d\ude00'", "\U0001f600"),
    ],
)  # fmt: skip
def test_python_literals_become_values(text: str, expected: Any):
    assert exactly(read(text)) == exactly(expected)


@pytest.mark.parametrize(
    "text",
    [
        "true", "false", "none", "null", "plain", "", " ", ".", "1.2.3", "007", "-3", "+3", "1e3", "²", "0x10", "set()",
        "[1, 2", '{"x": true}', "{[]: 1}", "[a]", "(lambda: 1)()", "['a'.upper()]", "[1 + 1]", "(__import__('os'))",
        "(1+2j)", "(b'x')", "[b'x']", "{b'x': 1}", "[...]", "[1e999]", "[-1e999]", r"'\ud800'", r"'\x00'",
        "9" * 5000, "[0x" + "f" * 4000 + "]", "(" * 1000, "[" * 150 + "]" * 150,
        "(" + "-" * 5000 + "1)", "[" + "1+" * 5000 + "1]",
        "'" + "x" * MAX_LITERAL_CHARS + "'",
    ],
)  # fmt: skip
def test_text_without_a_json_compatible_literal_is_unchanged(text: str):
    assert read(text) == text


def test_literals_are_read_at_any_depth():
    row = {"a": {"n": "'quoted'"}, "j": ["1", "x", ["2"]], "k": 5, "z": None}

    assert result("literal_eval", row) == [{"a": {"n": "quoted"}, "j": [1, "x", [2]], "k": 5, "z": None}]


def test_default_operation_is_literal_eval():
    outcome = run(data_operations, {"query": "env.r"}, FakeContext(globals={"env.r": {"a": "1"}}))

    assert outcome == Finished(outputs={"result": [{"a": 1}]})


@pytest.mark.parametrize("operation", ["explode", "", None, "COMBINE", ["combine"]])
def test_an_unknown_operation_is_refused(operation: Any):
    with pytest.raises(ValidationError, match="not supported"):
        DataOperationsParams.model_validate({"operations": operation})


def test_too_deeply_nested_row_fails_the_node():
    deep: Any = "1"
    for _ in range(2_000):
        deep = [deep]

    with pytest.raises(NodeFailure, match="nested"):
        result("literal_eval", {"k": deep})


@settings(max_examples=25, deadline=None)
@given(
    values=st.lists(JSON | st.lists(st.dictionaries(st.sampled_from("ab"), JSON, max_size=2), max_size=3), max_size=3),
    operation=st.sampled_from(OPERATIONS),
    params=st.fixed_dictionaries(
        {},
        optional={
            "select_keys": JSON,
            "remove_keys": JSON,
            "filter_values": JSON | st.tuples(RULE).map(list),
            "updates": JSON | st.tuples(RULE).map(list),
            "rename_keys": JSON | st.just([{"old_key": "a", "new_key": "b"}]),
        },
    ),
)  # fmt: skip
def test_any_values_give_json_or_fail_the_node_and_are_not_changed(
    values: list[Any], operation: str, params: dict[str, Any]
):
    before = copy.deepcopy(values)

    try:
        transformed = result(operation, *values, **params)
    except NodeFailure:
        transformed = None

    assert transformed is None or isinstance(transformed, dict if operation == "combine" else list)
    json.dumps(transformed, allow_nan=False)
    assert exactly(values) == exactly(before)


@settings(max_examples=25, deadline=None)
@given(
    value=st.recursive(SCALARS, lambda it: st.lists(it) | st.tuples(it) | st.dictionaries(st.text(), it), max_leaves=6)
)
def test_repr_of_any_value_is_parsed_to_that_value(value: Any):
    assert exactly(read(f"[{value!r}]")) == exactly([value]) or "\x00" in repr(value) or "\\x00" in repr(value)
