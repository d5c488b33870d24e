"""How Switch and Loop compare values, by the tables of the specification."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import NodeFailure
from components.text.comparison import loop_holds, switch_holds

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)
OPERATORS = st.sampled_from(["contains", "start with", "empty", "not empty", "=", "≠", ">", "≤", "is", "is not", "in"])


@pytest.mark.parametrize(
    ("left", "operator", "operand", "expected"),
    [
        ("Hello World", "contains", "WORLD", True),
        (None, "contains", "", True),
        (None, "contains", "a", False),
        ("foobar", "contains", None, True),
        ([1, 2], "contains", "1", True),
        (123, "contains", "2", False),
        ("hello", "end with", "LO", True),
        (["ab"], "not contains", "ab", False),
        ("Yes", "=", "yes", False),
        (1, "=", "1.0", True),
        ("1", "=", 1, False),
        (True, "=", "1", True),
        (True, "=", "true", True),
        (False, "=", "TRUE", False),
        (5, "=", "five", False),
        (5, "≠", "five", True),
        (5, "contains", "five", False),
        (0, "empty", "", True),
        (False, "empty", "", True),
        (" ", "empty", "", False),
        ({"k": 0}, "not empty", "", True),
        ("10", ">", "9", True),
        ("abc", ">", "10", True),
        ("1", ">", "", True),
        ("9", ">", "10", False),
        (10, "≥", "10", True),
        (9.5, "<=", "10", True),
        ("a", "ne", "b", True),
    ],
)
def test_switch_condition_compares_values_as_specified(left: Any, operator: str, operand: Any, expected: bool):
    assert switch_holds(left, operator, operand) is expected


@pytest.mark.parametrize(
    ("left", "operator", "operand"),
    [(None, ">", "1"), ([1, 2], ">", "1"), (5, ">", "five"), ("x", "~=", "1"), ("x", "in", "x"), ("x", None, "x")],
)
def test_switch_condition_with_incomparable_values_fails_the_node(left: Any, operator: Any, operand: Any):
    with pytest.raises(NodeFailure):
        switch_holds(left, operator, operand)


@pytest.mark.parametrize(
    ("left", "operator", "operand", "expected"),
    [
        ("aXX", "contains", "X", True),
        ("aXX", "contains", "x", False),
        ("a", "is", "a", True),
        ("", "empty", None, True),
        ("a", "not empty", None, True),
        (True, "is", True, True),
        (True, "is", "true", False),
        (True, "is not", 1, True),
        (False, "empty", None, False),
        (False, "not empty", None, True),
        (3, "=", 3, True),
        (3, "=", "3", False),
        (3, "≠", "3", True),
        (3, "≥", "2.5", True),
        (3, ">=", 3, True),
        (0, "empty", None, False),
        ({}, "empty", None, True),
        ([1], "contains", 1, True),
        ([1], "is not", [2], True),
        ([], "not empty", None, False),
        (None, "empty", None, True),
        (None, "no such operator", None, False),
    ],
)
def test_loop_condition_compares_by_the_type_of_the_value(left: Any, operator: str, operand: Any, expected: bool):
    assert loop_holds(left, operator, operand) is expected


@pytest.mark.parametrize(
    ("left", "operator", "operand"),
    [
        ("a", "=", "a"),
        (True, "=", True),
        (3, "is", 3),
        ({}, "is", {}),
        ([1], ">", 1),
        (3, ">", "three"),
        ("a", "contains", 1),
    ],
)
def test_loop_condition_with_an_operator_of_another_type_fails_the_node(left: Any, operator: str, operand: Any):
    with pytest.raises(NodeFailure):
        loop_holds(left, operator, operand)


@given(JSON, OPERATORS, JSON)
def test_any_two_values_can_be_compared_or_fail_the_node(left: Any, operator: str, operand: Any):
    for holds in (switch_holds, loop_holds):
        try:
            verdict = holds(left, operator, operand)
        except NodeFailure:
            continue
        assert isinstance(verdict, bool)
