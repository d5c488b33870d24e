"""The routes of runs: start, stream, resume, cancel, explain and list."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx2
import pytest

from store.primitives.encryption import EncryptionKey
from store.runs import run_queries, run_rows
from store.tenants import sealed_headers
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, MODEL, Client, Frame, frames, text_of


def follow(client: Client, run_id: str, after: str = "", **headers: str) -> list[Frame]:
    """Return all frames of a run's stream."""
    url = f"/api/v1/runs/{run_id}/events"
    sse = {"Accept": "text/event-stream", **headers}
    with client.http.stream("GET", url, params={"after": after} if after else {}, headers=sse) as response:
        return list(frames(response.iter_lines()))


def message_text(bodies: list[dict[str, Any]]) -> str:
    return "".join(body["data"]["content"] for body in bodies if body.get("event") == "message")


def test_started_run_is_accepted_with_its_ids_and_location(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    reply = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "hi"})

    ids = reply.json()
    assert reply.status_code == 202
    assert reply.headers["location"] == f"/api/v1/runs/{ids['run_id']}"
    assert set(ids) == {"run_id", "session_id", "message_id"}
    run = workerless_client.http.get(reply.headers["location"]).json()
    assert (run["status"], run["agent_id"], run["session_id"]) == ("running", agent, ids["session_id"])
    assert run["request"]["query"] == "hi"
    assert [(step["node_id"], step["status"]) for step in run["activations"]] == [("begin", "ready")]


def test_start_repeated_with_its_idempotency_key_starts_no_second_run(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    headers = {"Idempotency-Key": "again"}

    replies = [
        workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "hi"}, headers=headers)
        for _ in range(3)
    ]
    other = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "else"}, headers=headers)

    assert [reply.status_code for reply in replies] == [202, 202, 202]
    assert len({json.dumps(reply.json(), sort_keys=True) for reply in replies}) == 1
    assert workerless_client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 1
    assert other.status_code == 409
    assert other.json()["code"] == "conflict"


def test_prefer_wait_for_an_unfinished_run_returns_202_and_its_ids(workerless_client: Client) -> None:
    reply = workerless_client.http.post(
        f"/api/v1/agents/{workerless_client.agent(ECHO)}/runs", json={"query": "hi"}, headers={"Prefer": "wait=1"}
    )

    assert reply.status_code == 202
    assert workerless_client.run(reply.json()["run_id"])["status"] == "running"


def test_run_without_a_worker_can_be_cancelled(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    replies = [workerless_client.http.post(f"/api/v1/runs/{run_id}/cancel") for _ in range(2)]

    assert [reply.json()["status"] for reply in replies] == ["cancelled", "cancelled"]
    events = follow(workerless_client, run_id)
    assert events[-1].data["event"] == "workflow_finished"
    assert events[-1].data["data"]["outputs"] == "Task has been canceled"


def test_all_runs_of_an_agent_can_be_cancelled_at_once(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    runs = [workerless_client.start(agent)["run_id"] for _ in range(3)]

    assert workerless_client.http.post(f"/api/v1/agents/{agent}/cancel", json={}).json()["data"] is True

    assert [workerless_client.run(run)["status"] for run in runs] == ["cancelled"] * 3


def test_a_session_can_be_stopped_by_the_task_id_of_its_events(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    other, stopped = workerless_client.start(agent), workerless_client.start(agent)

    reply = workerless_client.http.patch(f"/api/v1/tasks/{stopped['session_id']}", json={"action": "stop"})

    assert reply.json() == {"code": 0, "message": "success", "data": True}
    assert workerless_client.run(stopped["run_id"])["status"] == "cancelled"
    assert workerless_client.run(other["run_id"])["status"] == "running"
    assert (
        workerless_client.http.patch(f"/api/v1/tasks/{other['session_id']}", json={"action": "x"}).json()["code"] == 101
    )
    assert workerless_client.http.post("/api/v1/tasks/nothing-we-know/cancel").json()["data"] is True


def test_client_disconnect_with_cancel_on_disconnect_cancels_the_run(workerless_client: Client) -> None:
    body = {"agent_id": workerless_client.agent(ECHO), "query": "q", "stream": True, "cancel_on_disconnect": True}

    with workerless_client.http.stream("POST", "/api/v1/agents/chat/completions", json=body) as response:
        run_id = next(frames(response.iter_lines())).data["run_id"]

    assert workerless_client.wait_for(run_id, "cancelled")


def test_client_disconnect_without_a_stream_cancels_the_run(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    body = {"agent_id": agent, "query": "q", "cancel_on_disconnect": True}

    with pytest.raises(httpx2.TimeoutException):
        workerless_client.http.post("/api/v1/agents/chat/completions", json=body, timeout=0.5)

    runs = workerless_client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["runs"]
    assert workerless_client.wait_for(runs[0]["id"], "cancelled")


def test_idle_stream_sends_keepalive_comments(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    keepalives = 0

    headers = {"Accept": "text/event-stream"}
    with workerless_client.http.stream("GET", f"/api/v1/runs/{run_id}/events", headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-accel-buffering"] == "no"
        for line in response.iter_lines():
            keepalives += line.startswith(":")
            if keepalives == 2:
                break

    assert keepalives == 2


def test_open_stream_ends_at_once_when_its_run_is_cancelled(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]
    headers = {"Accept": "text/event-stream"}

    with workerless_client.http.stream("GET", f"/api/v1/runs/{run_id}/events", headers=headers) as response:
        events = frames(response.iter_lines())
        assert next(events).data["event"] == "workflow_started"
        workerless_client.http.post(f"/api/v1/runs/{run_id}/cancel")
        rest = [frame.data["event"] for frame in events]

    assert rest[-1] == "workflow_finished"


@pytest.mark.parametrize("after", ["x", "1.2.3", "-1"])
def test_invalid_stream_position_is_refused(workerless_client: Client, after: str) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    reply = workerless_client.http.get(f"/api/v1/runs/{run_id}/events", params={"after": after})

    assert reply.status_code == 400
    assert reply.json()["code"] == "invalid_request"


def test_a_queued_run_that_is_cancelled_ends_its_streams(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = workerless_client.start(agent)
    queued = workerless_client.start(agent, session_id=first["session_id"], on_busy="enqueue")["run_id"]
    assert workerless_client.run(queued)["status"] == "queued"

    headers = {"Accept": "text/event-stream"}
    with workerless_client.http.stream("GET", f"/api/v1/runs/{queued}/events", headers=headers) as response:
        workerless_client.http.post(f"/api/v1/runs/{queued}/cancel")
        live = list(frames(response.iter_lines()))

    assert workerless_client.run(queued)["status"] == "cancelled"
    assert [frame.data["event"] for frame in live] == ["workflow_finished"]
    assert live == follow(workerless_client, queued)


def test_idempotency_key_that_is_too_long_is_refused(workerless_client: Client) -> None:
    reply = workerless_client.http.post(
        f"/api/v1/agents/{workerless_client.agent(ECHO)}/runs", json={}, headers={"Idempotency-Key": "k" * 300}
    )

    assert reply.status_code == 400


def test_resuming_a_run_that_does_not_wait_is_a_conflict(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    reply = workerless_client.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "x"}})

    assert reply.status_code == 409
    assert reply.json()["code"] == "conflict"


def test_explain_shows_what_a_run_waits_for(workerless_client: Client) -> None:
    run_id = workerless_client.start(workerless_client.agent(ECHO))["run_id"]

    waiting = workerless_client.http.get(f"/api/v1/runs/{run_id}/explain").json()
    workerless_client.http.post(f"/api/v1/runs/{run_id}/cancel")
    ended = workerless_client.http.get(f"/api/v1/runs/{run_id}/explain").json()

    assert (waiting["run_id"], waiting["status"], waiting["waits_for"]) == (run_id, "running", "worker")
    assert (waiting["node"], waiting["owner"], waiting["also"]) == ("begin", "the workers", [])
    assert (ended["waits_for"], ended["sentence"]) == ("over", "The run was cancelled.")


def test_unknown_runs_are_not_found(workerless_client: Client) -> None:  # T132
    for path in ("0" * 32, "not-an-id"):
        assert workerless_client.http.get(f"/api/v1/runs/{path}").status_code == 404
        assert workerless_client.http.get(f"/api/v1/runs/{path}/events").status_code == 404
        assert workerless_client.http.get(f"/api/v1/runs/{path}/explain").status_code == 404
        assert workerless_client.http.post(f"/api/v1/runs/{path}/cancel").status_code == 404
        assert workerless_client.http.post(f"/api/v1/runs/{path}/resume", json={}).status_code == 404


def test_runs_are_listed_newest_first_by_agent_session_and_status(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first, second = workerless_client.start(agent), workerless_client.start(agent)
    workerless_client.http.post(f"/api/v1/runs/{first['run_id']}/cancel")

    def ids(**query: Any) -> list[str]:
        return [run["id"] for run in workerless_client.http.get("/api/v1/runs", params=query).json()["runs"]]

    assert ids() == [second["run_id"], first["run_id"]]
    assert ids(status="cancelled") == [first["run_id"]]
    assert ids(session_id=second["session_id"]) == [second["run_id"]]
    assert ids(agent_id="0" * 32) == []
    assert ids(page_size=1, page=2) == [first["run_id"]]
    assert workerless_client.http.get("/api/v1/runs", params={"page_size": 101}).status_code == 400
    assert workerless_client.http.get("/api/v1/runs", params={"status": "odd"}).status_code == 400


def test_page_by_number_has_what_it_had_before_there_were_pages_by_key(workerless_client: Client) -> None:  # T028
    agent = workerless_client.agent(ECHO)
    runs = [workerless_client.start(agent)["run_id"] for _ in range(12)]

    reply = workerless_client.http.get("/api/v1/runs", params={"page": 2, "page_size": 10}).json()

    assert (set(reply), reply["total"]) == ({"runs", "total"}, 12)
    assert [run["id"] for run in reply["runs"]] == [runs[1], runs[0]]
    names = "id external_id agent_id version_id session_id message_id status error has_model_error usage last_event "
    names += "created_at started_at finished_at elapsed_ms"
    assert set(names.split()) <= set(reply["runs"][0])


def test_total_of_a_page_after_the_last_run_is_the_number_of_runs(workerless_client: Client) -> None:  # T028
    def page_of(agent: str) -> dict[str, Any]:
        return workerless_client.http.get("/api/v1/runs", params={"agent_id": agent, "page": 4, "page_size": 2}).json()

    agent, unused = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "unused")
    for _ in range(3):
        workerless_client.start(agent)

    assert page_of(agent) == {"runs": [], "total": 3}
    assert page_of(unused) == {"runs": [], "total": 0}


def test_start_with_prefer_wait_returns_the_result_of_the_run(client: Client) -> None:
    reply = client.http.post(
        f"/api/v1/agents/{client.agent(ECHO)}/runs", json={"query": "hi"}, headers={"Prefer": "respond-async, wait=20"}
    )

    assert reply.status_code == 200
    assert reply.headers["preference-applied"] == "wait=20"
    assert reply.json()["content"] == "You said: hi"


def test_stream_can_be_continued_from_every_position(client: Client) -> None:
    run_id = client.start(client.agent(MODEL), "some words to be repeated")["run_id"]
    whole = follow(client, run_id)
    client.wait_for(run_id, "succeeded")

    assert message_text([frame.data for frame in whole])
    for index, frame in enumerate(whole):
        rest = follow(client, run_id, **{"Last-Event-ID": frame.id})
        later = [other.data for other in whole[index + 1 :]]
        assert [d.get("seq") for d in later if "seq" in d] == [f.data["seq"] for f in rest if "seq" in f.data]
        assert message_text(later) == message_text([other.data for other in rest])


def test_reconnecting_browser_continues_after_last_event_id_and_not_after_its_url(client: Client) -> None:
    run_id = client.start(client.agent(MODEL), "some words to be repeated")["run_id"]
    client.wait_for(run_id, "succeeded")
    whole = follow(client, run_id)
    early, late = whole[0], whole[len(whole) // 2]

    rest = follow(client, run_id, after=early.id, **{"Last-Event-ID": late.id})

    assert [frame.data for frame in rest] == [frame.data for frame in follow(client, run_id, after=late.id)]
    assert len(rest) < len(whole) - 1


def test_events_as_json_are_those_of_the_stream(client: Client) -> None:
    run_id = client.start(client.agent(MODEL), "words")["run_id"]
    client.wait_for(run_id, "succeeded")

    page = client.http.get(f"/api/v1/runs/{run_id}/events").json()
    rest = client.http.get(f"/api/v1/runs/{run_id}/events", params={"after": page["position"]}).json()

    assert page["status"] == "succeeded"
    assert page["events"] == [{"id": frame.id, **frame.data} for frame in follow(client, run_id)]
    assert rest["events"] == []


def test_waiting_run_continues_after_its_form_was_answered(client: Client) -> None:
    run_id = client.start(client.agent(FORM))["run_id"]
    waiting = client.wait_for(run_id, "waiting")
    events = follow(client, run_id)

    reply = client.http.post(
        f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": {"value": "Ada"}}}, headers={"Prefer": "wait=20"}
    )

    assert waiting["waiting"]["UserFillUp:0"]["tips"] == "Who are you?"
    assert events[-1].data["event"] == "user_inputs"
    assert reply.status_code == 200
    assert reply.json()["content"] == "Hello Ada"
    rest = follow(client, run_id, after=events[-1].id)
    assert message_text([frame.data for frame in rest]) == "Hello Ada"
    assert client.run(run_id)["answer"] == "Hello Ada"


def test_a_finished_run_shows_its_activations_with_times(client: Client) -> None:
    run_id = client.start(client.agent(MODEL))["run_id"]

    run = client.wait_for(run_id, "succeeded")

    assert [step["node_id"] for step in run["activations"]] == ["begin", "LLM:0", "Message:0"]
    assert all(step["status"] == "done" and step["elapsed_ms"] is not None for step in run["activations"])
    assert run["usage"]["calls"] == 1
    assert run["answer"].startswith("Answer: ")


def test_activations_inside_a_container_are_nested_in_its_activation(client: Client) -> None:
    iteration = {"items_ref": "sys.files", "outputs": {"all": {"ref": "StringTransform:0@result", "type": "Array"}}}
    dsl = {
        "components": {
            "begin": {"obj": {"component_name": "Begin", "params": {}}, "downstream": ["StringTransform:S"]},
            "StringTransform:S": {
                "obj": {
                    "component_name": "StringTransform",
                    "params": {"method": "split", "split_ref": "sys.query", "delimiters": [","]},
                },
                "downstream": ["Iteration:0"],
            },
            "Iteration:0": {
                "obj": {
                    "component_name": "Iteration",
                    "params": {**iteration, "items_ref": "StringTransform:S@result"},
                },
                "downstream": [],
            },
            "IterationItem:0": {
                "obj": {"component_name": "IterationItem", "params": {}},
                "downstream": ["Message:0"],
                "parent_id": "Iteration:0",
            },
            "Message:0": {
                "obj": {"component_name": "Message", "params": {"content": ["<{IterationItem:0@item}>"]}},
                "downstream": [],
                "parent_id": "Iteration:0",
            },
        }
    }
    run_id = client.start(client.agent(dsl), "a,b")["run_id"]

    run = client.wait_for(run_id, "succeeded", "failed")

    container = next(step for step in run["activations"] if step["node_id"] == "Iteration:0")
    assert run["answer"] == "<a><b>"
    assert [(step["node_id"], step["item"]) for step in container["activations"]] == [
        ("IterationItem:0", 0),
        ("Message:0", 0),
        ("IterationItem:0", 1),
        ("Message:0", 1),
        ("IterationItem:0", 2),
    ]


def test_queued_run_starts_after_the_earlier_run_has_ended(client: Client) -> None:
    agent = client.agent(FORM)
    first = client.start(agent)
    client.wait_for(first["run_id"], "waiting")
    client.http.post(f"/api/v1/runs/{first['run_id']}/cancel")

    second = client.start(agent, session_id=first["session_id"], on_busy="enqueue")

    assert client.wait_for(second["run_id"], "waiting")


def test_many_clients_are_served_at_once(client: Client) -> None:
    agent = client.agent(MODEL)

    with ThreadPoolExecutor(30) as threads:
        answers = list(threads.map(lambda number: client.stream(agent, f"question {number}"), range(30)))

    assert [text_of(events).count(f"question {number}") > 0 for number, events in enumerate(answers)] == [True] * 30
    assert all(events[-1].data == "[DONE]" for events in answers)


# -- custom headers ----------------------------------------------------------------------------------------------------
def test_form_answer_and_openai_request_store_their_custom_headers(server: Server, client: Client):
    form, echo = client.agent(FORM, "form"), client.agent(ECHO, "echo")
    first = client.start(form, custom_header={"X-Who": "asked"})["run_id"]
    client.wait_for(first, "waiting")
    answer = {"inputs": {"name": "Ada"}, "custom_header": {"X-Who": "answered"}}
    openai_body = {"messages": [{"role": "user", "content": "hi"}], "custom_header": {"X-Who": "in other words"}}

    client.http.post(f"/api/v1/runs/{first}/resume", json=answer)
    second = client.http.post(f"/api/v1/openai/agents/{echo}/chat/completions", json=openai_body)

    (other,) = client.http.get("/api/v1/runs", params={"agent_id": echo}).json()["runs"]
    assert second.status_code == 200
    assert [read_custom_headers(server, client, run) for run in (first, other["id"])] == [
        {"X-Who": "answered"},
        {"X-Who": "in other words"},
    ]


def read_custom_headers(server: Server, client: Client, run_id: str) -> dict[str, str]:
    with server.database.transaction() as tx:
        row = run_rows.read(tx, client.tenant_id, UUID(run_id))
    assert row is not None
    return sealed_headers.unseal_headers(EncryptionKey.from_secret(SECRET), client.tenant_id, row["request"])


# -- failed, waiting and cancelled runs ------------------------------------------------------------------------------
def test_prefer_wait_for_a_run_that_fails_returns_status_500(client: Client) -> None:
    reply = client.http.post(
        f"/api/v1/agents/{client.agent(BROKEN)}/runs", json={"query": "hi"}, headers={"Prefer": "wait=20"}
    )

    body = reply.json()
    assert reply.status_code == 500
    assert (body["code"], body["details"]["status"]) == ("run_failed", "failed")
    assert body["message"]
    assert client.run(body["details"]["run_id"])["status"] == "failed"
    assert reply.headers["location"] == f"/api/v1/runs/{body['details']['run_id']}"


def test_prefer_wait_for_a_run_that_asks_a_form_returns_the_form_and_status_waiting(client: Client) -> None:
    reply = client.http.post(
        f"/api/v1/agents/{client.agent(FORM)}/runs", json={"query": "hi"}, headers={"Prefer": "wait=20"}
    )

    assert reply.status_code == 200
    assert (reply.json()["status"], reply.json()["tips"]) == ("waiting", "Who are you?")
    assert list(reply.json()["inputs"]) == ["name"]


def test_resuming_a_cancelled_run_is_a_conflict(client: Client) -> None:
    started = client.start(client.agent(FORM))
    client.wait_for(started["run_id"], "waiting")
    client.http.post(f"/api/v1/runs/{started['run_id']}/cancel")

    reply = client.http.post(
        f"/api/v1/runs/{started['run_id']}/resume", json={"query": "Ada"}, headers={"Prefer": "wait=20"}
    )

    assert reply.status_code == 409


@pytest.mark.parametrize("id_field", ["run_id", "session_id"])
def test_cancelling_an_agent_does_not_cancel_a_run_of_another_agent(workerless_client: Client, id_field: str) -> None:
    mine, other = (
        workerless_client.start(workerless_client.agent(ECHO)),
        workerless_client.start(workerless_client.agent(ECHO, "other")),
    )
    agent = workerless_client.run(mine["run_id"])["agent_id"]

    def cancel(started: dict[str, Any]) -> Any:
        return workerless_client.http.post(f"/api/v1/agents/{agent}/cancel", json={id_field: started[id_field]}).json()[
            "data"
        ]

    cancelled = cancel(other)
    statuses = workerless_client.run(mine["run_id"])["status"], workerless_client.run(other["run_id"])["status"]
    cancel(mine)

    assert cancelled is True
    assert statuses == ("running", "running")
    assert workerless_client.run(mine["run_id"])["status"] == "cancelled"
    assert workerless_client.run(other["run_id"])["status"] == "running"


def test_cancelling_an_agent_without_ids_cancels_all_of_its_runs_and_no_others(workerless_client: Client) -> None:
    agent, other = workerless_client.agent(ECHO), workerless_client.start(workerless_client.agent(ECHO, "other"))
    started = [workerless_client.start(agent) for _ in range(2)]

    workerless_client.http.post(f"/api/v1/agents/{agent}/cancel", json={})

    assert [workerless_client.run(run["run_id"])["status"] for run in (*started, other)] == [
        "cancelled",
        "cancelled",
        "running",
    ]


def test_run_shows_whether_its_activations_were_truncated(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = client.start(client.agent(MODEL))["run_id"]
    whole = client.wait_for(run_id, "succeeded")
    monkeypatch.setattr(run_queries, "MAX_STEPS", 2)

    truncated = client.run(run_id)

    assert (len(whole["activations"]), whole["activation_count"], whole["activations_truncated"]) == (3, 3, False)
    assert (len(truncated["activations"]), truncated["activation_count"], truncated["activations_truncated"]) == (
        2,
        3,
        True,
    )
