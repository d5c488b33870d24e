"""Runs by their own routes: accepted without a worker, followed from anywhere, answered, cancelled."""

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
    """A run's stream to its end."""
    url = f"/api/v1/runs/{run_id}/events"
    sse = {"Accept": "text/event-stream", **headers}
    with client.http.stream("GET", url, params={"after": after} if after else {}, headers=sse) as response:
        return list(frames(response.iter_lines()))


def said_in(bodies: list[dict[str, Any]]) -> str:
    return "".join(body["data"]["content"] for body in bodies if body.get("event") == "message")


def test_a_run_is_accepted_with_its_place(lonely: Client) -> None:
    agent = lonely.agent(ECHO)

    reply = lonely.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "hi"})

    ids = reply.json()
    assert reply.status_code == 202
    assert reply.headers["location"] == f"/api/v1/runs/{ids['run_id']}"
    assert set(ids) == {"run_id", "session_id", "message_id"}
    run = lonely.http.get(reply.headers["location"]).json()
    assert (run["status"], run["agent_id"], run["session_id"]) == ("running", agent, ids["session_id"])
    assert run["request"]["query"] == "hi"
    assert [(step["node_id"], step["status"]) for step in run["activations"]] == [("begin", "ready")]


def test_sending_a_start_again_with_its_key_starts_nothing(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    headers = {"Idempotency-Key": "again"}

    replies = [
        lonely.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "hi"}, headers=headers) for _ in range(3)
    ]
    other = lonely.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "else"}, headers=headers)

    assert [reply.status_code for reply in replies] == [202, 202, 202]
    assert len({json.dumps(reply.json(), sort_keys=True) for reply in replies}) == 1
    assert lonely.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 1
    assert other.status_code == 409
    assert other.json()["code"] == "conflict"


def test_waiting_for_a_run_that_does_not_end_is_answered_with_its_place(lonely: Client) -> None:
    reply = lonely.http.post(
        f"/api/v1/agents/{lonely.agent(ECHO)}/runs", json={"query": "hi"}, headers={"Prefer": "wait=1"}
    )

    assert reply.status_code == 202
    assert lonely.run(reply.json()["run_id"])["status"] == "running"


def test_a_run_that_nobody_carries_out_can_be_cancelled(lonely: Client) -> None:
    run_id = lonely.start(lonely.agent(ECHO))["run_id"]

    replies = [lonely.http.post(f"/api/v1/runs/{run_id}/cancel") for _ in range(2)]

    assert [reply.json()["status"] for reply in replies] == ["cancelled", "cancelled"]
    shown = follow(lonely, run_id)
    assert shown[-1].data["event"] == "workflow_finished"
    assert shown[-1].data["data"]["outputs"] == "Task has been canceled"


def test_everything_of_an_agent_can_be_cancelled_at_once(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    runs = [lonely.start(agent)["run_id"] for _ in range(3)]

    assert lonely.http.post(f"/api/v1/agents/{agent}/cancel", json={}).json()["data"] is True

    assert [lonely.run(run)["status"] for run in runs] == ["cancelled"] * 3


def test_a_session_can_be_stopped_by_the_task_id_of_its_events(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    kept, stopped = lonely.start(agent), lonely.start(agent)

    reply = lonely.http.patch(f"/api/v1/tasks/{stopped['session_id']}", json={"action": "stop"})

    assert reply.json() == {"code": 0, "message": "success", "data": True}
    assert lonely.run(stopped["run_id"])["status"] == "cancelled"
    assert lonely.run(kept["run_id"])["status"] == "running"
    assert lonely.http.patch(f"/api/v1/tasks/{kept['session_id']}", json={"action": "x"}).json()["code"] == 101
    assert lonely.http.post("/api/v1/tasks/nothing-we-know/cancel").json()["data"] is True


def test_a_client_that_leaves_stops_its_run_if_it_wanted_that(lonely: Client) -> None:
    body = {"agent_id": lonely.agent(ECHO), "query": "q", "stream": True, "cancel_on_disconnect": True}

    with lonely.http.stream("POST", "/api/v1/agents/chat/completions", json=body) as response:
        run_id = next(frames(response.iter_lines())).data["run_id"]

    assert lonely.until(run_id, "cancelled")


def test_a_client_that_leaves_without_a_stream_stops_its_run_too(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    body = {"agent_id": agent, "query": "q", "cancel_on_disconnect": True}

    with pytest.raises(httpx2.TimeoutException):
        lonely.http.post("/api/v1/agents/chat/completions", json=body, timeout=0.5)

    runs = lonely.http.get("/api/v1/runs", params={"agent_id": agent}).json()["runs"]
    assert lonely.until(runs[0]["id"], "cancelled")


def test_a_quiet_stream_is_kept_alive_with_comments(lonely: Client) -> None:
    run_id = lonely.start(lonely.agent(ECHO))["run_id"]
    beats = 0

    headers = {"Accept": "text/event-stream"}
    with lonely.http.stream("GET", f"/api/v1/runs/{run_id}/events", headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-accel-buffering"] == "no"
        for line in response.iter_lines():
            beats += line.startswith(":")
            if beats == 2:
                break

    assert beats == 2


def test_a_stream_hears_of_a_cancel_at_once(lonely: Client) -> None:
    run_id = lonely.start(lonely.agent(ECHO))["run_id"]
    headers = {"Accept": "text/event-stream"}

    with lonely.http.stream("GET", f"/api/v1/runs/{run_id}/events", headers=headers) as response:
        shown = frames(response.iter_lines())
        assert next(shown).data["event"] == "workflow_started"
        lonely.http.post(f"/api/v1/runs/{run_id}/cancel")
        rest = [frame.data["event"] for frame in shown]

    assert rest[-1] == "workflow_finished"


@pytest.mark.parametrize("after", ["x", "1.2.3", "-1"])
def test_what_is_no_position_is_refused(lonely: Client, after: str) -> None:
    run_id = lonely.start(lonely.agent(ECHO))["run_id"]

    reply = lonely.http.get(f"/api/v1/runs/{run_id}/events", params={"after": after})

    assert reply.status_code == 400
    assert reply.json()["code"] == "invalid_request"


def test_a_queued_run_that_is_cancelled_ends_its_streams(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    first = lonely.start(agent)
    queued = lonely.start(agent, session_id=first["session_id"], on_busy="enqueue")["run_id"]
    assert lonely.run(queued)["status"] == "queued"

    headers = {"Accept": "text/event-stream"}
    with lonely.http.stream("GET", f"/api/v1/runs/{queued}/events", headers=headers) as response:
        lonely.http.post(f"/api/v1/runs/{queued}/cancel")
        live = list(frames(response.iter_lines()))

    assert lonely.run(queued)["status"] == "cancelled"
    assert [frame.data["event"] for frame in live] == ["workflow_finished"]
    assert live == follow(lonely, queued)


def test_a_key_that_is_too_long_is_refused(lonely: Client) -> None:
    reply = lonely.http.post(
        f"/api/v1/agents/{lonely.agent(ECHO)}/runs", json={}, headers={"Idempotency-Key": "k" * 300}
    )

    assert reply.status_code == 400


def test_resuming_a_run_that_does_not_wait_is_a_conflict(lonely: Client) -> None:
    run_id = lonely.start(lonely.agent(ECHO))["run_id"]

    reply = lonely.http.post(f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": "x"}})

    assert reply.status_code == 409
    assert reply.json()["code"] == "conflict"


def test_what_a_run_waits_for_is_told(lonely: Client) -> None:
    run_id = lonely.start(lonely.agent(ECHO))["run_id"]

    waiting = lonely.http.get(f"/api/v1/runs/{run_id}/explain").json()
    lonely.http.post(f"/api/v1/runs/{run_id}/cancel")
    over = lonely.http.get(f"/api/v1/runs/{run_id}/explain").json()

    assert (waiting["run_id"], waiting["status"], waiting["waits_for"]) == (run_id, "running", "worker")
    assert (waiting["node"], waiting["owner"], waiting["also"]) == ("begin", "the workers", [])
    assert (over["waits_for"], over["sentence"]) == ("over", "The run was cancelled.")


def test_unknown_runs_are_not_found(lonely: Client) -> None:
    for path in ("0" * 32, "not-an-id"):
        assert lonely.http.get(f"/api/v1/runs/{path}").status_code == 404
        assert lonely.http.get(f"/api/v1/runs/{path}/events").status_code == 404
        assert lonely.http.get(f"/api/v1/runs/{path}/explain").status_code == 404
        assert lonely.http.post(f"/api/v1/runs/{path}/cancel").status_code == 404
        assert lonely.http.post(f"/api/v1/runs/{path}/resume", json={}).status_code == 404


def test_runs_are_listed_newest_first_by_agent_session_and_status(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    first, second = lonely.start(agent), lonely.start(agent)
    lonely.http.post(f"/api/v1/runs/{first['run_id']}/cancel")

    def ids(**query: Any) -> list[str]:
        return [run["id"] for run in lonely.http.get("/api/v1/runs", params=query).json()["runs"]]

    assert ids() == [second["run_id"], first["run_id"]]
    assert ids(status="cancelled") == [first["run_id"]]
    assert ids(session_id=second["session_id"]) == [second["run_id"]]
    assert ids(agent_id="0" * 32) == []
    assert ids(page_size=1, page=2) == [first["run_id"]]
    assert lonely.http.get("/api/v1/runs", params={"page_size": 101}).status_code == 400
    assert lonely.http.get("/api/v1/runs", params={"status": "odd"}).status_code == 400


def test_a_run_that_is_waited_for_gives_its_result(client: Client) -> None:
    reply = client.http.post(
        f"/api/v1/agents/{client.agent(ECHO)}/runs", json={"query": "hi"}, headers={"Prefer": "respond-async, wait=20"}
    )

    assert reply.status_code == 200
    assert reply.headers["preference-applied"] == "wait=20"
    assert reply.json()["content"] == "You said: hi"


def test_a_run_can_be_followed_again_from_every_position(client: Client) -> None:
    run_id = client.start(client.agent(MODEL), "some words to be repeated")["run_id"]
    whole = follow(client, run_id)
    client.until(run_id, "succeeded")

    assert said_in([frame.data for frame in whole])
    for place, frame in enumerate(whole):
        rest = follow(client, run_id, **{"Last-Event-ID": frame.id})
        later = [other.data for other in whole[place + 1 :]]
        assert [d.get("seq") for d in later if "seq" in d] == [f.data["seq"] for f in rest if "seq" in f.data]
        assert said_in(later) == said_in([other.data for other in rest])


def test_reconnecting_browser_goes_on_after_the_last_event_id_and_not_after_its_url(client: Client) -> None:
    run_id = client.start(client.agent(MODEL), "some words to be repeated")["run_id"]
    client.until(run_id, "succeeded")
    whole = follow(client, run_id)
    early, late = whole[0], whole[len(whole) // 2]

    rest = follow(client, run_id, after=early.id, **{"Last-Event-ID": late.id})

    assert [frame.data for frame in rest] == [frame.data for frame in follow(client, run_id, after=late.id)]
    assert len(rest) < len(whole) - 1


def test_events_as_json_are_those_of_the_stream(client: Client) -> None:
    run_id = client.start(client.agent(MODEL), "words")["run_id"]
    client.until(run_id, "succeeded")

    page = client.http.get(f"/api/v1/runs/{run_id}/events").json()
    rest = client.http.get(f"/api/v1/runs/{run_id}/events", params={"after": page["position"]}).json()

    assert page["status"] == "succeeded"
    assert page["events"] == [{"id": frame.id, **frame.data} for frame in follow(client, run_id)]
    assert rest["events"] == []


def test_a_run_that_waits_goes_on_with_its_answers(client: Client) -> None:
    run_id = client.start(client.agent(FORM))["run_id"]
    waiting = client.until(run_id, "waiting")
    asked = follow(client, run_id)

    reply = client.http.post(
        f"/api/v1/runs/{run_id}/resume", json={"inputs": {"name": {"value": "Ada"}}}, headers={"Prefer": "wait=20"}
    )

    assert waiting["waiting"]["UserFillUp:0"]["tips"] == "Who are you?"
    assert asked[-1].data["event"] == "user_inputs"
    assert reply.status_code == 200
    assert reply.json()["content"] == "Hello Ada"
    rest = follow(client, run_id, after=asked[-1].id)
    assert said_in([frame.data for frame in rest]) == "Hello Ada"
    assert client.run(run_id)["answer"] == "Hello Ada"


def test_a_finished_run_shows_its_activations_with_times(client: Client) -> None:
    run_id = client.start(client.agent(MODEL))["run_id"]

    run = client.until(run_id, "succeeded")

    assert [step["node_id"] for step in run["activations"]] == ["begin", "LLM:0", "Message:0"]
    assert all(step["status"] == "done" and step["elapsed_ms"] is not None for step in run["activations"])
    assert run["usage"]["calls"] == 1
    assert run["answer"].startswith("Answer: ")


def test_passes_of_a_container_stand_inside_of_its_activation(client: Client) -> None:
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

    run = client.until(run_id, "succeeded", "failed")

    container = next(step for step in run["activations"] if step["node_id"] == "Iteration:0")
    assert run["answer"] == "<a><b>"
    assert [(step["node_id"], step["item"]) for step in container["activations"]] == [
        ("IterationItem:0", 0),
        ("Message:0", 0),
        ("IterationItem:0", 1),
        ("Message:0", 1),
        ("IterationItem:0", 2),
    ]


def test_a_queued_turn_begins_when_the_one_before_has_ended(client: Client) -> None:
    agent = client.agent(FORM)
    first = client.start(agent)
    client.until(first["run_id"], "waiting")
    client.http.post(f"/api/v1/runs/{first['run_id']}/cancel")

    second = client.start(agent, session_id=first["session_id"], on_busy="enqueue")

    assert client.until(second["run_id"], "waiting")


def test_many_clients_are_served_at_once(client: Client) -> None:
    agent = client.agent(MODEL)

    with ThreadPoolExecutor(30) as threads:
        answers = list(threads.map(lambda number: client.stream(agent, f"question {number}"), range(30)))

    assert [text_of(shown).count(f"question {number}") > 0 for number, shown in enumerate(answers)] == [True] * 30
    assert all(shown[-1].data == "[DONE]" for shown in answers)


# -- headers of a caller -----------------------------------------------------------------------------------------------
def test_an_answer_to_a_form_and_a_turn_in_openais_words_bring_headers_too(server: Server, client: Client):
    form, echo = client.agent(FORM, "form"), client.agent(ECHO, "echo")
    first = client.start(form, custom_header={"X-Who": "asked"})["run_id"]
    client.until(first, "waiting")
    answer = {"inputs": {"name": "Ada"}, "custom_header": {"X-Who": "answered"}}
    asked = {"messages": [{"role": "user", "content": "hi"}], "custom_header": {"X-Who": "in other words"}}

    client.http.post(f"/api/v1/runs/{first}/resume", json=answer)
    second = client.http.post(f"/api/v1/openai/agents/{echo}/chat/completions", json=asked)

    (other,) = client.http.get("/api/v1/runs", params={"agent_id": echo}).json()["runs"]
    assert second.status_code == 200
    assert [headers_of(server, client, run) for run in (first, other["id"])] == [
        {"X-Who": "answered"},
        {"X-Who": "in other words"},
    ]


def headers_of(server: Server, client: Client, run_id: str) -> dict[str, str]:
    with server.database.transaction() as tx:
        row = run_rows.read(tx, client.tenant_id, UUID(run_id))
    assert row is not None
    return sealed_headers.unseal_headers(EncryptionKey.from_secret(SECRET), client.tenant_id, row["request"])


# -- honest replies --------------------------------------------------------------------------------------------------
def test_a_run_that_fails_while_it_is_waited_for_is_no_success(client: Client) -> None:
    reply = client.http.post(
        f"/api/v1/agents/{client.agent(BROKEN)}/runs", json={"query": "hi"}, headers={"Prefer": "wait=20"}
    )

    told = reply.json()
    assert reply.status_code == 500
    assert (told["code"], told["details"]["status"]) == ("run_failed", "failed")
    assert told["message"]
    assert client.run(told["details"]["run_id"])["status"] == "failed"
    assert reply.headers["location"] == f"/api/v1/runs/{told['details']['run_id']}"


def test_a_form_that_a_waited_for_run_asks_is_told_with_the_runs_status(client: Client) -> None:
    reply = client.http.post(
        f"/api/v1/agents/{client.agent(FORM)}/runs", json={"query": "hi"}, headers={"Prefer": "wait=20"}
    )

    assert reply.status_code == 200
    assert (reply.json()["status"], reply.json()["tips"]) == ("waiting", "Who are you?")
    assert list(reply.json()["inputs"]) == ["name"]


def test_a_waited_for_run_that_somebody_cancels_is_cancelled(client: Client) -> None:
    started = client.start(client.agent(FORM))
    client.until(started["run_id"], "waiting")
    client.http.post(f"/api/v1/runs/{started['run_id']}/cancel")

    reply = client.http.post(
        f"/api/v1/runs/{started['run_id']}/resume", json={"query": "Ada"}, headers={"Prefer": "wait=20"}
    )

    assert reply.status_code == 409


@pytest.mark.parametrize("named", ["run_id", "session_id"])
def test_cancelling_an_agent_leaves_what_belongs_to_another_agent_alone(lonely: Client, named: str) -> None:
    mine, other = lonely.start(lonely.agent(ECHO)), lonely.start(lonely.agent(ECHO, "other"))
    agent = lonely.run(mine["run_id"])["agent_id"]

    def cancel(started: dict[str, Any]) -> Any:
        return lonely.http.post(f"/api/v1/agents/{agent}/cancel", json={named: started[named]}).json()["data"]

    cancelled = cancel(other)
    statuses = lonely.run(mine["run_id"])["status"], lonely.run(other["run_id"])["status"]
    cancel(mine)

    assert cancelled is True
    assert statuses == ("running", "running")
    assert lonely.run(mine["run_id"])["status"] == "cancelled"
    assert lonely.run(other["run_id"])["status"] == "running"


def test_cancelling_an_agent_without_naming_anything_stops_all_of_its_runs_and_no_others(lonely: Client) -> None:
    agent, other = lonely.agent(ECHO), lonely.start(lonely.agent(ECHO, "other"))
    started = [lonely.start(agent) for _ in range(2)]

    lonely.http.post(f"/api/v1/agents/{agent}/cancel", json={})

    assert [lonely.run(run["run_id"])["status"] for run in (*started, other)] == ["cancelled", "cancelled", "running"]


def test_a_run_says_when_it_does_not_show_all_of_its_activations(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = client.start(client.agent(MODEL))["run_id"]
    whole = client.until(run_id, "succeeded")
    monkeypatch.setattr(run_queries, "MAX_STEPS", 2)

    cut = client.run(run_id)

    assert (len(whole["activations"]), whole["activation_count"], whole["activations_truncated"]) == (3, 3, False)
    assert (len(cut["activations"]), cut["activation_count"], cut["activations_truncated"]) == (2, 3, True)
