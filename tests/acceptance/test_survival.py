"""`easel up` outlives the killing of any of its processes, and its runs outlive its own."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.faults.easel_up import EaselUp, data_of, easel_up
from tests.faults.outside import outside

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 60.0  # seconds for anything that must happen
AGAIN = (httpx2.TransportError, KeyError, ValueError)  # what a request meets while the API or its database is away


@pytest.fixture(scope="module")
def up() -> Iterator[EaselUp]:
    with outside() as world, easel_up(world) as up:
        yield up


def until(fact: Callable[[], Any]) -> Any:
    """Wait for a fact, with a deadline; requests that fail meanwhile are made again."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            if found := fact():
                return found
        except AGAIN:
            pass
        assert time.monotonic() < give_up
        time.sleep(0.1)


def agent(client: httpx2.Client, example: str) -> str:
    document = json.loads((EXAMPLES / example).read_text())
    body = {"title": f"{example} {uuid4()}", "dsl": document.get("dsl", document)}
    return data_of(client.post("/agents", json=body))["id"]


def started(client: httpx2.Client, agent_id: str) -> str:
    """A run that was accepted, however often it takes to ask."""
    key = {"Idempotency-Key": str(uuid4())}

    def accepted() -> Any:
        reply = client.post(f"/agents/{agent_id}/runs", json={"query": "Hello"}, headers=key)
        return reply.json()["run_id"] if reply.status_code == 202 else None

    return until(accepted)


def status(client: httpx2.Client, run: str) -> str:
    return client.get(f"/runs/{run}").json()["status"]


@pytest.mark.timeout(240)
def test_killed_process_is_restarted_and_runs_continue(up: EaselUp):
    client = up.client()
    agent_id = agent(client, "support_triage.json")

    for victim in ("valkey", "worker", "postgres", "api", "scheduler", "sweeper"):
        before = until(lambda: up.children() if len(up.children()) == 6 else None)
        run = started(client, agent_id)
        assert up.kill(victim)
        after = started(client, agent_id)

        until(lambda run=run: status(client, run) == "succeeded")
        until(lambda after=after: status(client, after) == "succeeded")
        back = until(lambda: up.children() if len(up.children()) == 6 else None)
        assert {name for name in back if back[name] != before[name]} == {victim}, up.told()


@pytest.mark.timeout(240)
def test_waiting_run_is_answered_after_everything_was_killed(up: EaselUp):
    run = started(up.client(), agent(up.client(), "return_form.json"))
    until(lambda: status(up.client(), run) == "waiting")
    address = up.url

    up.kill_all()
    up.start()

    client = up.client()
    assert (up.url, status(client, run)) == (address, "waiting")
    client.post(f"/runs/{run}/resume", json={"inputs": {"order": "77", "reason": "damaged"}})
    until(lambda: status(client, run) == "succeeded")
