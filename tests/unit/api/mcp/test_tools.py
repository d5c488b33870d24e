"""An agent as a tool: its form as a schema, and a turn as a result."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from api.mcp.tools import build_options, build_schema, make_answer
from api.runs.turn import TurnResult
from store.mcp.agents import ExposedAgent


def agent(**fields: Any) -> ExposedAgent:
    begin = {"obj": {"component_name": "Begin", "params": {"inputs": fields}}}
    ids = UUID(int=1), UUID(int=2)
    return ExposedAgent(*ids, "tool", "Title", "", datetime.now(UTC), {"components": {"begin": begin}})


def turn_result(name: str, data: Any, text: str = "") -> TurnResult:
    return TurnResult({"data": data, "message": "It broke."}, name, {"turn": [(0, text)]})


def test_an_agent_without_a_form_takes_a_query():
    schema = build_schema(agent())

    assert (schema["required"], list(schema["properties"])) == (["query"], ["query", "session_id"])


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        ({"type": "line"}, {"type": "string"}),
        ({"type": "number"}, {"type": "number"}),
        ({"type": "boolean"}, {"type": "boolean"}),
        ({"type": "options", "options": ["a", {"value": "b"}]}, {"type": "string", "enum": ["a", "b"]}),
    ],
)
def test_a_field_is_an_argument_of_its_type(field: dict[str, Any], schema: dict[str, Any]):
    described = build_schema(agent(x={**field, "name": "What it is"}))["properties"]["x"]

    assert described == {**schema, "description": "What it is"}


def test_a_file_is_an_object_that_names_an_upload():
    assert build_schema(agent(x={"type": "file"}))["properties"]["x"]["required"] == ["id"]


def test_fields_become_typed_inputs_and_other_arguments_become_options():
    one = agent(f={"type": "file", "optional": True}, session_id={"type": "line"})

    options = build_options(one, {"query": "Hi", "f": {"id": "1"}, "session_id": "a value"})

    assert options["query"] == "Hi"
    assert options["inputs"]["f"] == {"value": {"id": "1"}, "type": "file", "optional": True}
    assert options["inputs"]["session_id"]["value"] == "a value"
    assert "session_id" not in {name for name in options if name != "inputs"}
    assert options["release"] is True


def test_a_turn_becomes_a_result():
    finished = make_answer(turn_result("workflow_finished", {"outputs": {"content": "said"}}), "s", "r")
    failed = make_answer(turn_result("run_failed", False), "s", "r")
    asks = make_answer(turn_result("user_inputs", {"inputs": {"name": {}}, "tips": "Who?"}, "Hello."), "s", "r")

    assert (finished.text, finished.structured) == ("said", {"session_id": "s", "run_id": "r", "answer": "said"})
    assert (failed.text, failed.is_error) == ("It broke.", True)
    assert asks.text == "Hello.\nWho?\nThe agent waits for: name. Call again with these and session_id s."
    assert not asks.is_error
