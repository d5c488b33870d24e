from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canvas.errors import ToolError
from components.tools.code.output_contract import content_text, contract_of, parse_printed, to_json_value, type_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def mismatch(of: Any, value: Any) -> str | None:
    return contract_of({"result": {"type": of, "value": ""}}).find_mismatch(value)


@pytest.mark.parametrize(
    ("outputs", "name"),
    [
        ({"result": {"type": "object"}, "attachments": {"type": "Array<String>"}}, "result"),
        ({"md_table": {"type": "String"}}, "md_table"),
        ({"x": "Number"}, "x"),
        ({"x": {}, "content": {}, "raw_result": {}, "_ERROR": {}}, "x"),
    ],
)
def test_contract_is_the_only_output_that_is_not_reserved(outputs: Mapping[str, Any], name: str):
    assert contract_of(outputs).name == name


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ({}, "CodeExec contract must contain exactly one business output, got 0"),
        (None, "CodeExec contract must contain exactly one business output, got 0"),
        ({"content": {}}, "CodeExec contract must contain exactly one business output, got 0"),
        ({"a": {}, "b": {}}, "CodeExec contract must contain exactly one business output, got 2"),
        ({" content ": {}}, "CodeExec reserved output name is not allowed: content"),
        ({" ": {}}, "CodeExec business output name must not be empty"),
        ({"a.b": {}}, "CodeExec business output name must not contain '.': a.b"),
        ({"a": {"type": "Date"}}, "Unsupported expected type: Date"),
        ({"a": {"type": "Array<Date>"}}, "Unsupported expected type: Array<Date>"),
        ({"a": {"type": "Array<>"}}, "Unsupported expected type: Array<>"),
    ],
)
def test_outputs_without_a_contract_are_refused(outputs: Any, text: str):
    with pytest.raises(ToolError) as refused:
        contract_of(outputs)

    assert str(refused.value) == text


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("String", "a"), ("string", "a"), ("Number", 1), ("number", 1.5), ("Boolean", False), ("Object", {}),
        ("Null", None), ("Any", None), ("any", [1]), ("", {"a": 1}), (None, 1), ("Array<Number>", []),
        ("Array<Any>", [1, "a"]), ("array< array<string> >", [["a"], []]), ("Array<Object>", [{"a": 1}]),
    ],
)  # fmt: skip
def test_value_of_the_expected_type_is_accepted(of: Any, value: Any):
    assert mismatch(of, value) is None


@pytest.mark.parametrize(
    ("of", "value", "text"),
    [
        ("String", 3, "CodeExec contract mismatch at value: expected type String, got Number"),
        ("String", {"a": 1}, "CodeExec contract mismatch at value: expected type String, got Object"),
        ("String", None, "CodeExec contract mismatch at value: expected type String, got Null"),
        ("Number", True, "CodeExec contract mismatch at value: expected type Number, got Boolean"),
        ("number", "text", "CodeExec contract mismatch at value: expected type Number, got String"),
        ("Array<string>", "a", "CodeExec contract mismatch at value: expected type Array<String>, got String"),
        ("Object", [1], "CodeExec contract mismatch at value: expected type Object, got Array<Number>"),
        ("Array<Array<Number>>", [[1, "x"]], "CodeExec contract mismatch at [0][1]: expected type Number, got String"),
        ("Array<Array<Number>>", [[], 1], "CodeExec contract mismatch at [1]: expected type Array<Number>, got Number"),
    ],
)
def test_value_of_another_type_is_reported_with_its_path(of: str, value: Any, text: str):
    assert mismatch(of, value) == text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "Null"), (True, "Boolean"), (1, "Number"), (1.5, "Number"), ("a", "String"), ({}, "Object"),
        ([], "Array<Any>"), ([1, 2.5], "Array<Number>"), ([1, True], "Array<Any>"), ([[1]], "Array<Array<Number>>"),
        ([[1], ["a"]], "Array<Any>"),
    ],
)  # fmt: skip
def test_type_of_a_value_has_a_name(value: Any, name: str):
    assert type_of(value) == name


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), ("é", "é"), (42, "42"), (True, "True"), (1.5, "1.5"), ([], "[]"),
        ({"b": 1, "a": "é"}, '{\n  "a": "é",\n  "b": 1\n}'),
    ],
)  # fmt: skip
def test_value_is_formatted_as_content_text(value: Any, text: str):
    assert content_text(value) == text


@pytest.mark.parametrize(
    ("stdout", "value"),
    [
        ("", ""), (" \n", ""), ('{"a": [1, NaN]}\n', {"a": [1, None]}), ("3\n", 3), ("(1, None)", [1, None]),
        ("{'a': True}", {"a": True}), ("True", True), ("two words\n", "two words"),
        ("__import__('os')", "__import__('os')"),
    ],
)  # fmt: skip
def test_printed_output_is_the_value_of_a_program_without_a_result(stdout: str, value: Any):
    assert parse_printed(stdout) == value


@settings(max_examples=40, deadline=None)
@given(JSON)
def test_any_value_matches_its_own_type(value: Any):
    stored = to_json_value(value)

    assert mismatch(type_of(stored), stored) is None


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ((1, float("inf")), [1, None]),
        ({"a\x00": "\ud800"}, {"a": "\ufffd"}),
        ({1: 2}, {"1": 2}),
    ],
)
def test_values_that_cannot_be_stored_are_converted(value: Any, stored: Any):
    assert to_json_value(value) == stored


def test_value_that_json_cannot_represent_is_refused():
    deep: Any = []
    for _ in range(200):
        deep = [deep]

    with pytest.raises(ToolError, match="nested more than 100 levels"):
        to_json_value(deep)
    with pytest.raises(ToolError, match="4,300 digits"):
        to_json_value(10**5000)
    with pytest.raises(ToolError, match="of type set"):
        to_json_value([{1}])
