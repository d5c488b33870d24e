"""VariableAssigner changes variables, row by row."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.nodes.data.variable_assigner import AssignmentFailed, variable_assigner
from tests.fakes import FakeContext, run

NUMBER_ERROR = "ERROR:VARIABLE_NOT_NUMBER or PARAMETER_NOT_NUMBER"
TYPE_ERROR = "ERROR:PARAMETER_NOT_LIST_ELEMENT_TYPE"


def row(variable: str, operator: str, parameter: Any = None) -> dict[str, Any]:
    return {"variable": variable, "operator": operator, "parameter": parameter}


def assign(ctx: FakeContext, *rows: dict[str, Any]) -> dict[str, Any]:
    outcome = run(variable_assigner, {"variables": list(rows)}, ctx)
    assert isinstance(outcome, Finished)
    return dict(outcome.assign)


def apply_operator(value: Any, operator: str, parameter: Any, **others: Any) -> Any:
    ctx = FakeContext(globals={"env.v": value, **{f"env.{name}": other for name, other in others.items()}})
    return assign(ctx, row("env.v", operator, parameter))["env.v"]


@pytest.mark.parametrize(
    ("value", "operator", "parameter", "expected"),
    [
        (10, "+=", 4, 14), (10, "/=", 5, 2.0), (1.5, "-=", 2, -0.5), (10, "*=", 4, 40),
        (10, "+=", "4", NUMBER_ERROR), (True, "+=", 1, NUMBER_ERROR), ("x", "-=", 1, NUMBER_ERROR),
        (10, "/=", 0, "ERROR:DIVIDE_BY_ZERO"), (1e308, "*=", 10, None),
        ("x", "set", "Hi {env.p} !", "Hi pv !"), (None, "set", "{env.num}", "4"), ("x", "set", 5, 5),
        (1.5, "set", "text", "text"), ([1], "set", ["z"], ["z"]), ("x", "set", "", ""),
        ([1], "append", "env.num", [1, 4]), (None, "append", "{env.num}", [4]), ([1], "append", "env.p", TYPE_ERROR),
        ([1.0], "append", "env.num", TYPE_ERROR), ("x", "append", "env.num", "ERROR:VARIABLE_NOT_LIST"),
        ([1], "extend", "env.list", [1, 9, 8]), ([], "extend", "env.texts", ["s"]),
        ([1], "extend", "env.texts", TYPE_ERROR),
        ([1], "extend", "env.num", "ERROR:PARAMETER_NOT_LIST"), ("x", "extend", "env.list", "ERROR:VARIABLE_NOT_LIST"),
        ([1, 2], "remove_first", None, [2]), ([1, 2], "remove_last", None, [1]), ([], "remove_last", None, []),
        ("x", "remove_first", None, "ERROR:VARIABLE_NOT_LIST"),
        ("x", "overwrite", "env.list", [9, 8]), ("x", "explode", 1, None),
        ("x", "clear", None, ""), (3, "clear", None, 0), (True, "clear", None, False), ({"a": 1}, "clear", None, {}),
        ([1], "clear", None, []), (None, "clear", None, None),
    ],
)  # fmt: skip
def test_operators_assign_the_specified_value_or_error(value: Any, operator: str, parameter: Any, expected: Any):
    result = apply_operator(value, operator, parameter, p="pv", num=4, list=[9, 8], texts=["s"])

    assert result == expected
    assert type(result) is type(expected)


def test_errors_output_lists_errors_and_no_values_that_look_like_errors():
    ctx = FakeContext(globals={"env.v": "x", "env.w": "ERROR:not ours"})

    outcome = run(variable_assigner, {"variables": [row("env.v", "+=", 1), row("env.v", "overwrite", "env.w")]}, ctx)

    assert outcome.outputs == {"errors": [NUMBER_ERROR]}


def test_later_rows_read_the_values_of_earlier_rows():
    ctx = FakeContext(globals={"env.a": 1, "env.b": ""})

    result = assign(ctx, row("env.a", "+=", 1), row("env.a", "*=", 10), row("env.b", "set", "a={env.a}"))

    assert result == {"env.a": 20, "env.b": "a=20"}


def test_dotted_target_assigns_a_new_object_and_does_not_change_the_old_one():
    old = {"k": {"i": 1}}
    ctx = FakeContext(values={"begin": {"obj": old}})

    result = assign(
        ctx, row("begin@obj.k.j", "set", "x"), row("begin@new.a.b", "set", "q"), row("begin@obj.k.i", "+=", 1)
    )

    assert result == {"begin@obj": {"k": {"i": 2, "j": "x"}}, "begin@new": {"a": {"b": "q"}}}
    assert old == {"k": {"i": 1}}


def test_lists_are_never_changed_in_place():
    items = [1]
    ctx = FakeContext(globals={"env.v": items, "env.n": 2})

    assign(ctx, row("env.v", "append", "env.n"))

    assert items == [1]


@pytest.mark.parametrize(
    "bad",
    [
        row("", "set", "x"), row("env.v", "", "x"), row("env.v", "set"), row("env.missing", "set", "x"),
        row("Nope:X@y", "overwrite", "env.v"), row("env.v", "overwrite", "literal"), row("env.t.deep@x", "set", "y"),
        row("begin@text.a", "set", "y"), row("{item}", "set", "y"),
    ],
)  # fmt: skip
def test_invalid_row_fails_the_node_and_earlier_assignments_remain(bad: dict[str, Any]):
    ctx = FakeContext(globals={"env.v": "old"}, values={"begin": {"text": "t"}}, aliases={"item": "i"})

    with pytest.raises(AssignmentFailed) as failure:
        assign(ctx, row("env.v", "set", "first"), bad, row("env.v", "set", "last"))

    assert failure.value.assignments == {"env.v": "first"}


def test_too_large_number_fails_the_node():
    with pytest.raises(NodeFailure, match="too large"):
        apply_operator(10**1000, "*=", 10**1000)


@pytest.mark.parametrize("variables", [None, {}, "x", []])
def test_variables_that_are_not_a_list_of_rows_are_ignored(variables: Any):
    assert run(variable_assigner, {"variables": variables}, FakeContext()) == Finished()


@given(
    value=st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
    operator=st.sampled_from(["clear", "set", "append", "extend", "remove_first", "+=", "/=", "*=", "?"]),
    parameter=st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just("env.v"),
)
def test_any_row_assigns_a_value_or_fails_the_node(value: Any, operator: str, parameter: Any):
    ctx = FakeContext(globals={"env.v": value})

    try:
        result = assign(ctx, row("env.v", operator, parameter))
    except AssignmentFailed:
        return

    assert list(result) == ["env.v"]
