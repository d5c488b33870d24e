"""A run asks whether a node whose worker was lost has acted, and a request answers."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.outcome import Finished
from components import registry
from components.base import Component, Params
from components.context import NodeContext
from scheduler.sweeper import sweeper
from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client, canvas, eventually, message

POSTING = canvas(
    ("begin", "Begin", {}, ["Post:0"]),
    ("Post:0", "Post", {"on_unknown": "ask", "outputs": {"id": {}}}, ["Message:0"]),
    ("Message:0", "Message", message("Posted {Post:0@id}."), []),
)
EXPIRE_LEASE = text(
    "update activations set lease_until = now() - interval '1 hour' where run_id = :run and status = 'running'"
)


@pytest.fixture(autouse=True)
def unsafe_component(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a component of effect class `unsafe` whose first attempt never ends. The sweeper reclaims it at once."""

    async def post(params: Params, ctx: NodeContext) -> Finished:
        if await ctx.journal_get("lost") is None:
            await ctx.journal_put("lost", True)
            await asyncio.sleep(3600)
        return Finished(outputs={"id": "once more"})

    component: Component[Params] = Component("Post", Params, post, "unsafe")
    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, "post": component})
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)


def start_and_lose_worker(server: Server, client: Client) -> str:
    """Start a run and expire the lease of its Post node; return the run's id once the run waits for an answer."""
    run = client.start(client.agent(POSTING))["run_id"]

    def expire_lease_and_read() -> Mapping[str, Any]:
        state = client.run(run)
        if state["activations"][-1]["node_id"] == "Post:0":
            with server.database.transaction() as tx:
                tx.execute(EXPIRE_LEASE, run=UUID(run))
        return state

    eventually(expire_lease_and_read, lambda state: state["status"] == "waiting")
    return run


def resume(client: Client, run: str, **body: Any) -> Any:
    return client.http.post(f"/api/v1/runs/{run}/resume", json=body, headers={"Prefer": "wait=20"})


def test_run_with_an_unknown_outcome_continues_after_the_answer_happened(server: Server, client: Client):  # T073
    run = start_and_lose_worker(server, client)
    waiting = client.run(run)["waiting"]["Post:0"]

    reply = resume(client, run, outcomes={"Post:0": "happened"}, inputs={"Post:0.outputs": {"id": "7"}})

    assert waiting["tips"].startswith('It is not known whether "the Post:0" (Post:0) has happened')
    assert list(waiting["inputs"]) == ["Post:0.outcome", "Post:0.outputs"]
    assert reply.json()["content"] == "Posted 7."
    assert [step["attempt"] for step in client.run(run)["activations"]] == [1, 1, 1]


def test_answer_again_to_an_unknown_outcome_starts_another_attempt(server: Server, client: Client):  # T073
    run = start_and_lose_worker(server, client)

    reply = resume(client, run, inputs={"Post:0.outcome": {"value": "again"}})

    assert reply.json()["content"] == "Posted once more."
    assert [step["attempt"] for step in client.run(run)["activations"]] == [1, 2, 1]


def test_invalid_answer_to_an_unknown_outcome_is_refused_and_the_run_still_waits(server: Server, client: Client):
    run = start_and_lose_worker(server, client)

    unknown = resume(client, run, outcomes={"Post:1": "again"})
    vague = resume(client, run, outcomes={"Post:0": "perhaps"})

    assert (unknown.status_code, vague.status_code) == (400, 400)
    assert 'Nothing is asked about "Post:1"' in unknown.json()["message"]
    assert client.run(run)["status"] == "waiting"
