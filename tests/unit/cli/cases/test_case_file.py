"""Files of cases: what is written is read again, large values lie beside, and other files are refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.cases import case_file
from cli.cases.case_file import MalformedRunCase, RunCase, ValueTooLarge
from tests.unit.cli.cases.cases import STARTED, a_call, a_case, a_step

LARGE = "x" * 3000


def written(case: RunCase, tmp_path: Path) -> Path:
    file = tmp_path / "case.json"
    case_file.write_case(case, file, most=2048)
    return file


def test_written_case_is_read_again(tmp_path: Path):
    case = a_case(a_step("LLM:0", model_calls=(a_call("1"),)), parts={"1": {"role": "user", "content": "hi"}})

    assert case_file.read_case(written(case, tmp_path)) == case
    assert not case_file.values_folder(tmp_path / "case.json").exists()


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10))
def test_any_value_of_a_step_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, value: object):
    case = a_case(a_step("Code:0", value))

    assert case_file.read_case(written(case, tmp_path_factory.mktemp("case"))) == case


def test_large_values_lie_beside_the_file_and_are_read_from_there(tmp_path: Path):
    case = a_case(a_step("Code:0", LARGE, journal={"call:0:0": LARGE}), parts={"1": LARGE})

    file = written(case, tmp_path)

    assert len(file.read_text()) < 2000
    assert len(list(case_file.values_folder(file).iterdir())) == 1  # all three are equal
    assert case_file.read_case(file) == case


def test_values_of_an_earlier_recording_are_removed(tmp_path: Path):
    written(a_case(a_step("Code:0", LARGE)), tmp_path)

    file = written(a_case(a_step("Code:0", "short")), tmp_path)

    assert not case_file.values_folder(file).exists()


def test_changed_value_beside_a_case_is_refused(tmp_path: Path):
    file = written(a_case(a_step("Code:0", LARGE)), tmp_path)
    (value,) = case_file.values_folder(file).iterdir()
    value.write_text('"another"')

    with pytest.raises(MalformedRunCase, match="has been changed"):
        case_file.read_case(file)


def test_missing_value_beside_a_case_is_named(tmp_path: Path):
    file = written(a_case(a_step("Code:0", LARGE)), tmp_path)
    (value,) = case_file.values_folder(file).iterdir()
    value.unlink()

    with pytest.raises(MalformedRunCase, match=value.name):
        case_file.read_case(file)


def test_compared_value_is_cut_where_nothing_may_lie_beside():
    text = case_file.case_text(a_case(a_step("Switch:0", LARGE)), None, most=2048)

    content = json.loads(text)["steps"][0]["outputs"]["content"]
    assert (content["$cut"], len(content["sha256"])) == (3002, 64)


@pytest.mark.parametrize(
    "case",
    [
        a_case(a_step("Invoke:0", LARGE, as_recorded=True)),
        a_case(a_step("Agent:0", journal={"call:0:0": LARGE})),
        a_case(a_step("LLM:0", model_calls=(a_call("1", response="2"),)), parts={"1": "hi", "2": LARGE}),
    ],
    ids=["outputs of a step as recorded", "result of a tool", "answer of a model"],
)
def test_value_that_a_replay_needs_is_not_cut(case: RunCase):
    with pytest.raises(ValueTooLarge, match="--output FILE"):
        case_file.case_text(case, None, most=2048)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "is not a case"),
        ('{"format": "easel-case/2"}', "needs that release"),
        ('{"format": "easel-run/1"}', "is not a case: its format is 'easel-run/1'"),
        ('{"format": "easel-case/1", "name": "x"}', "recorded: Field required"),
    ],
)
def test_file_that_is_not_a_case_is_refused_with_the_reason(tmp_path: Path, content: str, message: str):
    file = tmp_path / "case.json"
    file.write_text(content)

    with pytest.raises(MalformedRunCase, match=message):
        case_file.read_case(file)


def test_unknown_member_is_refused_with_its_position(tmp_path: Path):
    file = written(a_case(a_step("LLM:0")), tmp_path)
    changed = json.loads(file.read_text())
    changed["steps"][0]["ouputs"] = {}
    file.write_text(json.dumps(changed))

    with pytest.raises(MalformedRunCase, match=r"steps\.0\.ouputs"):
        case_file.read_case(file)


@pytest.mark.parametrize(
    ("steps", "more", "message"),
    [
        ({"scope": "Iteration:0"}, {}, r"steps\.0\.scope"),
        ({"outcome": {"is": "Vanished"}}, {}, r"steps\.0\.outcome: .*not an outcome"),
        ({"outcome": {"is": "Failed"}}, {}, r"steps\.0\.outcome: .*lacks its member 'error'"),
        ({"model_calls": [{"model": "m", "messages": ["9"]}]}, {}, "a model call of LLM:0 names part 9"),
        ({"model_calls": [{"model": "m", "response": "9"}]}, {}, "a model call of LLM:0 names part 9"),
        ({}, {"result": {"status": "succeeded", "events": [{"event": STARTED, "step": 1}]}}, "an event names step 1"),
        ({}, {"files": [{"id": "f", "name": "f", "mime_type": "text/plain", "content": "=?"}]}, r"files\.0\.content"),
        ({}, {"start": {"baseline": {"values": {}}}}, r"start\.baseline\.globals: Field required"),
        ({}, {"start": {"baseline": {"globals": {}, "value": {}}}}, r"start\.baseline\.value: Extra inputs"),
    ],
)
def test_part_that_cannot_be_replayed_is_refused_with_its_position(
    tmp_path: Path, steps: dict[str, object], more: dict[str, object], message: str
):
    file = written(a_case(a_step("LLM:0")), tmp_path)
    content = json.loads(file.read_text()) | more
    content["steps"][0] |= steps
    file.write_text(json.dumps(content))

    with pytest.raises(MalformedRunCase, match=message):
        case_file.read_case(file)


@given(st.binary(max_size=200))
def test_any_other_content_is_refused_and_nothing_else_is_raised(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
):
    file = tmp_path_factory.mktemp("case") / "case.json"
    file.write_bytes(content)

    with pytest.raises(MalformedRunCase):
        case_file.read_case(file)
