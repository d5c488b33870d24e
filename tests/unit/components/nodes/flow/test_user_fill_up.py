"""UserFillUp shows a form to the user, and outputs the answers."""

from typing import Any

import pytest
from pydantic import ValidationError

from canvas.outcome import Finished, WaitingForInput
from components.nodes.flow.user_fill_up import UserFillUpParams, user_fill_up
from tests.fakes import FakeContext, run

LINE = {"name": "Name", "type": "line", "optional": False, "options": []}
OPTIONAL_FILE = {"name": "F", "type": "file", "optional": True}


def form(**fields: Any) -> dict[str, Any]:
    return {"inputs": fields, "tips": "Please"}


def test_form_has_all_required_fields_with_empty_values():
    ctx = FakeContext()

    outcome = run(user_fill_up, form(name=LINE, age={"type": "integer", "value": 7}, f=OPTIONAL_FILE), ctx)

    assert outcome == WaitingForInput(
        inputs={"name": {**LINE, "value": None}, "age": {"type": "integer", "value": None}},
        tips="Please",
        outputs={"name": None, "age": None, "tips": "Please"},
    )


def test_references_in_tips_are_resolved_to_lists_json_and_null():
    ctx = FakeContext(globals={"sys.query": "Q\\1", "env.l": [1, 2], "env.d": {"a": 1}, "env.n": None})

    outcome = run(user_fill_up, {"inputs": {"x": LINE}, "tips": "Hi {sys.query}: {env.l} {env.d} {env.n}"}, ctx)

    assert isinstance(outcome, WaitingForInput)
    assert outcome.tips == 'Hi Q\\1: 1,2 {"a": 1} null'


def test_disabled_tips_have_no_text_and_no_output():
    outcome = run(user_fill_up, {**form(x=LINE), "enable_tips": False}, FakeContext())

    assert outcome == WaitingForInput(inputs={"x": {**LINE, "value": None}}, tips="", outputs={"x": None})


def test_a_form_without_fields_does_not_stop_the_run():
    for inputs in ({}, []):
        assert run(user_fill_up, {"inputs": inputs, "tips": "t"}, FakeContext()) == Finished(outputs={"tips": "t"})


def test_form_of_optional_files_does_not_stop_the_run_and_shows_earlier_files():
    ctx = FakeContext(previous={"f": ["TEXT"]})

    assert run(user_fill_up, form(f=OPTIONAL_FILE), ctx) == Finished(outputs={"tips": "Please"})
    assert ctx.inputs == {"f": ["TEXT"]}


def test_answered_files_become_texts_and_their_descriptors_are_an_output():
    file = {"id": "f1", "name": "a.txt", "mime_type": "text/plain", "created_by": "t"}
    ctx = FakeContext(answers={"doc": {"type": "file", "value": file}}, file_texts={"f1": "TEXT"})

    outcome = run(user_fill_up, form(doc={"type": "file"}), ctx)

    assert outcome == Finished(outputs={"doc": ["TEXT"], "tips": "Please", "_files": {"doc": [file]}})


def test_reaching_a_form_again_clears_its_files_except_optional_ones():
    earlier = {"f": [{"id": "f1"}], "doc": [{"id": "f2"}], "gone": [{"id": "f3"}]}
    ctx = FakeContext(previous={"f": ["TEXT"], "_files": earlier})

    outcome = run(user_fill_up, form(f=OPTIONAL_FILE, doc={"type": "file"}), ctx)

    assert isinstance(outcome, WaitingForInput)
    assert outcome.outputs["_files"] == {"f": [{"id": "f1"}]}


def test_an_answer_replaces_the_optional_file_it_names_and_no_other():
    earlier = {"f": [{"id": "f1"}], "g": [{"id": "f2"}]}
    answers = {"f": {"type": "file", "optional": True, "value": None}}
    ctx = FakeContext(previous={"_files": earlier}, answers=answers)

    outcome = run(user_fill_up, form(f=OPTIONAL_FILE, g=OPTIONAL_FILE), ctx)

    assert isinstance(outcome, Finished)
    assert outcome.outputs["_files"] == {"g": [{"id": "f2"}]}


def test_fields_written_as_a_list_are_keyed_by_key_or_name():
    outcome = run(user_fill_up, {"inputs": [{"key": "a", "name": "A"}, {"name": "b"}, {}], "tips": ""}, FakeContext())

    assert isinstance(outcome, WaitingForInput)
    assert list(outcome.inputs) == ["a", "b"]


def test_declared_and_undeclared_answers_become_outputs():
    ctx = FakeContext(answers={"name": {"value": "Ann"}, "age": {"type": "integer", "value": 3}, "more": "bare"})

    outcome = run(user_fill_up, form(name=LINE, age={"type": "integer"}), ctx)

    assert outcome == Finished(outputs={"name": "Ann", "age": 3, "tips": "Please", "more": "bare"})
    assert ctx.inputs == {"name": "Ann", "age": 3, "more": "bare"}


def test_fields_without_an_answer_stay_empty():
    ctx = FakeContext(answers={"a": {"value": "A"}})

    outcome = run(user_fill_up, form(a=LINE, b=LINE), ctx)

    assert outcome == Finished(outputs={"a": "A", "b": None, "tips": "Please"})
    assert ctx.inputs == {"a": "A", "b": None}


@pytest.mark.parametrize("time", [90, "90", "90s", "7d", " 12 h ", 0.5, None, ""])
def test_valid_expiry_of_a_form_is_accepted(time: Any):
    assert isinstance(run(user_fill_up, {**form(a=LINE), "expires_after": time}, FakeContext()), WaitingForInput)


@pytest.mark.parametrize("time", ["soon", "7 days or so", 0, -1, "0d", True, [7], "400d", float("inf")])
def test_invalid_expiry_is_refused_when_the_canvas_is_loaded(time: Any):
    with pytest.raises(ValidationError, match="is not a valid time"):
        UserFillUpParams.model_validate({"expires_after": time})


def test_reaching_a_form_again_waits_for_new_answers():
    outcome = run(user_fill_up, form(name={**LINE, "value": "old"}), FakeContext(previous={"name": "old"}))

    assert isinstance(outcome, WaitingForInput)
    assert outcome.outputs["name"] is None
