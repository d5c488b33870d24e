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


def test_a_node_answers_for_all_its_items_and_an_item_for_itself():
    told = answered({"act[2].outcome": "again", "act.outcome": "happened"}).resolutions

    assert (told.again, dict(told.happened)) == ({TWO}, {ONE: {}})


def test_outputs_come_with_what_has_happened_and_with_nothing_else():
    told = answered({"act[1].outcome": {"value": "happened"}, "act.outputs": {"value": {"id": 7, "_ERROR": "x"}}})

    assert dict(told.resolutions.happened) == {ONE: {"id": 7}}
    assert not told.resolutions.again


def test_everything_that_is_asked_can_be_answered_at_once():
    assert answered({"*.outcome": "again"}).resolutions.again == {ONE, TWO}


def test_the_canvas_own_forms_get_their_fields_only():
    told = answered({"*.outcome": "again", "name": "Ada"}, forms=ASKED | OPEN)

    assert (told.inputs, list(told.forms)) == ({"name": "Ada"}, [str(FORM)])
    assert answered({"*.outcome": "again"}, forms=ASKED | OPEN).inputs is None


def test_a_form_may_have_fields_that_are_called_like_an_outcome():
    forms = {str(FORM): form("form", **{"x.outcome": {"type": "line"}})}

    assert answered({"x.outcome": "fine"}, forms=forms).inputs == {"x.outcome": "fine"}


@pytest.mark.parametrize("word", ["happened", " Happened "])
def test_a_single_question_is_answered_in_a_word(word: str):
    assert list(answered(None, word, {str(ONE): form("act")}).resolutions.happened) == [ONE]


@pytest.mark.parametrize("forms", [ASKED, {str(ONE): form("act")} | OPEN, {}])
def test_a_word_answers_no_more_than_one_question(forms: dict[str, Any]):
    assert not answered(None, "happened", forms).resolutions


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"other.outcome": "again"}, 'Nothing is asked about "other". Questions are open about: act[1], act[2].'),
        ({"act.outcome": "perhaps"}, '"act.outcome" is \'perhaps\'. Answer "happened" or "again".'),
        ({"act.outcome": "happened", "act.outputs": [1]}, '"act.outputs" must be an object'),
    ],
)
def test_what_cannot_be_meant_is_refused(inputs: dict[str, Any], told: str):
    with pytest.raises(InvalidRequest) as refused:
        answered(inputs)

    assert refused.value.message.startswith(told)


def test_a_question_that_is_left_open_stays_open():
    assert not answered({"act.outcome": None, "act.outputs": ""}).resolutions
