"""A component that may act twice, whose first attempt loses its worker: its run asks whether it has acted."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

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


def register_post(monkeypatch: pytest.MonkeyPatch) -> None:
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
    run = client.start(client.agent(POSTING, f"posting {uuid4().hex}"))["run_id"]

    def expire_lease_and_read() -> Mapping[str, Any]:
        state = client.run(run)
        if state["activations"][-1]["node_id"] == "Post:0":
            with server.database.transaction() as tx:
                tx.execute(EXPIRE_LEASE, run=UUID(run))
        return state

    eventually(expire_lease_and_read, lambda state: state["status"] == "waiting")
    return run
