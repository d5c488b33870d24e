"""`easel up` survives the kill of any of its processes, and its runs survive its own."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.faults.easel_up import EaselUp, data_of, easel_up
from tests.faults.outside import external_services

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT = 60.0  # seconds for anything that must happen
RETRYABLE_ERRORS = (httpx2.TransportError, KeyError, ValueError)  # of requests while the API or its database is down


@pytest.fixture(scope="module")
def up() -> Iterator[EaselUp]:
    with external_services() as external, easel_up(external) as up:
        yield up


def wait_until(fact: Callable[[], Any]) -> Any:
    """Wait for a fact, with a deadline; failed requests are repeated."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            if found := fact():
                return found
        except RETRYABLE_ERRORS:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.1)


def create_agent(client: httpx2.Client, example: str) -> str:
    document = json.loads((EXAMPLES / example).read_text())
    body = {"title": f"{example} {uuid4()}", "dsl": document.get("dsl", document)}
    return data_of(client.post("/agents", json=body))["id"]


def start_run(client: httpx2.Client, agent_id: str) -> str:
    """Start a run, with repeated requests until it is accepted; return its id."""
    key = {"Idempotency-Key": str(uuid4())}

    def accepted() -> Any:
        reply = client.post(f"/agents/{agent_id}/runs", json={"query": "Hello"}, headers=key)
        return reply.json()["run_id"] if reply.status_code == 202 else None

    return wait_until(accepted)


def status(client: httpx2.Client, run: str) -> str:
    return client.get(f"/runs/{run}").json()["status"]


@pytest.mark.timeout(240)
def test_killed_process_is_restarted_and_runs_continue(up: EaselUp):
    client = up.client()
    agent_id = create_agent(client, "support_triage.json")

    for victim in ("valkey", "worker", "postgres", "api", "scheduler", "sweeper"):
        before = wait_until(lambda: up.children() if len(up.children()) == 6 else None)
        run = start_run(client, agent_id)
        assert up.kill(victim)
        after = start_run(client, agent_id)

        wait_until(lambda run=run: status(client, run) == "succeeded")
        wait_until(lambda after=after: status(client, after) == "succeeded")
        restarted = wait_until(lambda: up.children() if len(up.children()) == 6 else None)
        assert {name for name in restarted if restarted[name] != before[name]} == {victim}, up.log_tail()


@pytest.mark.timeout(240)
def test_waiting_run_is_answered_after_everything_was_killed(up: EaselUp):
    run = start_run(up.client(), create_agent(up.client(), "return_form.json"))
    wait_until(lambda: status(up.client(), run) == "waiting")
    address = up.url

    up.kill_all()
    up.start()

    client = up.client()
    assert (up.url, status(client, run)) == (address, "waiting")
    client.post(f"/runs/{run}/resume", json={"inputs": {"order": "77", "reason": "damaged"}})
    wait_until(lambda: status(client, run) == "succeeded")
