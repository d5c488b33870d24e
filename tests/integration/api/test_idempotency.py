"""`Idempotency-Key`: on every route that creates something, a repeated request gets the first reply."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import httpx2
import pytest

from tests.integration.api.conftest import Server, serving, with_settings
from tests.integration.api.talking import ECHO, FORM, MODEL, Client, canvas, frames, message, names_of, text_of

WEBHOOK_PARAMS = {
    "mode": "Webhook",
    "security": {"auth_type": "none", "allow_anonymous": True},
    "schema": {"body": {"type": "object", "properties": {"a": {"type": "number"}}, "required": []}},
}
WEBHOOK = canvas(
    ("begin", "Begin", WEBHOOK_PARAMS, ["Message:0"]), ("Message:0", "Message", message("{begin@body.a}"), [])
)
KEY = {"Idempotency-Key": "once"}


@dataclass(frozen=True)
class CreateRequest:
    """A request that creates something: its path, its body, the body of a different request, and its status."""

    path: str
    body: Mapping[str, Any]
    other: Mapping[str, Any]
    status: int = 200


ROUTES = {
    "agent": CreateRequest("/agents", {"title": "made once", "dsl": ECHO}, {"title": "made once", "dsl": MODEL}),
    "publish": CreateRequest("/agents/{agent}/publish", {"title": "v"}, {"title": "w"}),
    "version": CreateRequest("/agents/{agent}/versions", {"title": "v"}, {"title": "w"}),
    "session": CreateRequest("/agents/{agent}/sessions", {"name": "n"}, {"name": "m"}),
    "run": CreateRequest("/agents/{agent}/runs", {"query": "hi"}, {"query": "ho"}, 202),
}


@pytest.mark.parametrize("name", ROUTES)
def test_repeat_gets_the_first_reply_and_another_request_with_the_key_is_refused(
    workerless_client: Client, name: str
) -> None:
    request, agent = ROUTES[name], workerless_client.agent(ECHO, "the agent")
    path = request.path.format(agent=agent)

    replies = [post(workerless_client, path, request.body) for _ in range(3)]
    other = post(workerless_client, path, request.other)
    without = workerless_client.http.post(f"/api/v1{path}", json=dict(request.body))

    assert [reply.status_code for reply in replies] == [request.status] * 3
    assert {reply.text for reply in replies} == {replies[0].text}
    assert other.status_code == 409
    assert "another request" in other.json()["message"]
    assert without.text != replies[0].text


@pytest.mark.parametrize("name", ROUTES)
def test_simultaneous_repeats_are_executed_once(workerless_client: Client, name: str) -> None:
    request, agent = ROUTES[name], workerless_client.agent(ECHO, "the agent")
    barrier = Barrier(8)

    def send(_: int) -> str:
        barrier.wait()
        return post(workerless_client, request.path.format(agent=agent), request.body).text

    with ThreadPoolExecutor(8) as threads:
        replies = set(threads.map(send, range(8)))

    assert len(replies) == 1
    assert json.loads(replies.pop()).get("code", 0) == 0


def test_repeated_update_of_an_agent_is_applied_once(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = workerless_client.http.put(f"/api/v1/agents/{agent}", json={"title": "one"}, headers=KEY)
    workerless_client.http.put(f"/api/v1/agents/{agent}", json={"title": "two"})

    again = workerless_client.http.put(f"/api/v1/agents/{agent}", json={"title": "one"}, headers=KEY)

    assert again.text == first.text
    assert workerless_client.http.get(f"/api/v1/agents/{agent}").json()["data"]["title"] == "two"


def test_same_key_for_another_agent_is_refused(workerless_client: Client) -> None:
    one, two = workerless_client.agent(ECHO, "one"), workerless_client.agent(ECHO, "two")
    post(workerless_client, f"/agents/{one}/sessions", {})

    reply = post(workerless_client, f"/agents/{two}/sessions", {})

    assert reply.status_code == 409


def test_key_is_new_for_another_tenant_and_on_another_route(
    workerless_client: Client, workerless_server: Server
) -> None:
    other = workerless_server.client()
    agents = [client.agent(ECHO) for client in (workerless_client, other)]

    replies = [
        post(client, f"/agents/{agent}/{resource}", {"name": "n"})
        for client, agent in zip((workerless_client, other), agents, strict=True)
        for resource in ("runs", "sessions")
    ]
    other.http.close()

    assert [reply.status_code for reply in replies] == [202, 200, 202, 200]
    assert len({reply.text for reply in replies}) == 4


def test_key_of_a_refused_request_can_be_used_again(workerless_client: Client) -> None:
    workerless_client.agent(ECHO, "taken")
    refused = post(workerless_client, "/agents", {"title": "taken", "dsl": ECHO})
    workerless_client.http.delete(f"/api/v1/agents/{find_agent(workerless_client, 'taken')}")

    accepted = post(workerless_client, "/agents", {"title": "taken", "dsl": ECHO})

    assert refused.json()["code"] == 102
    assert accepted.json()["code"] == 0


def test_repeat_gets_the_first_reply_after_its_agent_was_deleted(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = post(workerless_client, f"/agents/{agent}/runs", {"query": "hi"})
    session = first.json()["session_id"]
    assert workerless_client.http.delete(f"/api/v1/agents/{agent}/sessions/{session}").json()["code"] == 0
    assert workerless_client.http.delete(f"/api/v1/agents/{agent}").json()["code"] == 0

    again = post(workerless_client, f"/agents/{agent}/runs", {"query": "hi"})

    assert (again.status_code, again.text) == (first.status_code, first.text)


@pytest.fixture
def uploading_client(workerless_server: Server, tmp_path: Path) -> Iterator[Client]:
    """A client of a server with a folder for files."""
    config = with_settings(workerless_server.config, files_dir=tmp_path)
    with serving(config) as url:
        client = replace(workerless_server, url=url).client()
        yield client
        client.http.close()


# -- files -----------------------------------------------------------------------------------------------------------
def test_files_of_a_repeated_upload_are_stored_once(uploading_client: Client) -> None:
    agent = uploading_client.agent(ECHO)

    first, again = (upload(uploading_client, agent, {"a.txt": b"a" * 3_000_000, "b.txt": b"b"}) for _ in range(2))
    others = [
        upload(uploading_client, agent, {"a.txt": b"a" * 2_999_999 + b"x", "b.txt": b"b"}),
        upload(uploading_client, agent, {"other.txt": b"a" * 3_000_000, "b.txt": b"b"}),
    ]

    assert first.text == again.text
    assert [file["size"] for file in first.json()["data"]] == [3_000_000, 1]
    assert [other.status_code for other in others] == [409, 409]


# -- invalid keys ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["", "k" * 256, "schlüssel".encode(), b"k\x7f"])
@pytest.mark.parametrize("path", ["/agents/{agent}/runs", "/agents/{agent}/sessions"])
def test_invalid_key_is_refused_with_a_message_that_explains_it(workerless_client: Client, path: str, key: Any) -> None:
    reply = workerless_client.http.post(
        f"/api/v1{path.format(agent=workerless_client.agent(ECHO))}", json={}, headers={"Idempotency-Key": key}
    )

    assert reply.status_code == 400
    assert "idempotency key" in reply.json()["message"]


def test_request_with_two_different_keys_is_refused_and_with_one_key_twice_accepted(workerless_client: Client) -> None:
    path = f"/agents/{workerless_client.agent(ECHO)}/runs"

    two = post(workerless_client, path, {"idempotency_key": "other"})
    same = post(workerless_client, path, {"idempotency_key": "once"})

    assert two.status_code == 400
    assert same.status_code == 202


# -- turns -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "options", [{}, {"return_trace": True}, {"stream": True}, {"stream": True, "events": "compact"}]
)
def test_repeated_turn_returns_its_events_again_from_the_beginning(client: Client, options: dict[str, Any]) -> None:
    body = {"agent_id": client.agent(MODEL), "query": "hi", **options}

    first, again = (post(client, "/agents/chat/completions", body) for _ in range(2))

    if "stream" in options:
        first_events, second_events = (list(frames(iter(reply.text.split("\n")))) for reply in (first, again))
        assert first_events[0] == second_events[0]
        assert names_of(first_events) == names_of(second_events)
        assert text_of(first_events) == text_of(second_events) == "Answer: hi"  # the split into messages may differ
    else:
        assert first.json() == again.json()
    assert client.http.get("/api/v1/runs", params={"agent_id": body["agent_id"]}).json()["total"] == 1


def test_same_key_with_other_custom_headers_is_refused(client: Client) -> None:
    body = {"agent_id": client.agent(ECHO), "query": "hi", "custom_header": {"X-Who": "ada", "X-Of": "easel"}}
    reordered = {**body, "custom_header": {"X-Of": "easel", "X-Who": "ada"}}
    other = {**body, "custom_header": {"X-Who": "bob", "X-Of": "easel"}}

    first, again, refused = (post(client, "/agents/chat/completions", each) for each in (body, reordered, other))

    assert first.json() == again.json()
    assert refused.status_code == 409


def test_repeated_request_of_an_open_stream_returns_the_same_stream(workerless_client: Client) -> None:
    body = {"agent_id": workerless_client.agent(ECHO), "query": "hi", "stream": True}
    send = partial(workerless_client.http.stream, "POST", "/api/v1/agents/chat/completions", json=body, headers=KEY)

    with send() as first, send() as again:
        streams = [frames(response.iter_lines()) for response in (first, again)]
        first_events = [next(events).data for events in streams]
        workerless_client.http.post(f"/api/v1/runs/{first_events[0]['run_id']}/cancel")
        rest = [[frame.data for frame in events] for events in streams]

    assert first_events[0] == first_events[1]
    assert rest[0] == rest[1]


def test_repeated_openai_request_runs_once_in_one_session(client: Client) -> None:
    agent = client.agent(ECHO)
    messages = [{"role": role, "content": role} for role in ("user", "assistant", "user")]

    first, again = (post(client, f"/openai/agents/{agent}/chat/completions", {"messages": messages}) for _ in range(2))
    other = post(client, f"/openai/agents/{agent}/chat/completions", {"messages": messages[2:]})

    assert first.json() == again.json()
    assert first.json()["choices"][0]["message"]["content"] == "You said: user"
    assert other.status_code == 409
    sessions = client.http.get(f"/api/v1/agents/{agent}/sessions").json()
    assert sessions["total"] == 1
    assert [entry["role"] for entry in sessions["data"][0]["message"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_repeated_start_with_prefer_wait_returns_the_same_result(client: Client) -> None:
    path, headers = f"/api/v1/agents/{client.agent(ECHO)}/runs", {**KEY, "Prefer": "wait=20"}

    first, again = (client.http.post(path, json={"query": "hi"}, headers=headers) for _ in range(2))

    assert (first.status_code, first.text) == (again.status_code, again.text)
    assert first.json()["content"] == "You said: hi"


@pytest.mark.parametrize("by", ["resume", "turn"])
def test_repeated_form_answer_returns_the_result_of_the_first(client: Client, by: str) -> None:
    agent = client.agent(FORM)
    run = client.wait_for(client.start(agent)["run_id"], "waiting")
    path = f"/runs/{run['id']}/resume" if by == "resume" else f"/agents/{agent}/runs"
    body = {"query": "Bob"} if by == "resume" else {"query": "Bob", "session_id": run["session_id"]}

    first, again = (post(client, path, body, Prefer="wait=20") for _ in range(2))
    other = post(client, path, {**body, "query": "Eve"})

    assert first.text == again.text
    assert first.json()["content"] == "Hello Bob"
    assert other.status_code == 409


def test_repeated_webhook_call_returns_the_same_run(workerless_client: Client) -> None:
    agent = workerless_client.agent(WEBHOOK)
    workerless_client.http.post(f"/api/v1/agents/{agent}/publish", json={})

    replies = [post(workerless_client, f"/agents/{agent}/webhook", {"a": 1}) for _ in range(2)]
    other = post(workerless_client, f"/agents/{agent}/webhook", {"a": 2})
    bad = workerless_client.http.post(f"/api/v1/agents/{agent}/webhook", json={}, headers={"Idempotency-Key": ""})

    assert len({reply.headers["x-run-id"] for reply in replies}) == 1
    assert other.status_code == 409
    assert bad.status_code == 400


# -- sessions --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "details_field"),
    [
        ("/agents/chat/completions", "data"),
        ("/agents/{agent}/completions", "data"),
        ("/agents/{agent}/runs", "details"),
    ],
)
def test_busy_session_is_refused_with_its_active_run_on_every_route(
    workerless_client: Client, path: str, details_field: str
) -> None:
    agent = workerless_client.agent(ECHO)
    first = workerless_client.start(agent)
    fields = {"agent_id": agent} if "chat" in path else {}

    reply = workerless_client.http.post(
        f"/api/v1{path.format(agent=agent)}", json={**fields, "query": "hi", "session_id": first["session_id"]}
    )

    assert reply.status_code == 409
    assert reply.json()["message"] == "This agent session is already running."
    assert reply.json()[details_field] == {
        "session_id": first["session_id"],
        "run_id": first["run_id"],
        "status": "running",
    }


def test_busy_session_is_refused_with_its_active_run_in_openais_format(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = workerless_client.start(agent)
    body = {"messages": [{"role": "user", "content": "hi"}], "session_id": first["session_id"]}

    reply = workerless_client.http.post(f"/api/v1/openai/agents/{agent}/chat/completions", json=body)

    assert reply.status_code == 409
    assert reply.json()["error"] == {
        "message": "This agent session is already running.",
        "type": "invalid_request_error",
        "param": None,
        "code": "conflict",
        "session_id": first["session_id"],
        "run_id": first["run_id"],
        "status": "running",
    }
    assert "x-should-retry" not in reply.headers  # no run was started, so a retry is harmless


def test_openai_request_can_enqueue_or_interrupt_in_a_busy_session(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = workerless_client.start(agent)
    path, messages = f"/api/v1/openai/agents/{agent}/chat/completions", [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "session_id": first["session_id"], "stream": True}

    with workerless_client.http.stream("POST", path, json={**body, "on_busy": "enqueue"}) as queued:
        queued_run = queued.headers["x-run-id"]
    with workerless_client.http.stream("POST", path, json={**body, "on_busy": "interrupt"}) as interrupting:
        interrupting_run = interrupting.headers["x-run-id"]

    statuses = [workerless_client.run(run)["status"] for run in (first["run_id"], queued_run, interrupting_run)]
    assert statuses == ["cancelled", "cancelled", "running"]


def test_deleting_a_session_cancels_its_running_and_queued_runs(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = workerless_client.start(agent)
    queued = [workerless_client.start(agent, session_id=first["session_id"], on_busy="enqueue") for _ in range(2)]

    reply = workerless_client.http.delete(f"/api/v1/agents/{agent}/sessions/{first['session_id']}")

    assert reply.json()["data"] == 1
    assert [workerless_client.run(run["run_id"])["status"] for run in (first, *queued)] == ["cancelled"] * 3


# -- every route -----------------------------------------------------------------------------------------------------
NATURALLY_IDEMPOTENT = {  # repeating these changes nothing more
    "PATCH /api/v1/viewer/agents/{agent_id}",
    "PATCH /api/v1/viewer/agents/{agent_id}/draft",  # with If-Match
    "PUT /api/v1/viewer/agents/{agent_id}/draft",
    "POST /api/v1/runs/{run_id}/cancel",
    "POST /api/v1/agents/{agent_id}/cancel",
    "POST /api/v1/tasks/{task_id}/cancel",
    "POST /api/v1/agentbots/{agent_id}/cancel",
    "PATCH /api/v1/tasks/{task_id}",
    "PATCH /api/v1/schedules/{schedule_id}",
    "POST /api/v1/schedules/{schedule_id}/pause",
    "POST /api/v1/schedules/{schedule_id}/resume",
    "POST /api/v1/schedules/preview",
    "POST /api/v1/retrieval",
    "PUT /api/v1/budgets",
    "PATCH /api/v1/callbacks/{callback_id}",
    "PUT /api/v1/memories/{memory_id}",
    "PUT /api/v1/messages/{message_key}",
    "PUT /api/v1/datasets/{dataset_id}",
    "PUT /api/v1/datasets/{dataset_id}/metadata/config",
    "PUT /api/v1/datasets/{dataset_id}/documents/{document_id}/metadata/config",
    "PATCH /api/v1/datasets/{dataset_id}/documents/metadatas",
    "POST /api/v1/datasets/{dataset_id}/chunks",
    "POST /api/v1/datasets/{dataset_id}/documents/parse",
    "POST /api/v1/datasets/{dataset_id}/documents/stop",
    "POST /api/v1/datasets/{dataset_id}/documents/batch-update-status",
    "PATCH /api/v1/datasets/{dataset_id}/documents/{document_id}/chunks",
    "PATCH /api/v1/datasets/{dataset_id}/documents/{document_id}/chunks/{chunk_id}",
    "POST /api/v1/datasets/search",
    "POST /api/v1/datasets/{dataset_id}/search",
    "POST /api/v1/documents/ingest",
    "PUT /api/v1/datasets/{dataset_id}/documents/{document_id}",
    "PATCH /api/v1/datasets/{dataset_id}/documents/{document_id}",
    "PUT /api/v1/mcp/servers/{server_id}",
    "PATCH /api/v1/mcp/servers/{server_id}",
    "POST /api/v1/mcp/servers/{server_id}/approve",
    "POST /api/v1/mcp/servers/list_tools",
    "PUT /api/v1/agents/{agent_id}/mcp",
    "PUT /api/v1/agents/{agent_id}/tags",
    "POST /api/v1/agents/test_db_connection",
    "POST /api/v1/agents/{agent_id}/reset",
    "POST /api/v1/agents/rerun",
    "POST /api/v1/admin/canvas-runtime/{tenant_id}",
    "POST /api/v1/openai/responses/{response_id}/cancel",
    "POST /api/v1/openai/agents/{agent_id}/responses/{response_id}/cancel",
}
MANUAL_TOOL_TESTS = {  # a person tests a tool, and may do so again
    "POST /api/v1/mcp/servers/{server_id}/test",
    "POST /api/v1/mcp/servers/test_tool",
}
RUN_STARTS = {  # these pass their key to the run that they start
    "POST /api/v1/agents/chat/completions",
    "POST /api/v1/agents/{agent_id}/completions",
    "POST /api/v1/openai/chat/completions",
    "POST /api/v1/openai/agents/{agent_id}/chat/completions",
    "POST /api/v1/openai/responses",
    "POST /api/v1/openai/agents/{agent_id}/responses",
    "POST /api/v1/a2a/{agent_id}",
    "POST /api/v1/agents_openai/{agent_id}/chat/completions",
    "POST /api/v1/agentbots/{agent_id}/completions",
    "POST /api/v1/agents/{agent_id}/run",
    "POST /api/v1/agents/{agent_id}/stream",
    "POST /api/v1/agents/{agent_id}/runs",
    *(
        f"{method} /api/v1/agents/{{agent_id}}/webhook{test}"
        for method in ("POST", "PUT", "PATCH")
        for test in ("", "/test")
    ),
}
FILE_UPLOADS = {  # the key covers the bytes of the files, or the files are recognised by their content
    "POST /api/v1/agents/{agent_id}/upload",
    "POST /api/v1/datasets/{dataset_id}/documents",
}
SIGN_INS = {  # a secret is given once, and a code is used once
    "POST /api/v1/viewer/session",
    "POST /api/v1/viewer/codes",
}


def test_every_route_that_creates_something_takes_a_key(workerless_server: Server) -> None:
    paths = workerless_server.client().http.get("/openapi.json").json()["paths"]

    without = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method in ("post", "put", "patch")
        and "idempotency-key" not in [parameter["name"] for parameter in operation.get("parameters", [])]
    }

    assert without == NATURALLY_IDEMPOTENT | MANUAL_TOOL_TESTS | RUN_STARTS | FILE_UPLOADS | SIGN_INS


# -- helpers ---------------------------------------------------------------------------------------------------------
def post(client: Client, path: str, body: Mapping[str, Any], **headers: str) -> httpx2.Response:
    """Send a request with the key."""
    return client.http.post(f"/api/v1{path}", json=dict(body), headers={**KEY, **headers})


def upload(client: Client, agent: str, files: Mapping[str, bytes]) -> httpx2.Response:
    parts = [("file", (name, data)) for name, data in files.items()]
    return client.http.post(f"/api/v1/agents/{agent}/upload", files=parts, headers=KEY)


def find_agent(client: Client, title: str) -> str:
    return client.http.get("/api/v1/agents", params={"title": title}).json()["data"]["canvas"][0]["id"]
