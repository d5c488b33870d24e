"""Chat completions over HTTP: streamed, whole and in OpenAI's format; failures, forms and disconnects."""

import json
from typing import Any

import pytest
from sqlalchemy import text

from store.primitives.encryption import EncryptionKey
from store.primitives.ids import new_id
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import (
    BROKEN,
    ECHO,
    FORM,
    MODEL,
    Client,
    canvas,
    eventually,
    frames,
    message,
    names_of,
    text_of,
)


def test_a_turn_streams_its_events_in_order_and_ends_with_done(client: Client) -> None:
    events = client.stream(client.agent(ECHO), "hello")

    assert names_of(events) == [
        "workflow_started",
        "node_started",
        "node_finished",
        "node_started",
        "message",
        "message_end",
        "node_finished",
        "workflow_finished",
        "[DONE]",
    ]
    assert text_of(events) == "You said: hello"
    last = events[-2].data["data"]
    assert last["outputs"]["content"] == "You said: hello"
    assert last["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "calls": 0}


def test_every_frame_has_the_ids_to_cancel_and_to_reconnect(client: Client) -> None:
    events = client.stream(client.agent(ECHO))[:-1]

    first = events[0].data
    assert {frame.data["task_id"] for frame in events} == {first["session_id"]}
    assert all(len(frame.data[name]) == 32 for frame in events for name in ("message_id", "session_id", "run_id"))
    assert len({(frame.data["message_id"], frame.data["created_at"]) for frame in events}) == 1
    numbers = [frame.data["seq"] for frame in events if "seq" in frame.data]
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(frame.id for frame in events)


def test_streamed_model_answer_is_sent_once_and_equals_the_output(client: Client) -> None:
    events = client.stream(client.agent(MODEL), "a long question about everything")

    assert text_of(events).startswith("Answer: ")
    assert "a long question about everything" in text_of(events)
    assert events[-2].data["data"]["outputs"]["content"] == text_of(events)
    assert events[-2].data["data"]["usage"]["calls"] == 1


def test_names_and_types_of_nodes_come_from_the_canvas(client: Client) -> None:
    events = client.stream(client.agent(ECHO))

    finished = [frame.data["data"] for frame in events[:-1] if frame.data["event"] == "node_finished"]
    assert [(node["component_id"], node["component_name"], node["component_type"]) for node in finished] == [
        ("begin", "the begin", "Begin"),
        ("Message:0", "the Message:0", "Message"),
    ]
    assert finished[1]["outputs"]["content"] == "You said: hi"
    assert finished[1]["error"] is None


def test_turn_without_streaming_returns_the_last_event_with_content_and_trace(client: Client) -> None:
    reply = client.chat(client.agent(ECHO), "hello", return_trace=True)

    data = reply["data"]["data"]
    assert reply["code"] == 0
    assert reply["data"]["event"] == "workflow_finished"
    assert data["content"] == "You said: hello"
    assert data["reference"] == {}
    assert [entry["component_id"] for entry in data["trace"]] == ["begin", "Message:0"]


def test_compact_event_list_has_no_started_events_and_no_outputs(client: Client) -> None:
    events = client.stream(client.agent(ECHO), events="compact")

    assert names_of(events) == [
        "node_finished", "message", "message_end", "node_finished", "workflow_finished", "[DONE]",
    ]  # fmt: skip
    assert set(events[-2].data["data"]) == {"usage"}


def test_session_continues_with_its_earlier_messages(client: Client) -> None:
    agent = client.agent(ECHO)
    first = client.chat(agent, "one")["data"]

    second = client.chat(agent, "two", session_id=first["session_id"])["data"]

    session = client.http.get(f"/api/v1/agents/{agent}/sessions/{first['session_id']}").json()["data"]
    assert second["session_id"] == first["session_id"]
    assert [(entry["role"], entry["content"]) for entry in session["message"]] == [
        ("user", "one"),
        ("assistant", "You said: one"),
        ("user", "two"),
        ("assistant", "You said: two"),
    ]
    assert session["dsl"]["globals"]["sys.query"] == "two"
    assert session["round"] == 2


def test_a_failed_turn_ends_with_the_error_frame(client: Client) -> None:
    events = client.stream(client.agent(BROKEN))

    assert names_of(events)[-2:] == ["error", "[DONE]"]
    failure = events[-2].data
    assert failure["code"] == 500
    assert failure["data"] is False
    assert failure["message"]
    assert {"task_id", "session_id", "run_id"} <= set(failure)


def test_a_failed_turn_without_streaming_has_code_500(client: Client) -> None:
    reply = client.chat(client.agent(BROKEN))

    assert reply["code"] == 500
    assert reply["session_id"]
    assert client.run(reply["run_id"])["status"] == "failed"


def test_a_form_ends_the_turn_and_the_next_turn_answers_it(client: Client) -> None:
    agent = client.agent(FORM)
    question = client.stream(agent)
    session = question[0].data["session_id"]

    answered = client.stream(agent, "", session_id=session, inputs={"name": {"type": "line", "value": "Ada"}})

    assert names_of(question)[-2:] == ["user_inputs", "[DONE]"]
    assert question[-2].data["data"]["inputs"]["name"]["type"] == "line"
    assert question[-2].data["data"]["tips"] == "Who are you?"
    assert "workflow_started" not in names_of(answered)
    assert text_of(answered) == "Hello Ada"
    assert answered[0].data["run_id"] == question[0].data["run_id"]
    assert answered[0].data["message_id"] != question[0].data["message_id"]


def test_query_of_the_next_turn_answers_a_form_with_one_field(client: Client) -> None:
    agent = client.agent(FORM)
    session = client.chat(agent)["data"]["session_id"]

    answered = client.chat(agent, "Bob", session_id=session)

    assert answered["data"]["data"]["content"] == "Hello Bob"


def test_release_runs_the_published_version_in_a_new_session(client: Client) -> None:
    agent = client.agent(ECHO)
    assert client.chat(agent, release=True) == {"code": 102, "message": "No available published version"}
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    draft = {**ECHO, "components": {**ECHO["components"], "Message:0": MODEL["components"]["Message:0"]}}
    draft["components"]["Message:0"] = {
        "obj": {"component_name": "Message", "params": {"content": ["a draft"]}}, "downstream": [],
    }  # fmt: skip
    assert client.http.put(f"/api/v1/agents/{agent}", json={"dsl": draft}).json()["code"] == 0

    assert client.chat(agent, "x", release="true")["data"]["data"]["content"] == "You said: x"
    assert client.chat(agent, "x")["data"]["data"]["content"] == "a draft"


def test_same_idempotency_key_returns_the_same_run(client: Client) -> None:
    agent = client.agent(ECHO)

    first = client.stream(agent, idempotency_key="k")
    second = client.stream(agent, idempotency_key="k")

    assert first[0].data == second[0].data
    assert names_of(first) == names_of(second)
    assert text_of(first) == text_of(second)


def test_same_idempotency_key_with_another_query_is_refused(client: Client) -> None:
    agent = client.agent(ECHO)
    client.chat(agent, "one", idempotency_key="k2")

    reply = client.http.post(
        "/api/v1/agents/chat/completions",
        json={"agent_id": agent, "query": "two"},
        headers={"Idempotency-Key": "k2"},
    )

    assert reply.status_code == 409


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({}, 101, "`agent_id` is required."),
        ({"agent_id": "0" * 32}, 103, "Make sure you have permission to access the agent."),
        ({"agent_id": "no id"}, 103, "Make sure you have permission to access the agent."),
        ({"agent_id": "0" * 32, "session_id": "0" * 32}, 102, "Session not found!"),
        ({"agent_id": "0" * 32, "session_id": "x"}, 102, "Session not found!"),
    ],
)
def test_missing_or_unknown_agent_or_session_is_refused_with_ragflows_code(
    client: Client, body: dict[str, Any], code: int, message: str
) -> None:
    reply = client.http.post("/api/v1/agents/chat/completions", json=body)

    assert reply.status_code == (400 if code == 101 else 200)
    assert (reply.json()["code"], reply.json()["message"]) == (code, message)


def test_a_session_of_another_agent_is_refused(client: Client) -> None:
    session = client.chat(client.agent(ECHO))["data"]["session_id"]

    reply = client.chat(client.agent(FORM, "other"), session_id=session)

    assert (reply["code"], reply["message"]) == (103, "Session does not belong to the requested agent.")


def test_strict_status_header_returns_real_http_statuses(client: Client) -> None:
    headers = {"X-Http-Status": "strict"}

    statuses = [
        client.http.post("/api/v1/agents/chat/completions", json=body, headers=headers).status_code
        for body in ({}, {"agent_id": "0" * 32}, {"agent_id": "0" * 32, "session_id": "0" * 32})
    ]

    assert statuses == [400, 403, 404]


def test_openai_stream_has_chunks_and_a_final_chunk_with_usage(client: Client) -> None:
    agent = client.agent(ECHO)
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "model": "any"}

    with client.http.stream("POST", f"/api/v1/openai/agents/{agent}/chat/completions", json=body) as response:
        raw = "".join(response.iter_text())

    chunks = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    assert raw.endswith("data: [DONE]\n\n")
    assert "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in chunks) == "You said: hello"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks][-1] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] > 0


def test_openai_request_returns_one_completion_and_stores_earlier_messages(client: Client) -> None:
    agent = client.agent(ECHO)
    history = [("user", "a"), ("assistant", "b"), ("user", [{"type": "text", "text": "now"}])]
    messages = [{"role": role, "content": content} for role, content in history]

    reply = client.http.post(f"/api/v1/openai/agents/{agent}/chat/completions", json={"messages": messages}).json()

    session = client.http.get(f"/api/v1/agents/{agent}/sessions/{reply['id']}").json()["data"]
    assert reply["object"] == "chat.completion"
    assert reply["choices"][0]["message"]["content"] == "You said: now"
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert [entry["content"] for entry in session["message"]] == ["a", "b", "now", "You said: now"]


def test_openai_request_returns_forms_and_failures_as_errors(client: Client) -> None:
    body = {"openai-compatible": True, "messages": [{"role": "user", "content": "x"}]}
    url = "/api/v1/agents/chat/completions"

    waiting = client.http.post(url, json={**body, "agent_id": client.agent(FORM)})
    failed = client.http.post(url, json={**body, "agent_id": client.agent(BROKEN, "broken")})
    empty = client.http.post(url, json={"openai-compatible": True, "agent_id": "0" * 32})

    assert waiting.status_code == 409
    assert waiting.json()["error"]["cpn_id"] == "UserFillUp:0"
    assert failed.status_code == 500
    assert failed.json()["error"]["type"] == "server_error"
    assert failed.json()["error"]["message"].startswith('Node "the VariableAssigner:0" (VariableAssigner:0): ')
    assert empty.json()["error"]["message"] == "You must provide at least one message."


def test_error_of_a_run_names_its_node_except_in_the_node_finished_event(
    client: Client,
) -> None:
    *_, finished, last, _ = client.stream(client.agent(BROKEN, "broken"))

    failure = last.data["failure"]
    message = f'Node "the VariableAssigner:0" (VariableAssigner:0): {failure["error"]}'
    assert (last.data["code"], last.data["message"]) == (500, message)
    assert (failure["node_id"], failure["component"]) == ("VariableAssigner:0", "VariableAssigner")
    assert finished.data["data"]["error"] == failure["error"]
    assert client.run(last.data["run_id"])["error"] == message


def test_failed_model_is_marked_on_the_run_and_is_an_error_for_openai_clients(server: Server, client: Client) -> None:
    unreachable = AccountRow(
        "VLLM", base_url="http://127.0.0.1:1", models={"m": {"kinds": ["chat"], "is_tools": False}}
    )
    with server.database.transaction() as tx:
        model_accounts.put_account(tx, client.tenant_id, unreachable, EncryptionKey.from_secret(SECRET))
    tool = {"component_name": "TavilySearch", "params": {"api_key": "k"}}
    agent = client.agent(
        canvas(
            ("begin", "Begin", {}, ["Agent:0"]),
            ("Agent:0", "Agent", {"llm_id": "m@VLLM", "prompts": "{sys.query}", "tools": [tool]}, ["Message:0"]),
            ("Message:0", "Message", message("{Agent:0@content}"), []),
        )
    )
    body = {"messages": [{"role": "user", "content": "x"}]}
    url = f"/api/v1/openai/agents/{agent}/chat/completions"

    *_, finished, _ = client.stream(agent)
    whole = client.http.post(url, json=body)
    with client.http.stream("POST", url, json={**body, "stream": True}) as response:
        chunks = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]

    run = client.run(finished.data["run_id"])
    (listed, *_) = client.http.get("/api/v1/runs", params={"session_id": run["session_id"]}).json()["runs"]
    assert finished.data["data"]["has_model_error"] is True
    assert (run["status"], run["has_model_error"], listed["has_model_error"]) == ("succeeded", True, True)
    assert run["answer"].startswith("**ERROR**: CONNECTION_ERROR")
    assert [(each["node_id"], each["code"]) for each in run["warnings"]] == [("Agent:0", "tools_not_offered")]
    assert {"warnings", "model_errors"}.isdisjoint(run["usage"])
    assert (whole.status_code, whole.json()["error"]["type"]) == (500, "model_error")
    assert whole.json()["error"]["message"].startswith("**ERROR**: CONNECTION_ERROR")
    assert whole.headers["x-should-retry"] == "false"
    assert chunks[-1]["choices"][0]["finish_reason"] == "error"
    assert chunks[-1]["choices"][0]["delta"]["error"]["type"] == "model_error"
    assert (chunks[-1]["error"]["type"], chunks[-1]["error"]["code"]) == ("model_error", "model_error")


def test_run_without_a_failed_model_has_no_model_error(client: Client) -> None:
    *_, finished, _ = client.stream(client.agent(MODEL))

    run = client.run(finished.data["run_id"])
    assert "has_model_error" not in finished.data["data"]
    assert (run["has_model_error"], run["warnings"]) == (False, [])


def test_share_link_token_can_complete_on_the_openai_route_and_list_no_agents(server: Server, client: Client) -> None:
    agent = client.agent(ECHO)
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    guest = server.guest(client, agent)
    body = {"messages": [{"role": "user", "content": "hello"}]}

    assert guest.http.post(f"/api/v1/openai/agents/{agent}/chat/completions", json=body).status_code == 200
    assert guest.http.get("/api/v1/agents").status_code == 401
    guest.http.close()


def test_client_disconnect_does_not_stop_the_run(client: Client) -> None:
    agent = client.agent(MODEL)
    body = {"agent_id": agent, "query": "q", "stream": True}

    with client.http.stream("POST", "/api/v1/agents/chat/completions", json=body) as response:
        first = next(frames(response.iter_lines()))

    assert client.wait_for(first.data["run_id"], "succeeded")["answer"].startswith("Answer: ")


def test_a_second_turn_in_a_busy_session_is_refused(client: Client, server: Server) -> None:
    agent = client.agent(ECHO)
    session = client.http.post(f"/api/v1/agents/{agent}/sessions", json={}).json()["data"]["id"]
    with server.database.transaction() as tx:
        tx.execute(text("update conversations set active_run = :run where id = :id"), run=new_id(), id=session)

    reply = client.http.post(
        "/api/v1/agents/chat/completions", json={"agent_id": agent, "query": "x", "session_id": session}
    )

    assert reply.status_code == 409
    assert (reply.json()["code"], reply.json()["message"]) == (103, "This agent session is already running.")


def test_cancelling_a_waiting_run_ends_it(client: Client) -> None:
    agent = client.agent(FORM)
    question = client.chat(agent)["data"]

    assert client.http.post(f"/api/v1/tasks/{question['task_id']}/cancel").json()["data"] is True

    assert eventually(lambda: client.run(question["run_id"])["status"], lambda status: status == "cancelled")


# -- run -------------------------------------------------------------------------------------------------------------
def test_run_route_uses_the_published_version_or_else_the_draft(client: Client) -> None:
    agent = client.agent(ECHO)
    path = f"/api/v1/agents/{agent}/run"
    changed = {**ECHO, "components": {**ECHO["components"], "Message:0": _message_node("Changed: {sys.query}")}}

    draft = client.http.post(path, json={"user_input": "a"}).json()["data"]
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": changed})
    published = client.http.post(path, json={"message": "b"}).json()["data"]
    named = client.http.post(path, params={"version": version["id"]}, json={"query": "c"}).json()["data"]
    newest = client.http.post(path, params={"version": "draft", "user_input": "d"}, json={}).json()["data"]

    contents = [turn["data"]["content"] for turn in (draft, published, named, newest)]
    assert contents == ["You said: a", "You said: b", "You said: c", "Changed: d"]


def test_run_route_streams_with_the_sse_accept_header_and_continues_a_session(client: Client) -> None:
    path = f"/api/v1/agents/{client.agent(ECHO)}/run"
    session = client.http.post(path, json={"query": "a"}).json()["data"]["session_id"]

    sse = {"Accept": "text/event-stream"}
    with client.http.stream("POST", path, params={"session_id": session}, json={"query": "b"}, headers=sse) as response:
        streamed = list(frames(response.iter_lines()))

    assert text_of(streamed) == "You said: b"
    assert {frame.data["session_id"] for frame in streamed if isinstance(frame.data, dict)} == {session}


def _message_node(text: str) -> dict[str, Any]:
    return {"obj": {"component_name": "Message", "params": message(text)}, "downstream": []}
