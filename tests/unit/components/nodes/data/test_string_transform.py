"""StringTransform splits and merges texts."""

from typing import Any

import pytest
from pydantic import ValidationError

from canvas.errors import NodeFailure
from canvas.outcome import Finished
from components.nodes.data.string_transform import StringTransformParams, string_transform
from tests.fakes import FakeContext, run


def result(params: dict[str, Any], **values: Any) -> Any:
    ctx = FakeContext(globals={f"env.{name}": value for name, value in values.items()})
    outcome = run(string_transform, params, ctx)
    assert isinstance(outcome, Finished)
    return outcome.outputs["result"]


@pytest.mark.parametrize(
    ("text", "delimiters", "parts"),
    [
        ("a,b;c,,d", [","], ["a", "b;c", "", "d"]),
        ("a,b;c,,d", [",", ";"], ["a", "b", "c", "", "d"]),
        ("a==b=c", ["=", "=="], ["a", "", "b", "c"]),
        ("a==b=c", ["==", "="], ["a", "b", "c"]),
        ("a.b", ["."], ["a", "b"]),
        ("", [","], [""]),
        (None, [","], [""]),
        (0, [","], [""]),
        ("abc", [""], ["abc"]),
    ],
)
def test_text_is_split_at_all_delimiters_tried_in_order(text: Any, delimiters: list[str], parts: list[str]):
    for reference in ("env.t", "{env.t}"):
        assert result({"method": "split", "split_ref": reference, "delimiters": delimiters}, t=text) == parts


def test_merged_text_beyond_the_limit_fails_the_node():
    params = {"method": "merge", "script": "{env.l}", "delimiters": ["-" * 20_000]}

    assert len(result(params, l=["a"] * 3)) == 40_003
    with pytest.raises(NodeFailure, match="too long a text"):
        result(params, l=["a"] * 1000)


def test_input_named_line_has_priority_over_the_reference():
    params = {"method": "split", "split_ref": "env.t", "line": "x,{env.t}"}

    assert result(params, t="y") == ["x", "y"]


def test_split_of_a_number_fails_the_node():
    with pytest.raises(NodeFailure, match="not a string"):
        result({"method": "split", "split_ref": "env.t"}, t=5)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("{env.l}", "x|y|3"),
        ("Hi {env.name}, {env.i}", "Hi Ann, 5"),
        ("{env.name}{{ env_name|upper }}", "AnnANN"),
        ("<{env.path}>", "<a\\1b>"),
        ("o={env.o} n=[{env.none}] e=[{env.empty}]", 'o={"k": [1]} n=[] e=[]'),
        ("{{ broken.at.run.time }} {env.name}", "{{ broken.at.run.time }} Ann"),
        ("{env.name} and env_name", "Ann and env_name"),
        ("file: {env.file}", "file: "),
        ("nothing here", "nothing here"),
    ],
)
def test_values_are_merged_into_the_script(script: str, expected: str):
    values = {
        "l": ["x", "y", 3], "name": "Ann", "i": 5, "path": "a\\1b", "o": {"k": [1]}, "none": None, "empty": [],
        "file": [{"doc_id": "1", "filename": "a", "mime_type": "x"}],
    }  # fmt: skip

    assert result({"method": "merge", "script": script, "delimiters": ["|", ","]}, **values) == expected


def test_merged_values_are_shown_as_inputs():
    ctx = FakeContext(globals={"env.l": ["a", 1, None, {"k": 1}]})

    run(string_transform, {"method": "merge", "script": "L={env.l}", "delimiters": [" - "]}, ctx)

    assert ctx.inputs == {"env.l": "a - 1 - None - {'k': 1}"}


def test_a_script_that_does_not_parse_fails_the_node():
    with pytest.raises(NodeFailure, match="nofilter"):
        result({"method": "merge", "script": "{{ bad|nofilter }}"})


@pytest.mark.parametrize(
    "params",
    [{"method": "upper"}, {"delimiters": []}, {"delimiters": ""}, {"delimiters": None}, {"delimiters": [1]}],
)
def test_unknown_methods_and_missing_delimiters_are_refused(params: dict[str, Any]):
    with pytest.raises(ValidationError):
        StringTransformParams.model_validate(params)
