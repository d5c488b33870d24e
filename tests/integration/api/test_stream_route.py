"""The route that streams a run with named events, and the routes about other runtimes and prompts."""

import json
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from uuid import UUID

import pytest

from store.tenants import tenants
from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client, eventually, frames


@dataclass
class NamedFrame:
    """A server-sent event with its `event:` line."""

    name: str
    id: str
    data: Any


def stream_run(client: Client, agent: str, **options: Any) -> list[NamedFrame]:
    params = options.pop("params", None)
    path = f"/api/v1/agents/{agent}/stream"
    with client.http.stream("POST", path, json={"query": "hi", **options}, params=params) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream"), reply.read()
        blocks = "\n".join(reply.iter_lines()).split("\n\n")
    found: list[NamedFrame] = []
    for block in blocks:
        fields = dict(line.split(":", 1) for line in block.splitlines() if line and not line.startswith(":"))
        if fields:
            data = fields["data"]
            found.append(
                NamedFrame(
                    fields.get("event", ""), fields.get("id", ""), data if data == "[DONE]" else json.loads(data)
                )
            )
    return found


def test_run_is_streamed_with_named_events(client: Client) -> None:
    events = stream_run(client, client.agent(ECHO))

    names = [name for name, _ in groupby(event.name for event in events)]
    assert names == [
        "workflow_started", "node_started", "node_finished", "node_started", "message", "node_finished",
        "workflow_finished", "done",
    ]  # fmt: skip
    assert "".join(event.data["answer"] for event in events if event.name == "message") == "You said: hi"
    assert [event.data["reference"] for event in events if event.data != "[DONE]" and "reference" in event.data] == [{}]
    assert all(event.data["event"] and event.data["run_id"] and event.id for event in events[:-1])
    assert events[-1].data == "[DONE]"


def test_form_is_a_waiting_for_user_event_and_is_answered_by_its_session(client: Client) -> None:
    agent = client.agent(FORM)

    asked = stream_run(client, agent)
    waiting = asked[-2]
    answered = stream_run(
        client, agent, params={"session_id": waiting.data["session_id"]}, inputs={"name": {"value": "Ada"}}
    )

    assert (waiting.name, waiting.data["cpn_id"]) == ("waiting_for_user", "UserFillUp:0")
    assert "".join(event.data["answer"] for event in answered if event.name == "message") == "Hello Ada"


def test_failed_run_ends_with_an_error_event(client: Client) -> None:
    error, done = stream_run(client, client.agent(BROKEN))[-2:]

    assert (error.name, done.name) == ("error", "done")
    assert error.data["error"] == error.data["message"]
    assert error.data["code"] == 500


def test_dialect_of_ragflow_has_no_names(client: Client) -> None:
    events = stream_run(client, client.agent(ECHO), params={"dialect": "ragflow"})

    assert {event.name for event in events} == {""}
    assert events[-1].data == "[DONE]"


@pytest.mark.parametrize(
    ("params", "body", "text"),
    [
        ({"dialect": "other"}, {}, "Unknown dialect 'other'. Use port or ragflow."),
        ({}, {"stream": False}, "This route streams. Leave out `stream`, or use /run."),
    ],
)
def test_stream_with_an_invalid_option_is_refused(
    workerless_client: Client, params: dict[str, str], body: dict[str, Any], text: str
) -> None:
    agent = workerless_client.agent(ECHO)

    reply = workerless_client.http.post(f"/api/v1/agents/{agent}/stream", json={"query": "x", **body}, params=params)

    assert reply.json()["message"] == text
    assert workerless_client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 0


def test_run_that_failed_is_streamed_on_from_its_failure(client: Client) -> None:
    agent = client.agent(BROKEN)
    failed = client.start(agent)["run_id"]
    client.wait_for(failed, "failed")

    events = stream_run(client, agent, query=None, params={"resume_from": failed})

    assert events[-2].name == "error"
    copy = client.run(events[0].data["run_id"])
    assert (copy["origin"]["kind"], copy["origin"]["run_id"]) == ("fork", failed)


# -- share links ------------------------------------------------------------------------------------------------------


def test_failed_run_of_a_share_link_ends_with_the_message_that_its_page_shows(server: Server, client: Client) -> None:
    agent = client.agent(BROKEN)
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    with server.database.transaction() as tx:
        _, token = tenants.create_token(tx, client.tenant_id, "link", "beta", canvas_id=UUID(agent))
    guest = server.client_of(client.tenant_id, token)

    with guest.http.stream("POST", f"/api/v1/agentbots/{agent}/completions", json={"query": "hi"}) as reply:
        last = list(frames(reply.iter_lines()))[-2]
    guest.http.close()

    assert (last.data["event"], last.data["code"]) == ("message", 102)
    assert last.data["data"]["content"] == f"Error 102: {last.data['message']}"


def test_invalid_token_of_a_share_link_is_an_error_of_the_envelope(server: Server, client: Client) -> None:
    agent = client.agent(ECHO)
    stranger = server.client_of(client.tenant_id, "easel_nobody")

    plain = stranger.http.get(f"/api/v1/agentbots/{agent}/inputs")
    strict = stranger.http.get(f"/api/v1/agentbots/{agent}/inputs", headers={"X-Http-Status": "strict"})
    stranger.http.close()

    assert (plain.status_code, plain.json()["code"]) == (200, 102)
    assert plain.json()["message"] == "Authorization is not valid!"
    assert strict.status_code == 401


# -- what RAGFlow runs elsewhere --------------------------------------------------------------------------------------


def test_prompts_are_those_of_the_steps_of_an_agent(workerless_client: Client) -> None:
    prompts = workerless_client.http.get("/api/v1/agents/prompts").json()["data"]

    assert set(prompts) == {"task_analysis", "plan_generation", "reflection", "citation_guidelines"}
    assert all(text.strip() for text in prompts.values())


def test_pipelines_are_never_found(workerless_client: Client) -> None:
    rerun = {"id": "a", "dsl": {}, "component_id": "Parser:0"}

    reply = workerless_client.http.post("/api/v1/agents/rerun", json=rerun)
    incomplete = workerless_client.http.post("/api/v1/agents/rerun", json={"id": "a"})

    assert (reply.json()["code"], reply.json()["message"]) == (102, "Document not found.")
    assert incomplete.json()["code"] == 101


def test_runtime_is_always_easels_own(workerless_server: Server, workerless_client: Client) -> None:
    admin = workerless_server.client(kind="admin")
    path = f"/api/v1/admin/canvas-runtime/{admin.tenant_id.hex}"

    own = {"tenant_id": admin.tenant_id.hex, "runtime": "distributed"}
    assert admin.http.get(path).json() == own
    assert admin.http.post(path, json={"runtime": "distributed"}).json() == own
    upstream = admin.http.post(path, json={"runtime": "upstream"})
    assert (upstream.status_code, upstream.json()["details"]["field"]) == (400, "runtime")
    assert admin.http.get(f"/api/v1/admin/canvas-runtime/{workerless_client.tenant_id.hex}").status_code == 404
    assert workerless_client.http.get(path).status_code == 403


def test_runs_of_a_file_keep_it_in_the_history_of_the_session(client: Client) -> None:
    agent = client.agent(ECHO)
    file = client.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("a.txt", b"A")}).json()["data"]

    first = client.chat(agent, "read this", files=[file])["data"]
    client.chat(agent, "thanks", session_id=first["session_id"])

    path = f"/api/v1/agents/{agent}/sessions/{first['session_id']}"
    session = eventually(lambda: client.http.get(path).json()["data"], lambda found: len(found["message"]) == 4)
    sent, answer, thanks, _ = session["message"]
    assert [each["id"] for each in sent["files"]] == [file["id"]]
    assert "files" not in answer
    assert "files" not in thanks
    assert session["dsl"]["path"] == ["begin", "Message:0"]
    assert session["dsl"]["retrieval"] == [{"chunks": {}, "doc_aggs": {}}] * 2
    assert session["exp_user_id"] == session["user_id"]
    assert (session["tokens"], session["thumb_up"]) == (0, 0)
    assert session["duration"] > 0


def test_sessions_of_a_user_are_listed_newest_first_with_their_number(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    path = f"/api/v1/agents/{agent}/sessions"
    made = [workerless_client.http.post(path, json={"user_id": "ann"}).json()["data"]["id"] for _ in range(3)]
    query = {"exp_user_id": "ann", "page_size": 2, "orderby": "name", "desc": "false"}

    listed = workerless_client.http.get(path, params=query).json()

    assert [each["id"] for each in listed["data"]] == made[:0:-1]
    assert listed["total"] == 3


def test_agents_are_listed_by_their_last_change(workerless_client: Client) -> None:
    first, second = (workerless_client.agent(ECHO, title) for title in ("first", "second"))
    workerless_client.http.put(f"/api/v1/agents/{first}", json={"description": "changed"})

    def listed(**query: str) -> list[str]:
        reply = workerless_client.http.get("/api/v1/agents", params=query).json()
        return [agent["id"] for agent in reply["data"]["canvas"] if agent["id"] in (first, second)]

    assert listed() == [first, second]
    assert listed(canvas_category="agent_canvas") == [second, first]
