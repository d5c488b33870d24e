"""ListOperations selects items of lists, and sorts them."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from canvas.errors import NodeFailure, UnresolvedReference
from canvas.outcome import Finished
from components.nodes.data.list_operations import OPERATIONS, ListOperationsParams, list_operations
from tests.fakes import FakeContext, run

NUMBERS = [3, 1, 2, 3, 1]
LETTERS = ["c", "a", "e", "b", "a"]
PEOPLE = [
    {"id": 3, "name": "Cid", "tag": "x"},
    {"id": 1, "name": "Ann", "tag": "y"},
    {"id": 2, "name": "Bob", "tag": "x"},
]

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda it: st.lists(it, max_size=4) | st.dictionaries(st.text(), it, max_size=4), max_leaves=8
)


def result(items: Any, operation: Any, **params: Any) -> Any:
    ctx = FakeContext(globals={"env.arr": items})
    outcome = run(list_operations, {"query": "env.arr", "operations": operation, **params}, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs["result"]


def exactly(value: Any) -> str:
    """Return JSON text, in which 1, 1.0 and true differ; they are equal in Python."""
    return json.dumps(value)


@pytest.mark.parametrize(
    ("n", "expected"), [(2, [1]), (-1, [1]), (1, [3]), (5, [1]), (-5, [3]), (9, []), (-6, []), (0, [])]
)
def test_the_nth_item_is_counted_from_one_or_from_the_end(n: int, expected: list[Any]):
    assert result(NUMBERS, "nth", n=n) == expected


@pytest.mark.parametrize(
    ("operation", "n", "expected"),
    [
        ("head", 0, []), ("head", 2, ["c", "a"]), ("head", 9, LETTERS), ("head", -1, []),
        ("tail", 0, []), ("tail", 2, ["b", "a"]), ("tail", 99, LETTERS), ("tail", -1, []),
    ],
)  # fmt: skip
def test_head_and_tail_return_n_items_at_most(operation: str, n: int, expected: list[Any]):
    assert result(LETTERS, operation, n=n) == expected


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        ("2", ["c", "a"]), (1.9, ["c"]), (True, ["c"]), ("abc", []), ("1.9", []), (None, []), ([1], []),
        (float("inf"), []), (float("nan"), []),
    ],
)  # fmt: skip
def test_number_that_is_not_an_integer_is_converted_or_zero(n: Any, expected: list[Any]):
    assert result(LETTERS, "head", n=n) == expected


@pytest.mark.parametrize("operation", ["topN", "TopN", "TOPN", " topn "])
def test_operation_top_n_is_an_alias_of_head(operation: str):
    assert result(NUMBERS, operation, n=2) == [3, 1]


@pytest.mark.parametrize("operation", [None, "", " "])
def test_missing_operation_means_nth(operation: Any):
    assert result(LETTERS, operation, n=2) == ["a"]


@pytest.mark.parametrize(
    ("operation", "n"), [("nth", 9), ("nth", 0), ("nth", -6), ("head", 0), ("head", 6), ("tail", 6)]
)
@pytest.mark.parametrize("strict", [True, 1, "1", "true", "YES", "on"])
def test_number_out_of_range_fails_the_node_in_strict_mode(operation: str, n: int, strict: Any):
    with pytest.raises(NodeFailure, match=operation):
        result(NUMBERS, operation, n=n, strict=strict)


@pytest.mark.parametrize(
    ("operation", "n", "expected"), [("nth", 2, ["a"]), ("head", 2, ["c", "a"]), ("tail", 5, LETTERS)]
)
def test_number_in_range_returns_the_items_in_strict_mode(operation: str, n: int, expected: list[Any]):
    assert result(LETTERS, operation, n=n, strict="true") == expected


@pytest.mark.parametrize("strict", [False, 0, None, "", "no", "false", "0"])
def test_strict_mode_is_off_for_other_values(strict: Any):
    assert result(NUMBERS, "nth", n=9, strict=strict) == []


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        ("contains", "1", [1, 1.0, {"k": [1]}]), ("=", "True", [True]), ("=", True, [True]), ("=", "", [None]),
        ("=", None, [None]),
        ("=", 1, [1]), ("≠", "x", [None, True, 1, 1.0, {"k": [1]}]), ("start with", "1", [1, 1.0]),
        ("end with", "e", [True]), ("end with", ".0", [1.0]), ("contains", 0, [1.0]),
        ("=", "{'k': [1]}", [{"k": [1]}]), ("Contains", "1", []), ("==", "x", []), ("explode", "x", []),
        (None, "x", []), (["="], "x", []),
    ],
)  # fmt: skip
def test_filter_compares_the_python_text_of_items(operator: Any, value: Any, expected: list[Any]):
    items = [None, "x", True, 1, 1.0, {"k": [1]}]

    matching = result(items, "filter", filter={"operator": operator, "value": value})

    assert exactly(matching) == exactly(expected)


@pytest.mark.parametrize("rule", [None, {}, "x", {"value": ""}])
def test_filter_without_a_rule_returns_empty_items(rule: Any):
    assert result(["a", None, ""], "filter", filter=rule) == [None, ""]


@pytest.mark.parametrize(
    ("method", "expected"),
    [("asc", [1, 1, 2, 3, 3]), ("desc", [3, 3, 2, 1, 1]), ("DESC", [1, 1, 2, 3, 3]), (None, [1, 1, 2, 3, 3])],
)
def test_only_desc_sorts_in_descending_order(method: Any, expected: list[Any]):
    assert result(NUMBERS, "sort", sort_method=method) == expected


@pytest.mark.parametrize("keys", ["s, t", ["s", "t"], "s,,t,", [" s ", "t"]])
def test_objects_are_sorted_by_the_keys_named(keys: Any):
    rows = [{"s": 2, "t": "b"}, {"s": 1, "t": "z"}, {"s": 2, "t": "a"}]

    assert [row["t"] for row in result(rows, "sort", sort_by=keys)] == ["z", "a", "b"]


@pytest.mark.parametrize(
    ("params", "ids"),
    [
        ({}, [1, 2, 3]), ({"sort_by": "name"}, [1, 2, 3]), ({"sort_by": "tag, id"}, [2, 3, 1]),
        ({"sort_by": "tag,id", "sort_method": "desc"}, [1, 3, 2]), ({"sort_by": "tag"}, [3, 2, 1]),
        ({"sort_by": "tag", "sort_method": "desc"}, [1, 3, 2]), ({"sort_by": "nobody"}, [3, 1, 2]),
    ],
)  # fmt: skip
def test_sorting_objects_is_stable_in_both_directions(params: dict[str, Any], ids: list[int]):
    assert [row["id"] for row in result(PEOPLE, "sort", **params)] == ids


def test_objects_with_nested_objects_are_sorted():
    rows = [{"k": {"b": 1}}, {"k": {"a": [2, {"x": 1}]}}, {"k": {"a": [1]}}]

    assert result(rows, "sort") == [rows[2], rows[1], rows[0]]


@pytest.mark.parametrize(
    ("items", "keys"),
    [
        ([1, "a"], ""), ([None, 1], ""), ([None, None], ""), ([{"k": 1}, 2], ""), ([2, {"k": 1}], ""),
        ([{"k": 1}, {"k": "a"}], "k"), ([{"k": 1}, {}], "k"), ([[{"k": 1}], [{"k": 2}]], ""),
    ],
)  # fmt: skip
def test_items_without_an_order_fail_the_node(items: list[Any], keys: str):
    with pytest.raises(NodeFailure, match="cannot be compared"):
        result(items, "sort", sort_by=keys)


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([1, True, 1.0, "1"], [1, "1"]), (LETTERS, ["c", "a", "e", "b"]), ([0, False, None, ""], [0, None, ""]),
        ([{"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}, {"a": 1}, {"a": True}], [{"a": 1, "b": [1, 2]}, {"a": 1}]),
        ([[1, {"k": 2}], [True, {"k": 2.0}], [1]], [[1, {"k": 2}], [1]]), ([[], {}, [[]]], [[], {}, [[]]]),
        ([{"a": 1}, [["a", 1]]], [{"a": 1}, [["a", 1]]]), ([10**30, 10**30], [10**30]), ([-1, -2], [-1, -2]),
    ],
)  # fmt: skip
def test_only_the_first_of_equal_items_remains(items: list[Any], expected: list[Any]):
    assert exactly(result(items, "drop_duplicates")) == exactly(expected)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_empty_list_stays_empty(operation: str):
    assert result([], operation, n=1) == []


@pytest.mark.parametrize(
    ("items", "outputs"),
    [
        (LETTERS, {"result": ["a", "a", "b", "c", "e"], "first": "a", "last": "e"}),
        ([None], {"result": [None], "first": None, "last": None}), ([], {"result": [], "first": None, "last": None}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("query", ["env.arr", "{env.arr}"])
def test_result_first_and_last_are_set_even_if_not_declared(items: list[Any], outputs: Any, query: str):
    ctx = FakeContext(globals={"env.arr": items})

    outcome = run(list_operations, {"query": query, "operations": "sort", "outputs": {"result": {}}}, ctx)

    assert outcome == Finished(outputs=outputs)
    assert ctx.inputs == {"env.arr": items}


@pytest.mark.parametrize("value", ["text", None, 5, {"k": [1]}])
def test_value_that_is_not_a_list_fails_the_node(value: Any):
    with pytest.raises(NodeFailure, match="should be an array"):
        result(value, "head", n=1)


def test_unknown_list_reference_fails_the_node():
    with pytest.raises(UnresolvedReference):
        run(list_operations, {"query": "Gone:X@result"}, FakeContext())


@pytest.mark.parametrize(
    "params",
    [
        {}, {"query": ""}, {"query": None}, {"query": "sys.files", "operations": "shuffle"},
        {"query": "sys.files", "operations": "HEAD"}, {"query": "sys.files", "operations": ["head"]},
    ],
)  # fmt: skip
def test_unknown_operations_and_missing_lists_are_refused(params: dict[str, Any]):
    with pytest.raises(ValidationError):
        ListOperationsParams.model_validate(params)


def test_too_deeply_nested_item_fails_the_node():
    deep: Any = []
    for _ in range(2_000):
        deep = [deep]

    with pytest.raises(NodeFailure, match="nested"):
        result([deep], "drop_duplicates")


@settings(max_examples=25, deadline=None)
@given(items=st.lists(JSON, max_size=6))
def test_dropping_duplicates_twice_drops_nothing_more(items: list[Any]):
    once = result(items, "drop_duplicates")

    assert exactly(result(once, "drop_duplicates")) == exactly(once)
    assert all(any(item == remaining for remaining in once) for item in items)


@settings(max_examples=25, deadline=None)
@given(
    items=JSON,
    operation=st.sampled_from(OPERATIONS),
    params=st.fixed_dictionaries({}, optional=dict.fromkeys(("n", "strict", "sort_by", "sort_method", "filter"), JSON)),
)
def test_any_list_gives_some_of_its_items_or_fails_the_node(items: Any, operation: str, params: dict[str, Any]):
    before = copy.deepcopy(items)

    try:
        selected = result(items, operation, **params)
    except NodeFailure:
        selected = []

    assert all(any(item is one for one in items) for item in selected)
    assert exactly(items) == exactly(before)
