"""Parsing of a run's inputs, outcomes and ids on the command line."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import InvalidRequest
from cli.runs.inputs import build_options, parse_id, parse_inputs, parse_outcomes


def test_input_pair_becomes_a_field_with_its_text():
    assert parse_inputs(["order=77", "reason=a=b", " name =Ada"], None) == {
        "order": "77",
        "reason": "a=b",
        "name": "Ada",
    }


def test_input_pair_overrides_the_same_field_of_the_json():
    assert parse_inputs(["order=78"], '{"order": 77, "count": 3}') == {"order": "78", "count": 3}


def test_missing_pairs_and_empty_json_give_no_inputs():
    assert parse_inputs(None, None) is None
    assert parse_inputs([], "{}") is None


@pytest.mark.parametrize("pair", ["order", "=77", " =77", ""])
def test_a_pair_without_a_name_is_refused(pair: str):
    with pytest.raises(InvalidRequest, match="name=value"):
        parse_inputs([pair], None)


@pytest.mark.parametrize(
    "written", ["", "{", "[1]", "3", '"x"', '{"n": NaN}', '{"n": Infinity}', "[" * 100_000], ids=lambda text: text[:8]
)
def test_json_that_is_not_an_object_is_refused(written: str):
    with pytest.raises(InvalidRequest, match="--inputs"):
        parse_inputs(None, written)


@pytest.mark.parametrize("written", ['{"a": "\\ud800"}', '{"a": "\\u0000"}', '{"a": ' + "9" * 30 + "}"])
def test_inputs_that_cannot_be_stored_are_refused(written: str):
    with pytest.raises(InvalidRequest, match="cannot be stored"):
        parse_inputs(None, written)


def test_query_with_undecodable_bytes_is_refused():
    with pytest.raises(InvalidRequest, match="query"):
        build_options("caf\udce9", None, session=None, release=False)


def test_outcomes_of_nodes_become_form_fields():
    assert parse_outcomes(["Browser:0"], ["Invoke:1[2]"]) == {
        "Browser:0.outcome": "happened",
        "Invoke:1[2].outcome": "again",
    }
    assert parse_outcomes(["all"], None) == {"*.outcome": "happened"}
    assert parse_outcomes(None, None) == {}


def test_node_in_both_outcome_options_is_refused():
    with pytest.raises(InvalidRequest, match="both name Browser:0"):
        parse_outcomes(["Browser:0"], ["Browser:0"])


def test_options_have_the_names_of_the_http_api():
    options = build_options("Hi", {"a": 1}, session="0199A0B0C0D0700080000000000000AA", release=True)

    assert options == {
        "query": "Hi",
        "inputs": {"a": 1},
        "session_id": "0199a0b0-c0d0-7000-8000-0000000000aa",
        "release": True,
    }


@given(st.uuids())
def test_id_is_parsed_with_and_without_hyphens(value: UUID):
    assert parse_id(str(value), "run") == parse_id(value.hex, "run") == value


@given(st.text(max_size=30).filter(lambda text: len(text.replace("-", "")) != 32))
def test_other_texts_are_not_ids(text: str):
    with pytest.raises(InvalidRequest, match="id of a run"):
        parse_id(text, "run")
