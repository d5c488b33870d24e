"""Begin turns the inputs of the request into outputs."""

from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.nodes.flow.begin import BeginParams, begin
from tests.fakes import FakeContext, run

NAME = {"name": {"name": "Name", "type": "line"}}
FILE = {"id": "f1", "name": "a.txt", "mime_type": "text/plain", "created_by": "t"}


def outputs(ctx: FakeContext, inputs: Any = None, **params: Any) -> dict[str, Any]:
    outcome = run(begin, {"inputs": inputs or {}, **params}, ctx)
    assert isinstance(outcome, Finished)
    return dict(outcome.outputs)


@pytest.mark.parametrize(
    ("form", "query", "expected"),
    [
        (NAME, "Bob", {"name": "Bob"}),
        (NAME, ["B"], {"name": ["B"]}),
        (NAME, "", {}),
        (NAME, None, {}),
        ({**NAME, "b": {}}, "Bob", {}),
        ({}, "Bob", {}),
        ({**NAME, "b": {}}, {"name": "A", "zz": 1, "b": {"value": "V"}}, {"name": "A", "b": "V"}),
    ],
)
def test_a_query_fills_the_form_when_the_request_has_no_inputs(form: Any, query: Any, expected: dict[str, Any]):
    assert outputs(FakeContext(globals={"sys.query": query}), form) == expected


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ({"value": 3}, 3),
        (5, 5),
        ({"type": "object", "value": "[1]"}, [1]),
        ({"type": "object", "value": ""}, ""),
        ({"type": "object", "value": "{"}, "{"),
        ({}, None),
    ],
    ids=["typed", "bare", "JSON", "blank JSON", "JSON that does not parse", "without a value"],
)
def test_input_that_the_form_does_not_declare_is_an_output_too(value: Any, output: Any):
    ctx = FakeContext(globals={"sys.query": "Bob"}, answers={"given": value})

    assert outputs(ctx, NAME) == {"given": output}


def test_inputs_of_begin_are_shown_declared_or_not():
    ctx = FakeContext(globals={"sys.query": "Bob"}, answers={"raw": 5})

    outputs(ctx, NAME)

    assert ctx.inputs["name"] is None
    assert ctx.inputs["raw"] == 5


def test_values_preset_in_the_form_are_not_emitted():
    assert outputs(FakeContext(), {"name": {"type": "line", "value": "preset"}}) == {}


def test_files_become_their_texts_and_their_descriptors_are_an_output():
    ctx = FakeContext(
        answers={
            "one": {"type": "File", "value": FILE},
            "two": {"type": "file", "value": [FILE, FILE]},
            "none": {"type": "file", "optional": True, "value": None},
        },
        file_texts={"f1": "TEXT"},
    )

    found = outputs(ctx)

    assert found.pop("_files") == {"one": [FILE], "two": [FILE, FILE]}
    assert found == {"one": ["TEXT"], "two": ["TEXT", "TEXT"], "none": None}


@pytest.mark.parametrize("value", [None, "", "text", [5]])
def test_a_required_file_field_without_a_file_fails_and_is_named(value: Any):
    with pytest.raises(NodeFailure, match='"doc"'):
        outputs(FakeContext(answers={"doc": {"type": "file", "value": value}}))


def test_a_webhook_payload_becomes_outputs_and_its_input_is_shown_as_request():
    ctx = FakeContext(webhook_payload={"query": {"n": 1}, "body": {}, "input": {"raw": True}})

    assert outputs(ctx, mode="Webhook") == {"query": {"n": 1}, "body": {}}
    assert ctx.inputs == {"request": {"raw": True}}


def test_a_payload_is_ignored_in_other_modes():
    assert outputs(FakeContext(webhook_payload={"body": 1}), mode="task") == {}


@pytest.mark.parametrize("mode", ["webhook", "batch", None, 1])
def test_an_unknown_mode_is_refused(mode: Any):
    with pytest.raises(ValidationError, match=r"\[Begin\] Mode"):
        BeginParams.model_validate({"mode": mode})


def test_inputs_of_the_previous_turn_are_shown_until_they_are_sent_again():
    earlier = {"a": "old", "b": "kept", "extra": 1}
    ctx = FakeContext(globals={"sys.query": ""}, last_inputs=earlier, answers={"a": "new"})

    outcome = run(begin, {"inputs": {"a": {}, "b": {}}}, ctx)

    assert ctx.inputs == {"a": "new", "b": "kept", "extra": 1}
    assert outcome == Finished(outputs={"a": "new"})
