"""The routes of model calls, tool calls and earlier attempts of a run."""

from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from store.primitives.ids import new_id
from store.runs import attempt_records
from store.runs.attempt_records import CallPosition
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, MODEL, Client

LISTS = ("model_calls", "attempts", "tool_calls")
ADD_ATTEMPT = text("""
    insert into attempts (run_id, activation_id, attempt, started_at, ended_at, end_reason, error, crash_count)
    values (:run_id, :activation, :attempt, now(), now() + interval '2 s', 'worker_lost', 'The worker was lost.', 1)
""")
CALL = {"path": "Agent", "tool_name": "search", "arguments": {"q": "a"}, "result": "1", "elapsed_time": 0.25}


def test_model_call_is_listed_without_bodies_and_shown_with_them(client: Client) -> None:
    run = finished_run(client, "Hello?")
    (activation,) = [step for step in run["activations"] if step["node_id"] == "LLM:0"]

    listed = get(client, run, "model_calls")
    (call,) = listed["calls"]
    shown = get(client, run, f"model_calls/{call['id']}")

    assert listed["next"] is None
    assert listed["now"] > call["ended_at"] >= call["first_token_at"] >= call["started_at"]
    assert (call["activation_id"], call["attempt"], call["round"]) == (activation["id"], 1, None)
    assert (call["kind"], call["model"], call["status"], call["tries"], call["waited_ms"]) == (
        "chat",
        "echo",
        "ok",
        1,
        0,
    )
    assert call["usage"] == activation["usage"]
    assert "request" not in call
    assert call["bodies"] == "stored"
    assert shown == {
        **call,
        "now": shown["now"],
        "request": {"messages": shown["request"]["messages"], "params": shown["request"]["params"]},
        "response": {"role": "assistant", "content": "Hello?"},
    }
    assert shown["request"]["messages"][-1] == {"role": "user", "content": "Hello?"}


def test_list_of_model_calls_is_filtered_by_activation_and_paged(client: Client, server: Server) -> None:
    run = finished_run(client, "Hello?")
    (call,) = get(client, run, "model_calls")["calls"]
    with server.database.transaction() as tx:
        for _ in range(2):
            copy = "insert into model_calls select run_id, :id, :activation, attempt + 1, round, kind, model, account, "
            copy += "started_at, first_token_at, ended_at, status, error, tries, waited_ms, usage, request, response "
            copy += "from model_calls where run_id = :run_id and id = :call"
            tx.execute(text(copy), id=new_id(), activation=new_id(), run_id=UUID(run["id"]), call=UUID(call["id"]))

    assert get(client, run, "model_calls", activation_id=call["activation_id"])["calls"] == [call]
    first = get(client, run, "model_calls", limit="2")
    second = get(client, run, "model_calls", limit="2", after=first["next"])
    assert [len(first["calls"]), len(second["calls"]), second["next"]] == [2, 1, None]
    assert len({entry["id"] for entry in (*first["calls"], *second["calls"])}) == 3


def test_attempts_are_listed_by_activation_and_paged(workerless_client: Client, workerless_server: Server) -> None:
    run = workerless_client.run(workerless_client.start(workerless_client.agent(ECHO))["run_id"])
    one, other = sorted((new_id(), new_id()))
    with workerless_server.database.transaction() as tx:
        for activation, attempt in ((one, 1), (one, 2), (other, 1)):
            tx.execute(ADD_ATTEMPT, run_id=UUID(run["id"]), activation=activation, attempt=attempt)

    first = get(workerless_client, run, "attempts", limit="2")
    second = get(workerless_client, run, "attempts", limit="2", after=first["next"])
    of_one = get(workerless_client, run, "attempts", activation_id=str(other))

    shown = [(entry["activation_id"], entry["attempt"]) for entry in (*first["attempts"], *second["attempts"])]
    assert shown == [(one.hex, 1), (one.hex, 2), (other.hex, 1)]
    assert second["next"] is None
    (entry,) = of_one["attempts"]
    assert (entry["end_reason"], entry["error"], entry["elapsed_ms"]) == ("worker_lost", "The worker was lost.", 2000)


def test_tool_calls_are_listed_by_activation(workerless_client: Client, workerless_server: Server) -> None:
    started = workerless_client.start(workerless_client.agent(ECHO))
    run = workerless_client.run(started["run_id"])
    activation = new_id()
    with workerless_server.database.transaction() as tx:
        ids = UUID(run["id"]), UUID(started["message_id"])
        attempt_records.add_tool_call(tx, *ids, "Agent:0", CALL)
        attempt_records.add_tool_call(tx, *ids, "Agent:0", CALL, CallPosition(activation, 2, "round:1", 3, True))

    every = get(workerless_client, run, "tool_calls")["tool_calls"]
    (call,) = get(workerless_client, run, "tool_calls", activation_id=str(activation))["tool_calls"]

    assert len(every) == 2
    assert (call["attempt"], call["round"], call["ordinal"]) == (2, "round:1", 3)
    assert (call["failed"], call["replayed"], call["elapsed_ms"]) == (True, False, 250)
    assert (call["tool_name"], call["arguments"], call["result"]) == ("search", {"q": "a"}, "1")
    assert (every[0]["activation_id"], every[0]["attempt"]) == (None, None)


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    ("field", "value"),
    [("limit", "0"), ("limit", "501"), ("limit", "many"), ("activation_id", "Agent:0"), ("after", "last"), ("of", "x")],
)
def test_bad_parameter_of_a_list_is_refused_by_name(
    workerless_client: Client, name: str, field: str, value: str
) -> None:  # T145
    run = workerless_client.start(workerless_client.agent(ECHO))

    reply = workerless_client.http.get(f"/api/v1/runs/{run['run_id']}/{name}", params={field: value})

    assert reply.status_code == 400
    assert reply.json()["details"]["field"] == field
    assert f"`{field}`" in reply.json()["message"]


@pytest.mark.parametrize("path", [*LISTS, f"model_calls/{'0' * 32}", "model_calls/nonsense"])
def test_unknown_runs_and_calls_are_not_found(workerless_client: Client, path: str) -> None:
    run = workerless_client.start(workerless_client.agent(ECHO))

    unknown = workerless_client.http.get(f"/api/v1/runs/{'0' * 32}/{path}")
    known = workerless_client.http.get(f"/api/v1/runs/{run['run_id']}/{path}")

    assert unknown.status_code == 404
    assert known.status_code == (200 if path in LISTS else 404)


def finished_run(client: Client, query: str) -> dict[str, Any]:
    agent = client.agent(MODEL)
    headers = {"Prefer": "wait=60"}
    reply = client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": query}, headers=headers)
    assert reply.status_code == 200, reply.text
    return client.run(reply.json()["run_id"])


def get(client: Client, run: dict[str, Any], path: str, **params: str) -> dict[str, Any]:
    reply = client.http.get(f"/api/v1/runs/{run['id']}/{path}", params=params)
    assert reply.status_code == 200, reply.text
    return reply.json()
