"""When a recorded and an observed value agree, and what normalisation removes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.conformance.compare.agreement import differ, errors_differ, outputs_differ, texts_agree
from cli.conformance.compare.normalise import normalise, normalise_events

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=12,
)


def test_real_cause_agrees_with_a_recorded_max_retries_error():
    recorded = "**ERROR**: MAX_RETRIES_EXCEEDED - invalid request: bad"

    assert errors_differ(recorded, "**ERROR**: INVALID_REQUEST - invalid request: bad") is None
    assert errors_differ(recorded, "**ERROR**: INVALID_REQUEST - something else") is not None
    assert texts_agree(f"[{recorded}]", "[**ERROR**: AUTH_ERROR - invalid request: bad]")
    assert not texts_agree("**ERROR**: AUTH_ERROR - x", "**ERROR**: INVALID_REQUEST - x")


def test_wording_of_other_errors_may_differ():
    assert errors_differ("The input variable is not a string", "Not a text: 5") is None
    assert errors_differ("<TRANSPORT_ERROR>", "connection reset") is None
    assert errors_differ("The input variable is not a string", None) is not None
    assert errors_differ(None, "Not a text: 5") is not None


def test_additional_outputs_beside_the_recorded_ones_agree():
    assert outputs_differ({"content": "a"}, {"content": "a", "thinking": "hm", "_notes": 1}) is None
    assert outputs_differ({"content": "a", "_next": ["x"]}, {"content": "a"}) is None
    assert outputs_differ({"content": None}, {}) is not None


def test_failure_of_a_node_must_agree_but_its_message_may_differ():
    assert outputs_differ({"_ERROR": "one"}, {"_ERROR": "another"}) is None
    assert outputs_differ({"_ERROR": "one"}, {}) is not None
    assert outputs_differ({}, {"_ERROR": "one"}) is not None


def test_recorded_unread_stream_agrees_with_any_value():
    recorded = {"content": "<STREAM>"}

    for ours in ({"content": "text"}, {"content": None}, {"content": None, "_ERROR": "late"}):
        assert outputs_differ(recorded, ours) is None


@given(json_values)
def test_every_value_agrees_with_itself(value: Any):
    assert differ(normalise(value), normalise(value)) is None
    assert normalise(normalise(value)) == normalise(value)


@given(json_values, json_values)
def test_two_values_agree_only_if_they_are_equal_as_json(one: Any, other: Any):
    if json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True):
        assert differ(one, other) is None
    elif one != other:
        assert differ(one, other) is not None


def test_true_is_not_equal_to_one():
    assert differ(1, True) is not None
    assert differ(False, 0) is not None
    assert differ(5, 5.0) is None


@pytest.mark.parametrize(
    "printed",
    [
        '{"a": 1, "_created_time": 12.5, "_elapsed_time": 1e-05}',
        '{"_created_time": 12.5, "a": 1, "_elapsed_time": null}',
        '{"_created_time": 12.5, "_elapsed_time": 3, "a": 1}',
    ],
)
def test_times_are_removed_from_printed_mappings(printed: str):
    assert normalise({"t": printed, "p": str({"_elapsed_time": 1.5, "b": "x"}), "_created_time": 3}) == {
        "t": '{"a": 1}',
        "p": "{'b': 'x'}",
    }
    assert normalise(json.dumps([printed])) == json.dumps(['{"a": 1}'])


def test_values_without_a_json_form_become_placeholders():
    assert normalise({1: (float("nan"), (2,))}) == {"1": ["<NaN>", [2]]}


def test_empty_texts_are_dropped():
    events = [{"event": "message", "data": {"content": text}} for text in ("", "a", "", "b")]

    assert [event.data for event in normalise_events(events)] == [{"content": "ab"}]
