"""What counts as a difference between a recorded run and its replay."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.cases.case_diff import RUN, compare, values_differ
from cli.cases.case_file import CaseResult, RunCase
from cli.shell.value_pairs import NOTHING
from tests.unit.cli.cases.cases import a_call, a_case, a_step

PARTS = {"1": {"role": "user", "content": "Hi"}, "2": {"role": "user", "content": "Hello"}}


def found(recorded: RunCase, replayed: RunCase) -> list[tuple[str, str]]:
    return [(each.step, each.path) for each in compare(recorded, replayed)]


def test_equal_runs_do_not_differ():
    case = a_case(a_step("LLM:0", model_calls=(a_call("1"),)), parts=PARTS)

    assert compare(case, case) == []


@pytest.mark.parametrize(
    ("member", "value", "path"),
    [
        ("outputs", {"content": "other"}, "outputs.content"),
        ("inputs", {"query": "q"}, "inputs.query"),
        ("outcome", {"is": "Failed", "error": "no"}, "outcome.is"),
        ("status", "open", "status"),
        ("variables", {"env.x": 1}, "variables.env.x"),
        ("text", "spoken", "text"),
        ("container", {"Loop:0": {"x": 1}}, "container.Loop:0"),
    ],
)
def test_changed_member_of_a_step_is_found_with_its_path(member: str, value: Any, path: str):
    step = a_step("LLM:0")

    differences = found(a_case(step), a_case(step.model_copy(update={member: value})))

    assert ("LLM:0", path) in differences


def test_step_that_only_one_run_has_is_found():
    one, both = a_case(a_step("LLM:0")), a_case(a_step("LLM:0"), a_step("LLM:1"))

    (missing,) = compare(both, one)
    (extra,) = compare(one, both)

    assert (missing.step, missing.path, missing.replayed) == ("LLM:1", "step", NOTHING)
    assert (extra.step, extra.path, extra.recorded) == ("LLM:1", "step", NOTHING)


def test_steps_are_the_same_by_node_scope_and_visit():
    first, second = a_step("LLM:0", "a", scope="Loop:0#0.0"), a_step("LLM:0", "b", scope="Loop:0#0.1")
    turned = a_case(second, first)

    assert compare(a_case(first, second), turned.model_copy(update={"result": a_case(second, first).result})) == []


def test_step_that_had_not_ended_is_left_out():
    running = a_step("LLM:1", status="running", outcome=None)

    assert compare(a_case(a_step("LLM:0"), running), a_case(a_step("LLM:0"), a_step("LLM:1"))) == []


def test_changed_message_to_a_model_is_found():
    recorded = a_case(a_step("LLM:0", model_calls=(a_call("1"),)), parts=PARTS)
    replayed = a_case(a_step("LLM:0", model_calls=(a_call("2"),)), parts=PARTS)

    (difference,) = compare(recorded, replayed)

    assert difference.path == "model call 1 messages[0].content"
    assert (difference.recorded, difference.replayed) == ("Hi", "Hello")


def test_numbers_of_parts_do_not_count():
    recorded = a_case(a_step("LLM:0", model_calls=(a_call("1"),)), parts=PARTS)
    replayed = a_case(a_step("LLM:0", model_calls=(a_call("7"),)), parts={"7": PARTS["1"]})

    assert compare(recorded, replayed) == []


def test_calls_with_the_same_key_are_compared_in_order():
    calls = (a_call("1", key="round:0"), a_call("2", key="round:1"))
    recorded = a_case(a_step("Agent:0", model_calls=calls), parts=PARTS)
    turned = a_case(a_step("Agent:0", model_calls=calls[::-1]), parts=PARTS)

    assert compare(recorded, turned) == []


def test_call_that_is_not_made_any_more_and_a_new_one_are_found():
    one = a_case(a_step("LLM:0", model_calls=(a_call("1"),)), parts=PARTS)
    two = a_case(a_step("LLM:0", model_calls=(a_call("1"), a_call("2"))), parts=PARTS)

    assert found(two, one) == [("LLM:0", "model call 2")]
    assert found(one, two) == [("LLM:0", "model call")]


def test_events_of_a_step_are_compared_in_order():
    case = a_case(a_step("LLM:0"), a_step("LLM:1"))
    events = case.result.events
    turned = case.result.model_copy(update={"events": (events[1], events[0], *events[2:])})
    other = case.result.model_copy(update={"events": (events[2], events[0], events[1], events[3])})

    assert {step for step, _ in found(case, case.model_copy(update={"result": turned}))} == {"LLM:0"}
    assert compare(case, case.model_copy(update={"result": other})) == []  # between steps the order is free


@pytest.mark.parametrize(
    "changed",
    [{"status": "failed"}, {"error": "no"}, {"answer": (("Message:0", "bye"),)}],
    ids=lambda each: next(iter(each)),
)
def test_changed_result_of_the_run_is_found(changed: dict[str, Any]):
    case = a_case(a_step("LLM:0"))
    other = case.model_copy(update={"result": case.result.model_copy(update=changed)})

    assert {step for step, _ in found(case, other)} == {RUN}


def test_cancelled_run_is_compared_by_the_steps_that_ended_in_both():
    result = CaseResult(status="cancelled", error="cancelled")
    recorded = a_case(a_step("LLM:0"), a_step("LLM:1"), result=result)
    cancelled = {"is": "Failed", "error": "cancelled", "code": "cancelled"}
    replayed = a_case(a_step("LLM:0", "other"), a_step("LLM:1", outcome=cancelled), result=result)

    assert found(recorded, replayed) == [("LLM:0", "outputs.content")]


def test_cut_value_is_compared_by_its_hash():
    cut = {"$cut": 5, "sha256": hashlib.sha256(b'"abc"').hexdigest(), "head": '"a'}

    assert list(values_differ(cut, "abc", "x")) == []
    assert list(values_differ(cut, "abd", "x")) == [("x", cut, "abd")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(json_values, json_values)
def test_values_differ_if_and_only_if_their_json_does(one: Any, other: Any):
    are_equal = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)

    assert (list(values_differ(one, other, "")) == []) is are_equal
