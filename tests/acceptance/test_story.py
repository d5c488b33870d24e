"""One run over HTTP and server-sent events, with real processes: the example of docs/architecture.md.

A support agent: Begin, then Categorize with two branches; in one of them a model streams into a Message.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.acceptance.conftest import TIMEOUT


def node(component: str, downstream: list[str], **params: Any) -> dict[str, Any]:
    return {"obj": {"component_name": component, "params": params}, "downstream": downstream, "upstream": []}


SUPPORT = {
    "components": {
        "begin": node("Begin", ["Categorize:Way"]),
        "Categorize:Way": node(
            "Categorize",
            ["LLM:Answer", "Message:Other"],
            llm_id="echo",
            category_description={
                "invoice": {"description": "money", "to": ["LLM:Answer"]},
                "other": {"description": "the rest", "to": ["Message:Other"]},
            },
        ),
        "LLM:Answer": node(
            "LLM", ["Message:Answer"], llm_id="echo", prompts=[{"role": "user", "content": "{sys.query}"}]
        ),
        "Message:Answer": node("Message", [], content=["You say: {LLM:Answer@content}"]),
        "Message:Other": node("Message", [], content=["A person will read it."]),
    }
}
FORM = {
    "components": {
        "begin": node("Begin", ["UserFillUp:Ask"]),
        "UserFillUp:Ask": node(
            "UserFillUp",
            ["Message:Thanks"],
            tips="Which order?",
            inputs={"order": {"name": "order", "type": "line", "optional": False}},
        ),
        "Message:Thanks": node("Message", [], content=["Order {UserFillUp:Ask@order} it is."]),
    }
}


@pytest.fixture
def server(up: Path) -> Iterator[httpx2.Client]:
    """An HTTP client of a running `easel up`."""
    state = json.loads((up / "up.json").read_text())
    headers = {"Authorization": f"Bearer {state['token']}"}
    with httpx2.Client(base_url=f"{state['url']}/api/v1", headers=headers, timeout=TIMEOUT) as client:
        yield client


def create_agent(server: httpx2.Client, dsl: dict[str, Any]) -> str:
    """Create an agent with this canvas; return its id."""
    reply = server.post("/agents", json={"title": f"agent {uuid4()}", "dsl": dsl}).json()
    assert reply["code"] == 0, reply
    return reply["data"]["id"]


def frames(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (id, body) of the frames of a stream, without its end marker."""
    found = re.findall(r"id: ?(\S+)\ndata: ?(\{.*\})", text)
    return [(position, json.loads(body)) for position, body in found]


def event_names(text: str) -> list[str]:
    return [body["event"] for _, body in frames(text) if body["event"] != "message"]


def message_text(text: str) -> str:
    return "".join(body["data"]["content"] for _, body in frames(text) if body["event"] == "message")


def wait_until_over(server: httpx2.Client, run_id: str) -> dict[str, Any]:
    """Wait until a run is over, and return it."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline:
        run = server.get(f"/runs/{run_id}").json()
        run = run.get("data", run)
        if run["status"] in ("succeeded", "failed", "cancelled"):
            return run
    raise AssertionError(f"run {run_id} did not end")


def test_answer_is_streamed_with_events_in_the_documented_order(server: httpx2.Client):
    question = {"agent_id": create_agent(server, SUPPORT), "query": "my invoice is wrong", "stream": True}

    stream = server.post("/agents/chat/completions", json=question)

    assert stream.headers["content-type"].startswith("text/event-stream")
    assert message_text(stream.text) == "You say: my invoice is wrong"
    assert event_names(stream.text) == [
        "workflow_started",
        "node_started", "node_finished",
        "node_started", "node_finished",
        "node_started", "node_started", "message_end", "node_finished", "node_finished",
        "workflow_finished",
    ]  # fmt: skip
    assert stream.text.rstrip().endswith("data:[DONE]")


def test_reconnected_client_gets_all_events_after_its_last_one(server: httpx2.Client):
    question = {"agent_id": create_agent(server, SUPPORT), "query": "my invoice is wrong", "stream": True}
    all_frames = frames(server.post("/agents/chat/completions", json=question).text)
    run_id = all_frames[0][1]["run_id"]

    for index, (position, _) in enumerate(all_frames):
        rest = server.get(
            f"/runs/{run_id}/events", headers={"Accept": "text/event-stream", "Last-Event-ID": position}
        ).text

        later = "".join(body["data"]["content"] for _, body in all_frames[index + 1 :] if body["event"] == "message")
        assert message_text(rest) == later
        assert event_names(rest) == [body["event"] for _, body in all_frames[index + 1 :] if body["event"] != "message"]


def test_run_is_accepted_once_per_idempotency_key_and_succeeds(server: httpx2.Client):
    agent_id = create_agent(server, SUPPORT)

    accepted = server.post(f"/agents/{agent_id}/runs", json={"query": "hello"}, headers={"Idempotency-Key": "once"})
    repeated = server.post(f"/agents/{agent_id}/runs", json={"query": "hello"}, headers={"Idempotency-Key": "once"})

    run_id = accepted.json()["run_id"]
    assert accepted.status_code == 202
    assert accepted.headers["location"] == f"/api/v1/runs/{run_id}"
    assert repeated.json()["run_id"] == run_id
    assert wait_until_over(server, run_id)["status"] == "succeeded"


def test_form_answer_continues_the_same_run_and_is_accepted_once(server: httpx2.Client):
    reply = server.post(
        "/agents/chat/completions", json={"agent_id": create_agent(server, FORM), "query": "hi", "stream": True}
    )
    last = frames(reply.text)[-1][1]

    answer = {"inputs": {"order": {"value": "A-17", "type": "line"}}}
    resumed = server.post(f"/runs/{last['run_id']}/resume", json=answer)
    too_late = server.post(f"/runs/{last['run_id']}/resume", json=answer)

    assert last["event"] == "user_inputs"
    assert last["data"]["tips"] == "Which order?"
    assert resumed.status_code < 300
    assert wait_until_over(server, last["run_id"])["status"] == "succeeded"
    assert too_late.status_code == 409
    events = server.get(f"/runs/{last['run_id']}/events", headers={"Accept": "text/event-stream"}).text
    assert message_text(events) == "Order A-17 it is."


def test_cancelled_waiting_run_stays_cancelled(server: httpx2.Client):
    reply = server.post(
        "/agents/chat/completions", json={"agent_id": create_agent(server, FORM), "query": "hi", "stream": True}
    )
    run_id = frames(reply.text)[-1][1]["run_id"]

    cancelled = server.post(f"/runs/{run_id}/cancel")

    assert cancelled.status_code < 300
    assert wait_until_over(server, run_id)["status"] == "cancelled"
    assert server.post(f"/runs/{run_id}/cancel").status_code < 300


@pytest.mark.parametrize(
    ("dsl", "reason"),
    [
        ("{not json", "Invalid DSL JSON string."),
        ({"components": {"a": node("Begin", [])}}, "begin"),
        ({"components": {"begin": node("Begin", ["nowhere"])}}, "nowhere"),
        ({"components": {"begin": node("NoSuchThing", [])}}, "NoSuchThing"),
    ],
)
def test_canvas_that_cannot_run_is_refused_and_not_stored(server: httpx2.Client, dsl: Any, reason: str):
    title = f"bad {uuid4()}"

    refused = server.post("/agents", json={"title": title, "dsl": dsl})

    assert refused.status_code == 400
    assert reason in refused.json()["message"]
    assert title not in server.get("/agents").text


def test_secret_of_a_share_is_in_no_log_of_the_servers(server: httpx2.Client, up: Path):  # T107
    run_id = server.post(f"/agents/{create_agent(server, SUPPORT)}/runs", json={"query": "hi"}).json()["run_id"]
    made = server.post(f"/runs/{run_id}/shares", json={})
    assert made.status_code in (200, 201), made.text
    secret = made.json()["secret"]

    with httpx2.Client(base_url=str(server.base_url), timeout=TIMEOUT) as visitor:
        signed_in = visitor.post("/viewer/session", json={"share": secret}, headers={"X-Easel-Viewer": "1"})
        refused = httpx2.post(f"{server.base_url}viewer/session", json={"share": f"{secret}x"})
        shown = visitor.get(f"/runs/{run_id}")

    assert (signed_in.status_code, refused.status_code, shown.status_code) == (204, 401, 200)
    logs = [path for path in up.rglob("*") if path.is_file() and path.suffix in (".log", ".txt", "")]
    assert any(path.suffix == ".log" for path in logs)
    assert [path.name for path in logs if secret.encode() in path.read_bytes()] == []
