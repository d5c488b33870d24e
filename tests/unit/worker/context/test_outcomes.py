"""How the result of a component becomes a reported outcome with values that a row can store."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canvas.errors import NodeFailure, NodeTimeout
from canvas.graph.canvas import Node
from canvas.outcome import Failed, Finished, Routed
from components.base import Component, Params
from components.nodes.data.variable_assigner import AssignmentFailed
from store.primitives.json_codec import encode
from tests.builders import canvas_of, default, goto
from worker.context import outcomes

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))  # lone surrogates and NUL included
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(ANY_TEXT | st.integers(), inner),
    max_leaves=20,
)
PLAIN: Component[Params] = Component("StringTransform", Params, lambda params, ctx: Finished())
OWNS_ERRORS: Component[Params] = Component("LLM", Params, lambda params, ctx: Finished(), owns_errors=True)


# -- values ----------------------------------------------------------------------------------------------------------
@given(ANYTHING)
def test_sanitized_value_can_be_encoded_and_decoded(value: Any):
    stored = outcomes.sanitize_json(value)

    text = encode(stored)
    assert "\\u0000" not in text.replace("\\\\", "")
    assert json.loads(text.encode()) == stored


@given(ANYTHING)
def test_sanitizing_twice_changes_nothing(value: Any):
    stored = outcomes.sanitize_json(value)

    assert outcomes.sanitize_json(stored) == stored


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text("äb😀"), st.lists, max_leaves=10))
def test_plain_json_stays_unchanged(value: Any):
    assert outcomes.sanitize_json(value) == value


@given(st.floats())
def test_nan_and_infinity_become_null(number: float):
    assert outcomes.sanitize_json(number) == (number if math.isfinite(number) else None)


@given(ANY_TEXT)
def test_sanitized_text_keeps_its_length(text: str):
    assert len(outcomes.sanitize_json(text)) == len(outcomes.sanitize_text(text)) == len(text)


def test_reasoning_markers_are_streamed_and_not_stored():
    assert outcomes.sanitize_text("\ufdd0why\ufdd1") == "\ufdd0why\ufdd1"
    assert outcomes.sanitize_json("\ufdd0why\ufdd1") == "\ufffdwhy\ufffd"
    assert outcomes.sanitize_json("\ufdd2heard\ufdd3") == "\ufffdheard\ufffd"


def test_value_may_have_as_many_levels_as_the_limit_and_no_more():
    value: Any = "x"
    for _ in range(outcomes.MAX_DEPTH):
        value = [value]

    assert outcomes.sanitize_json(value) == value
    with pytest.raises(NodeFailure, match=f"deeper than {outcomes.MAX_DEPTH} levels"):
        outcomes.sanitize_json([value])


def test_integer_is_kept_up_to_4300_digits():
    longest = 10**4300 - 1

    assert json.loads(encode(outcomes.sanitize_json(longest))) == longest
    for longer in (longest + 1, -longest - 1):
        with pytest.raises(NodeFailure, match="4,300 digits"):
            outcomes.sanitize_json([longer])


# -- failures --------------------------------------------------------------------------------------------------------
def test_failure_has_the_text_of_the_exception():
    assert outcomes.outcome_of_exception(ValueError("no such row"), a_node(), PLAIN) == Failed(
        "no such row", "component_error"
    )
    assert outcomes.outcome_of_exception(NodeFailure("empty"), a_node(), PLAIN) == Failed("empty", "node_failure")


def test_failure_without_text_has_the_name_of_the_exception():
    assert outcomes.outcome_of_exception(ZeroDivisionError(), a_node(), PLAIN) == Failed(
        "ZeroDivisionError", "component_error"
    )


def test_default_value_replaces_a_failure():
    outcome = outcomes.outcome_of_exception(ValueError("broken"), a_node(**default("Sorry.")), PLAIN)

    assert outcome == Finished(outputs={"result": "Sorry."})


def test_routing_node_with_a_default_value_routes_nowhere():
    node = canvas_of("begin -> pick -> one", pick=default("Sorry.")).node("pick")

    assert outcomes.outcome_of_exception(ValueError("broken"), node, PLAIN) == Routed(
        to=(), outputs={"result": "Sorry."}
    )


def test_component_that_owns_its_errors_gets_no_default_value():
    outcome = outcomes.outcome_of_exception(ValueError("broken"), a_node(**default("Sorry.")), OWNS_ERRORS)

    assert outcome == Failed("broken", "component_error")


def test_exception_target_stays_a_failure_for_the_coordinator():
    outcome = outcomes.outcome_of_exception(ValueError("broken"), a_node(**goto("elsewhere")), PLAIN)

    assert isinstance(outcome, Failed)


def test_returned_failure_of_a_model_node_gets_no_default_value():
    node = canvas_of("begin -> model", model=default("Sorry.")).node("model")
    failed = Failed("broken")

    assert outcomes.apply_failure_policy(failed, node, PLAIN) == failed
    assert outcomes.apply_failure_policy(failed, a_node(**default("Sorry.")), PLAIN) == Finished(
        outputs={"result": "Sorry."}
    )


def test_timeout_error_names_the_variable_that_raises_the_limit():
    error = outcomes.timeout_error("ExeSQL", 3.0)

    assert isinstance(error, NodeTimeout)
    assert str(error) == "ExeSQL: timeout after 3s. Raise COMPONENT_EXEC_TIMEOUT_EXESQL."


def test_assignments_before_a_failure_are_returned():
    error = AssignmentFailed("Variable is not complete.", {"env.count": 1})

    assert outcomes.assignments_before_failure(error) == {"env.count": 1}
    assert outcomes.assignments_before_failure(ValueError()) == {}


def a_node(**params: Any) -> Node:
    return canvas_of("begin -> work", work=params).node("work")
