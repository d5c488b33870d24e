"""One run from outside: real processes, HTTP in, server-sent events out. The story of docs/architecture.md.

A support agent: Begin, then Categorize, then two ways; one of them asks a model that streams into a Message.
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

from tests.acceptance.conftest import PATIENCE


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
    """Everything on this machine, reached over HTTP only."""
    state = json.loads((up / "up.json").read_text())
    headers = {"Authorization": f"Bearer {state['token']}"}
    with httpx2.Client(base_url=f"{state['url']}/api/v1", headers=headers, timeout=PATIENCE) as client:
        yield client


def agent(server: httpx2.Client, dsl: dict[str, Any]) -> str:
    """A new agent with this canvas."""
    reply = server.post("/agents", json={"title": f"agent {uuid4()}", "dsl": dsl}).json()
    assert reply["code"] == 0, reply
    return reply["data"]["id"]


def frames(text: str) -> list[tuple[str, dict[str, Any]]]:
    """(id, body) of the frames of a stream, without its end."""
    found = re.findall(r"id: ?(\S+)\ndata: ?(\{.*\})", text)
    return [(position, json.loads(body)) for position, body in found]


def names(text: str) -> list[str]:
    return [body["event"] for _, body in frames(text) if body["event"] != "message"]


def said(text: str) -> str:
    return "".join(body["data"]["content"] for _, body in frames(text) if body["event"] == "message")


def ended(server: httpx2.Client, run_id: str) -> dict[str, Any]:
    """A run once it is over."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        run = server.get(f"/runs/{run_id}").json()
        run = run.get("data", run)
        if run["status"] in ("succeeded", "failed", "cancelled"):
            return run
    raise AssertionError(f"run {run_id} did not end")


def test_an_answer_streams_in_the_order_that_clients_know(server: httpx2.Client):
    question = {"agent_id": agent(server, SUPPORT), "query": "my invoice is wrong", "stream": True}

    stream = server.post("/agents/chat/completions", json=question)

    assert stream.headers["content-type"].startswith("text/event-stream")
    assert said(stream.text) == "You say: my invoice is wrong"
    assert names(stream.text) == [
        "workflow_started",
        "node_started", "node_finished",
        "node_started", "node_finished",
        "node_started", "node_started", "message_end", "node_finished", "node_finished",
        "workflow_finished",
    ]  # fmt: skip
    assert stream.text.rstrip().endswith("data:[DONE]")


def test_a_client_that_lost_its_connection_gets_what_followed(server: httpx2.Client):
    question = {"agent_id": agent(server, SUPPORT), "query": "my invoice is wrong", "stream": True}
    whole = frames(server.post("/agents/chat/completions", json=question).text)
    run_id = whole[0][1]["run_id"]

    for index, (position, _) in enumerate(whole):
        rest = server.get(
            f"/runs/{run_id}/events", headers={"Accept": "text/event-stream", "Last-Event-ID": position}
        ).text

        later = "".join(body["data"]["content"] for _, body in whole[index + 1 :] if body["event"] == "message")
        assert said(rest) == later
        assert names(rest) == [body["event"] for _, body in whole[index + 1 :] if body["event"] != "message"]


def test_a_run_is_accepted_at_once_and_can_be_waited_for(server: httpx2.Client):
    agent_id = agent(server, SUPPORT)

    accepted = server.post(f"/agents/{agent_id}/runs", json={"query": "hello"}, headers={"Idempotency-Key": "once"})
    again = server.post(f"/agents/{agent_id}/runs", json={"query": "hello"}, headers={"Idempotency-Key": "once"})

    run_id = accepted.json()["run_id"]
    assert accepted.status_code == 202
    assert accepted.headers["location"] == f"/api/v1/runs/{run_id}"
    assert again.json()["run_id"] == run_id
    assert ended(server, run_id)["status"] == "succeeded"


def test_a_form_is_asked_and_the_same_run_goes_on_with_the_answer(server: httpx2.Client):
    asked = server.post(
        "/agents/chat/completions", json={"agent_id": agent(server, FORM), "query": "hi", "stream": True}
    )
    last = frames(asked.text)[-1][1]

    answer = {"inputs": {"order": {"value": "A-17", "type": "line"}}}
    resumed = server.post(f"/runs/{last['run_id']}/resume", json=answer)
    too_late = server.post(f"/runs/{last['run_id']}/resume", json=answer)

    assert last["event"] == "user_inputs"
    assert last["data"]["tips"] == "Which order?"
    assert resumed.status_code < 300
    assert ended(server, last["run_id"])["status"] == "succeeded"
    assert too_late.status_code == 409
    events = server.get(f"/runs/{last['run_id']}/events", headers={"Accept": "text/event-stream"}).text
    assert said(events) == "Order A-17 it is."


def test_a_waiting_run_is_cancelled_and_stays_so(server: httpx2.Client):
    asked = server.post(
        "/agents/chat/completions", json={"agent_id": agent(server, FORM), "query": "hi", "stream": True}
    )
    run_id = frames(asked.text)[-1][1]["run_id"]

    cancelled = server.post(f"/runs/{run_id}/cancel")

    assert cancelled.status_code < 300
    assert ended(server, run_id)["status"] == "cancelled"
    assert server.post(f"/runs/{run_id}/cancel").status_code < 300


@pytest.mark.parametrize(
    ("dsl", "told"),
    [
        ("{not json", "Invalid DSL JSON string."),
        ({"components": {"a": node("Begin", [])}}, "begin"),
        ({"components": {"begin": node("Begin", ["nowhere"])}}, "nowhere"),
        ({"components": {"begin": node("NoSuchThing", [])}}, "NoSuchThing"),
    ],
)
def test_a_canvas_that_can_never_run_is_refused_and_not_stored(server: httpx2.Client, dsl: Any, told: str):
    title = f"bad {uuid4()}"

    refused = server.post("/agents", json={"title": title, "dsl": dsl})

    assert refused.status_code == 400
    assert told in refused.json()["message"]
    assert title not in server.get("/agents").text
