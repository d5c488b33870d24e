"""The routes of one activation and its values."""

import json
import shutil
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from api.runs import activation_page
from canvas.ids import ActivationId, RunId
from store.runs import attempt_records
from store.runs.attempt_records import CallPosition
from tests.integration.api.activation_rows import rows_of
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, MODEL, Client, canvas, message
from tests.integration.api.test_activation_list import ITERATION, list_activations, run_to_end
from tests.integration.api.test_calls import ADD_ATTEMPT, CALL

LONG = canvas(
    ("begin", "Begin", {}, ["StringTransform:0"]),
    (
        "StringTransform:0",
        "StringTransform",
        {"method": "merge", "script": "{sys.query}" * 30, "delimiters": ["-"]},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("done"), []),
)
ASSIGNS = canvas(
    ("begin", "Begin", {}, ["VariableAssigner:0"]),
    (
        "VariableAssigner:0",
        "VariableAssigner",
        {"variables": [{"variable": "env.name", "operator": "overwrite", "parameter": "sys.query"}]},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Hello {env.name}"), []),
)
ASSIGNS["globals"] = {"env.name": "nobody"}
ASSIGNS["variables"] = {"name": {"name": "name", "type": "string", "value": "before"}}


def activation_of(client: Client, run_id: str, node_id: str, position: int = 0) -> str:
    """Return the id of an activation of a node, in canonical order."""
    return rows_of(list_activations(client, run_id, node_id=node_id))[position]["id"]


def get(client: Client, run_id: str, node_id: str, position: int = 0, **query: Any) -> dict[str, Any]:
    """Return an activation of a node, in canonical order."""
    path = f"/api/v1/runs/{run_id}/activations/{activation_of(client, run_id, node_id, position)}"
    reply = client.http.get(path, params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def value(client: Client, run_id: str, node_id: str, path: str, **query: Any) -> Any:
    url = f"/api/v1/runs/{run_id}/activations/{activation_of(client, run_id, node_id)}/values/{path}"
    return client.http.get(url, params=query)


def test_activation_has_its_row_values_and_events(client: Client) -> None:
    run_id = run_to_end(client, MODEL, "hello")

    model = get(client, run_id, "LLM:0")

    (row,) = rows_of(list_activations(client, run_id, node_id="LLM:0"))
    assert {name: model[name] for name in row} == row
    assert model["name"] == "the LLM:0"
    assert "hello" in model["outputs"]["content"]
    assert model["siblings"] == {"count": 1, "index": 0, "failed": 0}
    numbers = client.http.get(f"/api/v1/runs/{run_id}/events").json()["events"]
    of_node = [each["id"] for each in numbers if each.get("data", {}).get("component_id") == "LLM:0"]
    assert [str(number) for number in model["events"]] == of_node
    assert (model["explain"], model["lease_until"], model["item_path"]) == (None, None, [])


def test_activation_has_its_attempts_model_calls_and_tool_calls(client: Client, server: Server) -> None:
    run_id = run_to_end(client, MODEL, "hello")
    activation = activation_of(client, run_id, "LLM:0")
    with server.database.transaction() as tx:
        tx.execute(ADD_ATTEMPT, run_id=UUID(run_id), activation=UUID(activation), attempt=0)
        position = CallPosition(ActivationId(UUID(activation)), 1, "round:1", 0, False)
        call = {**CALL, "result": "long " * 5_000}
        message_id = UUID(client.run(run_id)["message_id"])
        attempt_records.add_tool_call(tx, RunId(UUID(run_id)), message_id, "LLM:0", call, position)

    model = get(client, run_id, "LLM:0")

    names = ("attempts", "model_calls", "tool_calls")
    listed = {name: client.http.get(f"/api/v1/runs/{run_id}/{name}").json() for name in names}
    earlier, current = model["attempts"]
    assert [earlier] == listed["attempts"]["attempts"]
    assert set(current) == set(earlier)
    assert (current["attempt"], current["end_reason"], current["worker"]) == (1, None, model["worker"])
    assert current["elapsed_ms"] == model["finished_at"] - model["started_at"]
    assert current["ready_at"] <= current["started_at"] <= current["ended_at"]
    assert model["model_calls"] == listed["model_calls"]["calls"]
    (shown,), (whole,) = model["tool_calls"], listed["tool_calls"]["tool_calls"]
    assert shown["result"] == {"$preview": call["result"][: 16 * 1024], "bytes": 25_000, "type": "text"}
    assert {**shown, "result": call["result"]} == whole
    assert model["cut"] == []
    begin = get(client, run_id, "begin")
    assert (begin["model_calls"], begin["tool_calls"], len(begin["attempts"])) == ([], [], 1)


def test_lists_of_an_activation_say_that_they_are_cut(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = run_to_end(client, MODEL)
    monkeypatch.setattr(activation_page, "MAX_RECORDS", 0)
    monkeypatch.setattr(activation_page, "MAX_EVENTS", 1)

    model = get(client, run_id, "LLM:0")

    assert (model["attempts"], model["model_calls"], len(model["events"])) == ([], [], 1)
    assert model["cut"] == ["events", "attempts", "model_calls"]


def test_activation_that_no_worker_has_claimed_has_no_attempt(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    assert get(workerless_client, run_id, "begin")["attempts"] == []


def test_activation_names_what_it_read_and_who_wrote_it(client: Client) -> None:
    run_id = run_to_end(client, MODEL)

    reads = {each["reference"]: each for each in get(client, run_id, "Message:0")["reads"]}
    (query,) = get(client, run_id, "LLM:0")["reads"]

    assert reads["LLM:0@content"] == {
        "reference": "LLM:0@content",
        "node_id": "LLM:0",
        "activation_id": activation_of(client, run_id, "LLM:0"),
        "missing": False,
    }
    assert (query["reference"], query["missing"]) == ("sys.query", False)


def test_variable_is_read_from_the_activation_that_set_it(client: Client) -> None:
    run_id = run_to_end(client, ASSIGNS, "Ada")

    writer = get(client, run_id, "VariableAssigner:0")
    reads = {each["reference"]: each for each in get(client, run_id, "Message:0")["reads"]}

    assert writer["variables"] == {"env.name": "Ada"}
    assert reads["env.name"]["activation_id"] == writer["id"]
    assert value(client, run_id, "VariableAssigner:0", "variables/env.name").text == "Ada"


def test_reference_that_nothing_has_written_is_missing(client: Client) -> None:
    dsl = canvas(("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message("{env.nothing}"), []))
    run_id = client.start(client.agent(dsl))["run_id"]
    client.wait_for(run_id, "failed")

    (read,) = get(client, run_id, "Message:0")["reads"]

    assert (read["reference"], read["activation_id"], read["missing"]) == ("env.nothing", None, True)


def test_model_of_an_activation_is_no_reference(client: Client) -> None:
    dsl = json.loads(json.dumps(MODEL))
    dsl["components"]["LLM:0"]["obj"]["params"]["llm_id"] = "llama3:8b@Nobody"
    run_id = client.start(client.agent(dsl))["run_id"]
    client.wait_for(run_id, "failed")

    reads = get(client, run_id, "LLM:0")["reads"]

    assert [read["reference"] for read in reads] == ["sys.query"]


def test_item_reads_the_visit_of_its_own_item(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, "a,b,c")

    second = get(client, run_id, "StringTransform:0", 1)

    (read,) = second["reads"]
    assert read["activation_id"] == activation_of(client, run_id, "IterationItem:0", 1)
    assert second["siblings"] == {"count": 3, "index": 1, "failed": 0}
    (path,) = second["item_path"]
    container = activation_of(client, run_id, "Iteration:0")
    assert (path["container"], path["item"], path["count"]) == ("Iteration:0", 1, 3)
    assert path["activation_id"] == container


def test_container_that_has_ended_has_what_it_collected(client: Client) -> None:
    run_id = run_to_end(client, ITERATION, "a,b")

    container = get(client, run_id, "Iteration:0")
    whole = value(client, run_id, "Iteration:0", "outputs/all")

    assert container["outputs"]["all"] == ["<a>", "<b>"]
    assert whole.json() == ["<a>", "<b>"]
    assert container["outcome_details"]["count"] == 2


def test_waiting_activation_explains_its_own_wait(client: Client) -> None:
    run_id = client.start(client.agent(FORM))["run_id"]
    client.wait_for(run_id, "waiting")

    form = get(client, run_id, "UserFillUp:0")

    assert form["explain"]["waits_for"] == "person"
    assert form["outcome"] == "WaitingForInput"
    assert form["outcome_details"]["tips"] == "Who are you?"


def test_ready_activation_waits_for_a_worker(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    begin = get(workerless_client, run_id, "begin")

    assert (begin["status"], begin["explain"]["waits_for"]) == ("ready", "worker")
    assert (begin["inputs"], begin["outputs"], begin["variables"]) == ({}, {}, {})


def test_long_value_is_a_preview_and_whole_at_its_own_route(client: Client) -> None:
    run_id = run_to_end(client, LONG, "x" * 1_000)

    shown = get(client, run_id, "StringTransform:0")["outputs"]["result"]
    whole = value(client, run_id, "StringTransform:0", "outputs/result")
    attached = value(client, run_id, "StringTransform:0", "outputs/result", download="1")

    assert (shown["bytes"], shown["type"], len(shown["$preview"])) == (30_000, "text", 16_384)
    assert whole.text == "x" * 30_000
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert attached.headers["content-disposition"] == 'attachment; filename="result.txt"'


def test_value_in_the_file_storage_is_whole_until_its_file_is_lost(client: Client, home: Path) -> None:
    run_id = run_to_end(client, LONG, "x" * 50_000)

    shown = get(client, run_id, "StringTransform:0")["outputs"]["result"]
    whole = value(client, run_id, "StringTransform:0", "outputs/result")
    shutil.rmtree(home / "files" / "values")
    lost = value(client, run_id, "StringTransform:0", "outputs/result")

    assert (shown["type"], shown["bytes"]) == ("file", 1_500_002)
    assert whole.text == "x" * 1_500_000
    assert (lost.status_code, lost.json()["code"]) == (410, "value_gone")


def test_values_can_be_left_out(client: Client) -> None:
    run_id = run_to_end(client, ECHO)

    shown = get(client, run_id, "Message:0", values="none")

    assert {"inputs", "outputs", "variables"}.isdisjoint(shown)
    assert shown["status"] == "done"


def test_unknown_activations_and_values_are_not_found(client: Client) -> None:
    run_id, other = run_to_end(client, ECHO), run_to_end(client, MODEL, title="other")
    known = activation_of(client, run_id, "begin")

    for path in (
        f"{run_id}/activations/{'0' * 32}",
        f"{run_id}/activations/begin",
        f"{other}/activations/{known}",
        f"{run_id}/activations/{known}/values/outputs/nothing",
        f"{run_id}/activations/{known}/values/variables/nothing",
        f"{other}/activations/{known}/values/outputs/nothing",
    ):
        assert client.http.get(f"/api/v1/runs/{path}").status_code == 404, path


@pytest.mark.parametrize(("path", "query", "field"), [
    ("", {"values": "all"}, "values"),
    ("/values/secrets/x", {}, "kind"),
    ("/values/outputs/x", {"download": "yes"}, "download"),
])  # fmt: skip
def test_invalid_request_is_refused_with_the_name_of_its_field(
    workerless_client: Client, path: str, query: dict[str, Any], field: str
) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    known = activation_of(workerless_client, run_id, "begin")

    reply = workerless_client.http.get(f"/api/v1/runs/{run_id}/activations/{known}{path}", params=query)

    assert (reply.status_code, reply.json()["details"]["field"]) == (400, field)
