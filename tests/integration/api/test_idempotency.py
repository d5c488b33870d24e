"""`Idempotency-Key`: on every route that creates something, a repeat gets the first reply and creates nothing."""

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

ANYBODY = {
    "mode": "Webhook",
    "security": {"auth_type": "none", "allow_anonymous": True},
    "schema": {"body": {"type": "object", "properties": {"a": {"type": "number"}}, "required": []}},
}
WEBHOOK = canvas(("begin", "Begin", ANYBODY, ["Message:0"]), ("Message:0", "Message", message("{begin@body.a}"), []))
KEY = {"Idempotency-Key": "once"}


@dataclass(frozen=True)
class Creates:
    """A request that creates something: where it goes and what it brings, and another that is not the same."""

    path: str
    body: Mapping[str, Any]
    other: Mapping[str, Any]
    status: int = 200


ROUTES = {
    "agent": Creates("/agents", {"title": "made once", "dsl": ECHO}, {"title": "made once", "dsl": MODEL}),
    "publish": Creates("/agents/{agent}/publish", {"title": "v"}, {"title": "w"}),
    "version": Creates("/agents/{agent}/versions", {"title": "v"}, {"title": "w"}),
    "session": Creates("/agents/{agent}/sessions", {"name": "n"}, {"name": "m"}),
    "run": Creates("/agents/{agent}/runs", {"query": "hi"}, {"query": "ho"}, 202),
}


@pytest.mark.parametrize("name", ROUTES)
def test_a_repeat_gets_the_first_reply_and_another_request_with_the_key_is_refused(lonely: Client, name: str) -> None:
    wanted, agent = ROUTES[name], lonely.agent(ECHO, "the agent")
    path = wanted.path.format(agent=agent)

    replies = [post(lonely, path, wanted.body) for _ in range(3)]
    other = post(lonely, path, wanted.other)
    without = lonely.http.post(f"/api/v1{path}", json=dict(wanted.body))

    assert [reply.status_code for reply in replies] == [wanted.status] * 3
    assert {reply.text for reply in replies} == {replies[0].text}
    assert other.status_code == 409
    assert "another request" in other.json()["message"]
    assert without.text != replies[0].text


@pytest.mark.parametrize("name", ROUTES)
def test_of_many_repeats_at_once_one_is_carried_out(lonely: Client, name: str) -> None:
    wanted, agent = ROUTES[name], lonely.agent(ECHO, "the agent")
    together = Barrier(8)

    def send(_: int) -> str:
        together.wait()
        return post(lonely, wanted.path.format(agent=agent), wanted.body).text

    with ThreadPoolExecutor(8) as many:
        replies = set(many.map(send, range(8)))

    assert len(replies) == 1
    assert json.loads(replies.pop()).get("code", 0) == 0


def test_a_change_of_an_agent_is_made_once(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    first = lonely.http.put(f"/api/v1/agents/{agent}", json={"title": "one"}, headers=KEY)
    lonely.http.put(f"/api/v1/agents/{agent}", json={"title": "two"})

    again = lonely.http.put(f"/api/v1/agents/{agent}", json={"title": "one"}, headers=KEY)

    assert again.text == first.text
    assert lonely.http.get(f"/api/v1/agents/{agent}").json()["data"]["title"] == "two"


def test_the_same_key_for_another_agent_is_another_request(lonely: Client) -> None:
    one, two = lonely.agent(ECHO, "one"), lonely.agent(ECHO, "two")
    post(lonely, f"/agents/{one}/sessions", {})

    reply = post(lonely, f"/agents/{two}/sessions", {})

    assert reply.status_code == 409


def test_a_key_is_its_tenants_and_its_routes_own(lonely: Client, lonely_server: Server) -> None:
    other = lonely_server.client()
    agents = [client.agent(ECHO) for client in (lonely, other)]

    replies = [
        post(client, f"/agents/{agent}/{what}", {"name": "n"})
        for client, agent in zip((lonely, other), agents, strict=True)
        for what in ("runs", "sessions")
    ]
    other.http.close()

    assert [reply.status_code for reply in replies] == [202, 200, 202, 200]
    assert len({reply.text for reply in replies}) == 4


def test_a_request_that_was_refused_leaves_its_key_free(lonely: Client) -> None:
    lonely.agent(ECHO, "taken")
    refused = post(lonely, "/agents", {"title": "taken", "dsl": ECHO})
    lonely.http.delete(f"/api/v1/agents/{agent_named(lonely, 'taken')}")

    accepted = post(lonely, "/agents", {"title": "taken", "dsl": ECHO})

    assert refused.json()["code"] == 102
    assert accepted.json()["code"] == 0


def test_a_repeat_is_answered_although_it_could_not_be_carried_out_any_more(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    first = post(lonely, f"/agents/{agent}/runs", {"query": "hi"})
    session = first.json()["session_id"]
    assert lonely.http.delete(f"/api/v1/agents/{agent}/sessions/{session}").json()["code"] == 0
    assert lonely.http.delete(f"/api/v1/agents/{agent}").json()["code"] == 0

    again = post(lonely, f"/agents/{agent}/runs", {"query": "hi"})

    assert (again.status_code, again.text) == (first.status_code, first.text)


@pytest.fixture
def filing(lonely_server: Server, tmp_path: Path) -> Iterator[Client]:
    """Somebody who may upload."""
    config = with_settings(lonely_server.config, files_dir=tmp_path)
    with serving(config) as url:
        client = replace(lonely_server, url=url).client()
        yield client
        client.http.close()


# -- files -----------------------------------------------------------------------------------------------------------
def test_files_are_stored_once(filing: Client) -> None:
    agent = filing.agent(ECHO)

    first, again = (upload(filing, agent, {"a.txt": b"a" * 3_000_000, "b.txt": b"b"}) for _ in range(2))
    others = [
        upload(filing, agent, {"a.txt": b"a" * 2_999_999 + b"x", "b.txt": b"b"}),
        upload(filing, agent, {"other.txt": b"a" * 3_000_000, "b.txt": b"b"}),
    ]

    assert first.text == again.text
    assert [file["size"] for file in first.json()["data"]] == [3_000_000, 1]
    assert [other.status_code for other in others] == [409, 409]


# -- what is no key --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["", "k" * 256, "schlüssel".encode(), b"k\x7f"])
@pytest.mark.parametrize("path", ["/agents/{agent}/runs", "/agents/{agent}/sessions"])
def test_what_is_no_key_is_refused_in_clear_words(lonely: Client, path: str, key: Any) -> None:
    reply = lonely.http.post(
        f"/api/v1{path.format(agent=lonely.agent(ECHO))}", json={}, headers={"Idempotency-Key": key}
    )

    assert reply.status_code == 400
    assert "idempotency key" in reply.json()["message"]


def test_two_keys_for_one_request_are_refused_and_the_same_one_twice_is_not(lonely: Client) -> None:
    path = f"/agents/{lonely.agent(ECHO)}/runs"

    two = post(lonely, path, {"idempotency_key": "other"})
    same = post(lonely, path, {"idempotency_key": "once"})

    assert two.status_code == 400
    assert same.status_code == 202


# -- turns -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("how", [{}, {"return_trace": True}, {"stream": True}, {"stream": True, "events": "compact"}])
def test_a_turn_that_is_sent_again_is_told_again_from_its_beginning(client: Client, how: dict[str, Any]) -> None:
    body = {"agent_id": client.agent(MODEL), "query": "hi", **how}

    first, again = (post(client, "/agents/chat/completions", body) for _ in range(2))

    if "stream" in how:
        told, told_again = (list(frames(iter(reply.text.split("\n")))) for reply in (first, again))
        assert told[0] == told_again[0]
        assert names_of(told) == names_of(told_again)
        assert text_of(told) == text_of(told_again) == "Answer: hi"  # how it is cut into messages may differ
    else:
        assert first.json() == again.json()
    assert client.http.get("/api/v1/runs", params={"agent_id": body["agent_id"]}).json()["total"] == 1


def test_a_turn_with_other_headers_under_its_key_is_another_request(client: Client) -> None:
    body = {"agent_id": client.agent(ECHO), "query": "hi", "custom_header": {"X-Who": "ada", "X-Of": "easel"}}
    turned = {**body, "custom_header": {"X-Of": "easel", "X-Who": "ada"}}
    other = {**body, "custom_header": {"X-Who": "bob", "X-Of": "easel"}}

    first, again, refused = (post(client, "/agents/chat/completions", each) for each in (body, turned, other))

    assert first.json() == again.json()
    assert refused.status_code == 409


def test_a_stream_that_is_asked_for_again_while_it_goes_on_is_the_same_stream(lonely: Client) -> None:
    body = {"agent_id": lonely.agent(ECHO), "query": "hi", "stream": True}
    send = partial(lonely.http.stream, "POST", "/api/v1/agents/chat/completions", json=body, headers=KEY)

    with send() as first, send() as again:
        lines = [frames(response.iter_lines()) for response in (first, again)]
        begun = [next(shown).data for shown in lines]
        lonely.http.post(f"/api/v1/runs/{begun[0]['run_id']}/cancel")
        rest = [[frame.data for frame in shown] for shown in lines]

    assert begun[0] == begun[1]
    assert rest[0] == rest[1]


def test_a_turn_in_openais_words_is_carried_out_once_with_its_session(client: Client) -> None:
    agent = client.agent(ECHO)
    said = [{"role": role, "content": role} for role in ("user", "assistant", "user")]

    first, again = (post(client, f"/openai/agents/{agent}/chat/completions", {"messages": said}) for _ in range(2))
    other = post(client, f"/openai/agents/{agent}/chat/completions", {"messages": said[2:]})

    assert first.json() == again.json()
    assert first.json()["choices"][0]["message"]["content"] == "You said: user"
    assert other.status_code == 409
    sessions = client.http.get(f"/api/v1/agents/{agent}/sessions").json()
    assert sessions["total"] == 1
    assert [said["role"] for said in sessions["data"][0]["message"]] == [
        "user",
        "assistant",
        "user",
        "assistant",
    ]


def test_waiting_for_a_run_again_gets_its_result_again(client: Client) -> None:
    path, headers = f"/api/v1/agents/{client.agent(ECHO)}/runs", {**KEY, "Prefer": "wait=20"}

    first, again = (client.http.post(path, json={"query": "hi"}, headers=headers) for _ in range(2))

    assert (first.status_code, first.text) == (again.status_code, again.text)
    assert first.json()["content"] == "You said: hi"


@pytest.mark.parametrize("by", ["resume", "turn"])
def test_an_answer_that_is_sent_again_is_told_what_came_of_it(client: Client, by: str) -> None:
    agent = client.agent(FORM)
    run = client.until(client.start(agent)["run_id"], "waiting")
    path = f"/runs/{run['id']}/resume" if by == "resume" else f"/agents/{agent}/runs"
    body = {"query": "Bob"} if by == "resume" else {"query": "Bob", "session_id": run["session_id"]}

    first, again = (post(client, path, body, Prefer="wait=20") for _ in range(2))
    other = post(client, path, {**body, "query": "Eve"})

    assert first.text == again.text
    assert first.json()["content"] == "Hello Bob"
    assert other.status_code == 409


def test_a_webhook_that_is_called_again_is_the_same_run(lonely: Client) -> None:
    agent = lonely.agent(WEBHOOK)
    lonely.http.post(f"/api/v1/agents/{agent}/publish", json={})

    replies = [post(lonely, f"/agents/{agent}/webhook", {"a": 1}) for _ in range(2)]
    other = post(lonely, f"/agents/{agent}/webhook", {"a": 2})
    bad = lonely.http.post(f"/api/v1/agents/{agent}/webhook", json={}, headers={"Idempotency-Key": ""})

    assert len({reply.headers["x-run-id"] for reply in replies}) == 1
    assert other.status_code == 409
    assert bad.status_code == 400


# -- sessions --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/agents/chat/completions", "data"),
        ("/agents/{agent}/completions", "data"),
        ("/agents/{agent}/runs", "details"),
    ],
)
def test_every_way_to_talk_is_told_which_run_keeps_the_session_busy(lonely: Client, path: str, where: str) -> None:
    agent = lonely.agent(ECHO)
    first = lonely.start(agent)
    named = {"agent_id": agent} if "chat" in path else {}

    reply = lonely.http.post(
        f"/api/v1{path.format(agent=agent)}", json={**named, "query": "hi", "session_id": first["session_id"]}
    )

    assert reply.status_code == 409
    assert reply.json()["message"] == "This agent session is already running."
    assert reply.json()[where] == {
        "session_id": first["session_id"],
        "run_id": first["run_id"],
        "status": "running",
    }


def test_openai_clients_are_told_which_run_keeps_the_session_busy(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    first = lonely.start(agent)
    body = {"messages": [{"role": "user", "content": "hi"}], "session_id": first["session_id"]}

    reply = lonely.http.post(f"/api/v1/openai/agents/{agent}/chat/completions", json=body)

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
    assert "x-should-retry" not in reply.headers  # nothing was started, so asking again is harmless


def test_openais_clients_choose_too_what_becomes_of_a_busy_session(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    first = lonely.start(agent)
    path, said = f"/api/v1/openai/agents/{agent}/chat/completions", [{"role": "user", "content": "hi"}]
    body = {"messages": said, "session_id": first["session_id"], "stream": True}

    with lonely.http.stream("POST", path, json={**body, "on_busy": "enqueue"}) as queued:
        waits = queued.headers["x-run-id"]
    with lonely.http.stream("POST", path, json={**body, "on_busy": "interrupt"}) as begun:
        interrupts = begun.headers["x-run-id"]

    statuses = [lonely.run(run)["status"] for run in (first["run_id"], waits, interrupts)]
    assert statuses == ["cancelled", "cancelled", "running"]


def test_a_session_that_is_deleted_takes_its_waiting_turns_with_it(lonely: Client) -> None:
    agent = lonely.agent(ECHO)
    first = lonely.start(agent)
    waiting = [lonely.start(agent, session_id=first["session_id"], on_busy="enqueue") for _ in range(2)]

    reply = lonely.http.delete(f"/api/v1/agents/{agent}/sessions/{first['session_id']}")

    assert reply.json()["data"] == 1
    assert [lonely.run(run["run_id"])["status"] for run in (first, *waiting)] == ["cancelled"] * 3


# -- no route is forgotten -------------------------------------------------------------------------------------------
BY_NATURE = {  # doing these again changes nothing more
    "POST /api/v1/runs/{run_id}/cancel",
    "POST /api/v1/agents/{agent_id}/cancel",
    "POST /api/v1/tasks/{task_id}/cancel",
    "PATCH /api/v1/tasks/{task_id}",
    "POST /api/v1/retrieval",
    "PUT /api/v1/budgets",
    "PUT /api/v1/memories/{memory_id}",
    "PUT /api/v1/messages/{message_key}",
    "PUT /api/v1/datasets/{dataset_id}",
    "POST /api/v1/datasets/{dataset_id}/chunks",
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
}
BY_HAND = {  # a person tries a tool out, and once more
    "POST /api/v1/mcp/servers/{server_id}/test",
    "POST /api/v1/mcp/servers/test_tool",
}
TURNS = {  # they hand their key to the run they start
    "POST /api/v1/agents/chat/completions",
    "POST /api/v1/agents/{agent_id}/completions",
    "POST /api/v1/openai/chat/completions",
    "POST /api/v1/openai/agents/{agent_id}/chat/completions",
    "POST /api/v1/agents_openai/{agent_id}/chat/completions",
    "POST /api/v1/agentbots/{agent_id}/completions",
    "POST /api/v1/agents/{agent_id}/run",
    "POST /api/v1/agents/{agent_id}/runs",
    *(
        f"{method} /api/v1/agents/{{agent_id}}/webhook{test}"
        for method in ("POST", "PUT", "PATCH")
        for test in ("", "/test")
    ),
}
BY_CONTENT = {  # the key belongs to the bytes of the files, or these are known again by themselves
    "POST /api/v1/agents/{agent_id}/upload",
    "POST /api/v1/datasets/{dataset_id}/documents",
}


def test_every_route_that_creates_something_takes_a_key(lonely_server: Server) -> None:
    paths = lonely_server.client().http.get("/openapi.json").json()["paths"]

    without = {
        f"{method.upper()} {path}"
        for path, methods in paths.items()
        for method, operation in methods.items()
        if method in ("post", "put", "patch")
        and "idempotency-key" not in [parameter["name"] for parameter in operation.get("parameters", [])]
    }

    assert without == BY_NATURE | BY_HAND | TURNS | BY_CONTENT


# -- in other words --------------------------------------------------------------------------------------------------
def post(client: Client, path: str, body: Mapping[str, Any], **headers: str) -> httpx2.Response:
    """Send a request with the key."""
    return client.http.post(f"/api/v1{path}", json=dict(body), headers={**KEY, **headers})


def upload(client: Client, agent: str, files: Mapping[str, bytes]) -> httpx2.Response:
    parts = [("file", (name, data)) for name, data in files.items()]
    return client.http.post(f"/api/v1/agents/{agent}/upload", files=parts, headers=KEY)


def agent_named(client: Client, title: str) -> str:
    return client.http.get("/api/v1/agents", params={"title": title}).json()["data"]["canvas"][0]["id"]
