"""Switch sends the run down the first branch whose condition holds."""

from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import NodeFailure, UnresolvedReference
from canvas.outcome import Routed
from components.nodes.flow.switch import SwitchParams, switch
from tests.fakes import FakeContext, run


def params(*items: tuple[str, str, Any], joined_by: Any = "and") -> dict[str, Any]:
    rows = [{"cpn_id": name, "operator": operator, "value": value} for name, operator, value in items]
    return {"conditions": [{"logical_operator": joined_by, "items": rows, "to": ["Yes:1"]}], "end_cpn_ids": ["No:1"]}


def context(**values: Any) -> FakeContext:
    return FakeContext(globals={f"env.{name}": value for name, value in values.items()}, names={"Yes:1": "Yes"})


def chosen_targets(definition: dict[str, Any], ctx: FakeContext) -> tuple[str, ...]:
    outcome = run(switch, definition, ctx)
    assert isinstance(outcome, Routed)
    return outcome.to


def test_the_choice_is_shown_as_ids_and_as_display_names():
    ctx = context(a="1")

    outcome = run(switch, params(("{env.a}", "=", "1")), ctx)

    assert outcome == Routed(to=("Yes:1",), outputs={"next": ["Yes"], "_next": ["Yes:1"]})
    assert ctx.inputs == {"env.a": "1"}


@pytest.mark.parametrize(
    ("joined_by", "a", "b", "expected"),
    [
        ("and", "1", "1", "Yes:1"), ("and", "1", "0", "No:1"), (None, "0", "1", "No:1"),
        ("or", "0", "1", "Yes:1"), ("xor", "0", "1", "Yes:1"), ("", "0", "1", "Yes:1"), ("or", "0", "0", "No:1"),
    ],
)  # fmt: skip
def test_and_requires_all_items_and_any_other_operator_requires_one(joined_by: Any, a: str, b: str, expected: str):
    definition = params(("env.a", "=", "1"), ("env.b", "=", "1"), joined_by=joined_by)

    assert chosen_targets(definition, context(a=a, b=b)) == (expected,)


def test_an_item_without_a_variable_is_skipped():
    assert chosen_targets(params(("", "=", "x"), ("env.a", "=", "1")), context(a="1")) == ("Yes:1",)


def test_a_condition_without_a_usable_item_never_holds():
    assert chosen_targets(params((" ", "=", "x")), context()) == ("No:1",)
    assert chosen_targets(params(), context()) == ("No:1",)


def test_references_in_operands_are_not_resolved():
    assert chosen_targets(params(("env.a", "=", "{env.b}")), context(a="{env.b}", b="x")) == ("Yes:1",)


def test_a_target_may_be_a_single_text():
    definition = params(("env.a", "=", "1"))
    definition["conditions"][0]["to"] = "Yes:1"

    assert chosen_targets(definition, context(a="1")) == ("Yes:1",)


def test_all_nodes_of_a_target_list_are_started():
    definition = {**params(("env.a", "=", "1")), "end_cpn_ids": ["No:1", "No:2"]}

    assert chosen_targets(definition, context(a="0")) == ("No:1", "No:2")


def test_invalid_target_ids_are_ignored():
    definition = {**params(("env.a", "=", "1")), "end_cpn_ids": ["No:1", "", None, ["No:2"]]}

    outcome = run(switch, definition, context(a="0"))

    assert isinstance(outcome, Routed)
    assert (outcome.to, outcome.outputs["_next"]) == (("No:1",), ["No:1"])


def test_an_unknown_operator_or_variable_fails_the_node():
    with pytest.raises(NodeFailure, match="Not supported operator: ~="):
        run(switch, params(("env.a", "~=", "1")), context(a="1"))
    with pytest.raises(UnresolvedReference):
        run(switch, params(("env.a", "=", "2"), ("Nope:X@y", "=", "1")), context(a="1"))


@pytest.mark.parametrize(
    ("definition", "label"),
    [
        ({"end_cpn_ids": ["a"]}, "[Switch] conditions"),
        ({"conditions": [], "end_cpn_ids": ["a"]}, "[Switch] conditions"),
        ({"conditions": [{"items": [], "to": []}], "end_cpn_ids": ["a"]}, "[Switch] 'To'"),
        ({"conditions": [{"items": [], "to": [""]}], "end_cpn_ids": ["a"]}, "[Switch] 'To'"),
        ({"conditions": [{"items": [], "to": [["a"], 5]}], "end_cpn_ids": ["a"]}, "[Switch] 'To'"),
        ({"conditions": [{"items": [], "to": ["a"]}]}, "ELSE"),
        ({"conditions": [{"items": [], "to": ["a"]}], "end_cpn_ids": 5}, "ELSE"),
        ({"conditions": ["x"], "end_cpn_ids": ["a"]}, "[Switch] conditions"),
    ],
)
def test_a_switch_without_targets_is_refused(definition: dict[str, Any], label: str):
    with pytest.raises(ValidationError) as refused:
        SwitchParams.model_validate(definition)

    assert label in str(refused.value)
