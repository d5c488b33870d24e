"""VariableAggregator outputs the first of several values that is not empty."""

from typing import Any

import pytest
from pydantic import ValidationError

from canvas.outcome import Failed, Finished
from components.nodes.data.variable_aggregator import VariableAggregatorParams, variable_aggregator
from tests.fakes import FakeContext, run


def group(name: str, *variables: str) -> dict[str, Any]:
    return {"group_name": name, "variables": [{"value": variable} for variable in variables]}


@pytest.mark.parametrize(
    ("a", "b", "expected"), [("", "x", {"g": "x"}), (0, False, {}), (None, [1], {"g": [1]}), ({}, [], {})]
)
def test_empty_values_are_skipped(a: Any, b: Any, expected: dict[str, Any]):
    ctx = FakeContext(globals={"env.a": a, "env.b": b})

    assert run(variable_aggregator, {"groups": [group("g", "env.a", "env.b")]}, ctx) == Finished(outputs=expected)
    assert ctx.inputs == {"g.variables": [{"value": "env.a"}, {"value": "env.b"}]}


def test_every_group_outputs_its_own_value():
    ctx = FakeContext(globals={"env.a": "", "env.b": [1]})

    outcome = run(variable_aggregator, {"groups": [group("g", "env.a"), group("h", "env.b")]}, ctx)

    assert outcome == Finished(outputs={"h": [1]})


def test_variables_may_be_plain_texts():
    ctx = FakeContext(globals={"env.b": "x"})

    outcome = run(variable_aggregator, {"groups": [{"group_name": "g", "variables": ["{env.b}"]}]}, ctx)

    assert outcome == Finished(outputs={"g": "x"})


def test_an_unknown_variable_fails_the_node_and_earlier_groups_keep_their_values():
    ctx = FakeContext(globals={"env.a": "x"})

    outcome = run(variable_aggregator, {"groups": [group("g", "env.a"), group("h", "Nope:X@y")]}, ctx)

    assert isinstance(outcome, Failed)
    assert outcome.error == "Can't find variable: 'Nope:X@y'"
    assert outcome.outputs == {"g": "x"}


@pytest.mark.parametrize(
    ("groups", "label"),
    [
        (None, "groups"), ([], "groups"), (["x"], "groups"), ([group("", "env.a")], "group_name"),
        ([group("g")], "variables"), ([{"group_name": "g", "variables": "env.a"}], "variables"),
    ],
)  # fmt: skip
def test_incomplete_groups_are_refused(groups: Any, label: str):
    with pytest.raises(ValidationError, match=rf"\[VariableAggregator\] {label}"):
        VariableAggregatorParams.model_validate({"groups": groups})


def test_a_canvas_without_groups_is_refused():
    with pytest.raises(ValidationError, match="groups"):
        VariableAggregatorParams.model_validate({})
