"""What a person says about nodes that nobody knows to have acted, among the answers of a turn."""

from typing import Any
from uuid import UUID

import pytest

from canvas.errors import InvalidRequest
from scheduler.coordinator.form_answers import ParsedAnswers, parse_answers
from tests.builders import canvas_of

CANVAS = canvas_of("begin -> act, other, form")
ONE, TWO, FORM = UUID(int=1), UUID(int=2), UUID(int=3)


def form(node: str, scope: str = "", **fields: Any) -> list[Any]:
    """An open form as the run's row has it."""
    return [node, "00", scope, fields, "", True]


ASKED = {str(ONE): form("act", "each#0.1"), str(TWO): form("act", "each#0.2")}
OPEN = {str(FORM): form("form", name={"type": "line"})}


def answered(inputs: dict[str, Any] | None, query: str = "", forms: dict[str, Any] | None = None) -> ParsedAnswers:
    return parse_answers(CANVAS, ASKED if forms is None else forms, inputs, query)


def test_answer_by_node_id_is_for_all_items_and_one_by_item_overrides_it():
    told = answered({"act[2].outcome": "again", "act.outcome": "happened"}).resolutions

    assert (told.again, dict(told.happened)) == ({TWO}, {ONE: {}})


def test_outputs_are_used_only_with_the_answer_happened():
    told = answered({"act[1].outcome": {"value": "happened"}, "act.outputs": {"value": {"id": 7, "_ERROR": "x"}}})

    assert dict(told.resolutions.happened) == {ONE: {"id": 7}}
    assert not told.resolutions.again


def test_asterisk_answers_all_questions():
    assert answered({"*.outcome": "again"}).resolutions.again == {ONE, TWO}


def test_forms_of_the_canvas_get_only_their_own_fields():
    told = answered({"*.outcome": "again", "name": "Ada"}, forms=ASKED | OPEN)

    assert (told.inputs, list(told.forms)) == ({"name": "Ada"}, [str(FORM)])
    assert answered({"*.outcome": "again"}, forms=ASKED | OPEN).inputs is None


def test_form_field_named_like_an_outcome_is_a_form_field():
    forms = {str(FORM): form("form", **{"x.outcome": {"type": "line"}})}

    assert answered({"x.outcome": "fine"}, forms=forms).inputs == {"x.outcome": "fine"}


@pytest.mark.parametrize("word", ["happened", " Happened "])
def test_single_question_is_answered_by_a_message_of_one_word(word: str):
    assert list(answered(None, word, {str(ONE): form("act")}).resolutions.happened) == [ONE]


@pytest.mark.parametrize("forms", [ASKED, {str(ONE): form("act")} | OPEN, {}])
def test_message_of_one_word_does_not_answer_two_questions(forms: dict[str, Any]):
    assert not answered(None, "happened", forms).resolutions


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"other.outcome": "again"}, 'Nothing is asked about "other". Questions are open about: act[1], act[2].'),
        ({"act.outcome": "perhaps"}, '"act.outcome" is \'perhaps\'. Answer "happened" or "again".'),
        ({"act.outcome": "happened", "act.outputs": [1]}, '"act.outputs" must be an object'),
    ],
)
def test_answer_to_no_open_question_is_refused(inputs: dict[str, Any], told: str):
    with pytest.raises(InvalidRequest) as refused:
        answered(inputs)

    assert refused.value.message.startswith(told)


def test_unanswered_question_stays_open():
    assert not answered({"act.outcome": None, "act.outputs": ""}).resolutions
