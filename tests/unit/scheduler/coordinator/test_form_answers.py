"""Answers about nodes with an unknown outcome, among the answers to the open forms of a run."""

from typing import Any
from uuid import UUID

import pytest

from canvas.errors import InvalidRequest
from scheduler.coordinator.form_answers import ParsedAnswers, parse_answers
from tests.builders import canvas_of

CANVAS = canvas_of("begin -> act, other, form")
ONE, TWO, FORM = UUID(int=1), UUID(int=2), UUID(int=3)


def form(node: str, scope: str = "", **fields: Any) -> list[Any]:
    """Return an open form as the run's row stores it."""
    return [node, "00", scope, fields, "", True]


OUTCOME_FORMS = {str(ONE): form("act", "each#0.1"), str(TWO): form("act", "each#0.2")}
FIELD_FORM = {str(FORM): form("form", name={"type": "line"})}


def parse(inputs: dict[str, Any] | None, query: str = "", forms: dict[str, Any] | None = None) -> ParsedAnswers:
    return parse_answers(CANVAS, OUTCOME_FORMS if forms is None else forms, inputs, query)


def test_answer_by_node_id_is_for_all_items_and_one_by_item_overrides_it():
    answers = parse({"act[2].outcome": "again", "act.outcome": "happened"}).resolutions

    assert (answers.again, dict(answers.happened)) == ({TWO}, {ONE: {}})


def test_outputs_are_used_only_with_the_answer_happened():
    answers = parse({"act[1].outcome": {"value": "happened"}, "act.outputs": {"value": {"id": 7, "_ERROR": "x"}}})

    assert dict(answers.resolutions.happened) == {ONE: {"id": 7}}
    assert not answers.resolutions.again


def test_asterisk_answers_all_questions():
    assert parse({"*.outcome": "again"}).resolutions.again == {ONE, TWO}


def test_forms_of_the_canvas_get_only_their_own_fields():
    answers = parse({"*.outcome": "again", "name": "Ada"}, forms=OUTCOME_FORMS | FIELD_FORM)

    assert (answers.inputs, list(answers.forms)) == ({"name": "Ada"}, [str(FORM)])
    assert parse({"*.outcome": "again"}, forms=OUTCOME_FORMS | FIELD_FORM).inputs is None


def test_form_field_named_like_an_outcome_is_a_form_field():
    forms = {str(FORM): form("form", **{"x.outcome": {"type": "line"}})}

    assert parse({"x.outcome": "fine"}, forms=forms).inputs == {"x.outcome": "fine"}


@pytest.mark.parametrize("word", ["happened", " Happened "])
def test_single_question_is_answered_by_a_message_of_one_word(word: str):
    assert list(parse(None, word, {str(ONE): form("act")}).resolutions.happened) == [ONE]


@pytest.mark.parametrize("forms", [OUTCOME_FORMS, {str(ONE): form("act")} | FIELD_FORM, {}])
def test_message_of_one_word_does_not_answer_two_questions(forms: dict[str, Any]):
    assert not parse(None, "happened", forms).resolutions


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"other.outcome": "again"}, 'Nothing is asked about "other". Questions are open about: act[1], act[2].'),
        ({"act.outcome": "perhaps"}, '"act.outcome" is \'perhaps\'. Answer "happened" or "again".'),
        ({"act.outcome": "happened", "act.outputs": [1]}, '"act.outputs" must be an object'),
    ],
)
def test_answer_to_no_open_question_is_refused(inputs: dict[str, Any], message: str):
    with pytest.raises(InvalidRequest) as refused:
        parse(inputs)

    assert refused.value.message.startswith(message)


def test_unanswered_question_stays_open():
    assert not parse({"act.outcome": None, "act.outputs": ""}).resolutions
