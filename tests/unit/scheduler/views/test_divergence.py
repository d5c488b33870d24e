"""In what two activations differ, in words."""

from typing import Any
from uuid import uuid4

import pytest

from scheduler.views.divergence import NOTHING, describe_bits, describe_place, explain_divergence, find_difference
from store.runs.run_comparison import ComparedStep, StepDifference, StepPair, StepValues, ValueFile


def step(**fields: Any) -> ComparedStep:
    known: dict[str, Any] = {
        "id": uuid4(), "node_id": "LLM:Reply", "component": "LLM", "scope": "", "ordinal": 0, "status": "done",
        "attempt": 1, "outcome": {"is": "Finished"}, "usage": {}, "started_at": None, "finished_at": None,
    }  # fmt: skip
    return ComparedStep(**{**known, **fields})


def outputs(**values: Any) -> StepValues:
    return StepValues({}, values, {})


def explain(
    a: ComparedStep | None, b: ComparedStep | None, values_a: StepValues = NOTHING, values_b: StepValues = NOTHING
) -> str:
    pair = StepPair(find_difference(a, b, values_a, values_b), a, b)
    return explain_divergence(pair, values_a, values_b, lambda node: {"Message:0": "Invoice"}.get(node, node))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (("LLM:0", "", 0), "LLM:0"),
        (("LLM:0", "Iteration:A#0.2", 0), "LLM:0 (item 3)"),
        (("LLM:0", "Iteration:A#0.2/Loop:B#0.0", 2), "LLM:0 (item 3.1, round 3)"),
    ],
)
def test_place_of_a_step_names_item_and_round(place: tuple[str, str, int], text: str):
    assert describe_place(*place) == text


def test_another_output_is_quoted_from_both_sides():
    in_item = step(scope="Iteration:A#0.2")

    sentence = explain(in_item, in_item, outputs(content="Hi", same=1), outputs(content="Hello", same=1))

    assert sentence == 'LLM:Reply (item 3) has another output: content is "Hi" in A and "Hello" in B.'


def test_output_that_one_side_lacks_is_missing_there():
    assert explain(step(), step(), outputs(more=1), outputs()) == (
        "LLM:Reply has another output: more is 1 in A and missing in B."
    )


def test_long_value_is_shortened():
    assert "x…" in explain(step(), step(), outputs(content="x" * 1000), outputs(content="y"))


def test_value_in_a_file_is_described_by_its_size():
    sentence = explain(step(), step(), outputs(content=ValueFile("aa", 2_000_000)), outputs(content="y"))

    assert "content is a value of 2,000,000 bytes in A" in sentence


def test_choice_of_a_router_is_named_before_all_else():
    a = step(outcome={"is": "Chose", "to": ["Message:0"]})
    b = step(outcome={"is": "Chose", "to": ["Message:1"]})

    sentence = explain(a, b, outputs(next=["Invoice"]), outputs(next=["Message:1"]))

    assert sentence == "LLM:Reply chose Invoice in A and Message:1 in B. Its outputs differ too."


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        (step(), None, "LLM:Reply has run only in A."),
        (None, step(), "LLM:Reply has run only in B."),
        (step(), step(attempt=2), "LLM:Reply took 1 attempt in A and 2 attempts in B."),
        (step(), step(status="running"), "LLM:Reply is done in A and running in B."),
        (step(), step(outcome={"is": "Finished", "told": "x"}), 'LLM:Reply failed only in B: "x".'),
        (
            step(outcome={"is": "Failed", "error": "x"}),
            step(),
            "LLM:Reply ended as Failed in A and Finished in B. Its error differs too.",
        ),
        (step(), step(), "LLM:Reply is the same in both."),
    ],
)
def test_each_difference_has_a_sentence(a: ComparedStep | None, b: ComparedStep | None, sentence: str):
    assert explain(a, b) == sentence


def test_attempts_of_a_reused_step_are_not_compared():
    reused = step(outcome={"is": "Finished", "reused": True, "used": {}})

    assert find_difference(step(attempt=3), reused, NOTHING, NOTHING) == StepDifference(0)


def test_bits_are_listed_in_words():
    assert describe_bits(StepDifference.OUTPUTS | StepDifference.INPUTS) == "outputs, inputs"
    assert describe_bits(StepDifference.ONLY_B) == "only in B"
    assert describe_bits(StepDifference(0)) == "same"


def test_another_prompt_is_quoted_with_its_call_and_message():
    asked = StepValues({}, {}, {}, {"call 1, message 1 (user)": {"role": "user", "content": "Hi"}})
    changed = StepValues({}, {}, {}, {"call 1, message 1 (user)": {"role": "user", "content": "Ho"}})

    assert find_difference(step(), step(), asked, changed) is StepDifference.PROMPTS
    assert explain(step(), step(), asked, changed) == (
        'LLM:Reply has another prompt: call 1, message 1 (user) is {"role": "user", "content": "Hi"} in A and '
        '{"role": "user", "content": "Ho"} in B.'
    )


def test_prompts_that_one_run_has_not_stored_do_not_differ():
    asked = StepValues({}, {}, {}, {"call 1, message 1 (user)": {"role": "user", "content": "Hi"}})

    assert find_difference(step(), step(), asked, NOTHING) == 0
