"""A run asks whether a node has acted whose worker was lost, and HTTP answers."""

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
FORGET = text(
    "update activations set lease_until = now() - interval '1 hour' where run_id = :run and status = 'running'"
)


@pytest.fixture(autouse=True)
def posting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A component that may not be done twice, whose first worker never comes back; the sweeper believes it at once."""

    async def post(params: Params, ctx: NodeContext) -> Finished:
        if await ctx.journal_get("lost") is None:
            await ctx.journal_put("lost", True)
            await asyncio.sleep(3600)
        return Finished(outputs={"id": "once more"})

    component: Component[Params] = Component("Post", Params, post, "unsafe")
    monkeypatch.setattr(registry, "COMPONENTS", {**registry.COMPONENTS, "post": component})
    monkeypatch.setattr(sweeper, "MIN_UNINTERRUPTED", 0.0)


def lost(server: Server, client: Client) -> str:
    """A run whose worker was lost while it posted, once it asks."""
    run = client.start(client.agent(POSTING))["run_id"]

    def asks() -> Mapping[str, Any]:
        shown = client.run(run)
        if shown["activations"][-1]["node_id"] == "Post:0":
            with server.database.transaction() as tx:
                tx.execute(FORGET, run=UUID(run))
        return shown

    eventually(asks, lambda shown: shown["status"] == "waiting")
    return run


def resumed(client: Client, run: str, **body: Any) -> Any:
    return client.http.post(f"/api/v1/runs/{run}/resume", json=body, headers={"Prefer": "wait=20"})


def test_a_run_shows_what_is_not_known_and_goes_on_after_what_has_happened(server: Server, client: Client):
    run = lost(server, client)
    waiting = client.run(run)["waiting"]["Post:0"]

    reply = resumed(client, run, outcomes={"Post:0": "happened"}, inputs={"Post:0.outputs": {"id": "7"}})

    assert waiting["tips"].startswith('It is not known whether "the Post:0" (Post:0) has happened')
    assert list(waiting["inputs"]) == ["Post:0.outcome", "Post:0.outputs"]
    assert reply.json()["content"] == "Posted 7."
    assert [step["attempt"] for step in client.run(run)["activations"]] == [1, 1, 1]


def test_what_is_to_be_done_again_is_done_by_another_attempt(server: Server, client: Client):
    run = lost(server, client)

    reply = resumed(client, run, inputs={"Post:0.outcome": {"value": "again"}})

    assert reply.json()["content"] == "Posted once more."
    assert [step["attempt"] for step in client.run(run)["activations"]] == [1, 2, 1]


def test_what_nobody_can_mean_is_refused_and_the_run_goes_on_waiting(server: Server, client: Client):
    run = lost(server, client)

    unknown = resumed(client, run, outcomes={"Post:1": "again"})
    vague = resumed(client, run, outcomes={"Post:0": "perhaps"})

    assert (unknown.status_code, vague.status_code) == (400, 400)
    assert 'Nothing is asked about "Post:1"' in unknown.json()["message"]
    assert client.run(run)["status"] == "waiting"
