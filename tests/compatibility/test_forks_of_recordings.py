"""Each recorded run, forked over HTTP from each of its nodes without edits, ends as the original did."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from api.app import ApiConfig
from cli.conformance.cases import load_case
from cli.conformance.play.runner import Fixtures, run_case
from local_engine import Engine
from providers.models.chat.scripted import Script
from settings import Settings
from store.tenants import tenants
from tests.compatibility.conftest import RECORDINGS
from tests.integration.api.conftest import Server, start_server
from tests.integration.api.talking import Client

CASES = (
    "agent_search_tool",
    "categorize_exact",
    "error_node_goto",
    "iteration_nested_with_follower",
    "join_unequal_llm",
    "loop_nested",
    "mixed_six_branches_three_steps",
    "parallel_fan_4_text_join_message",
)
TIMES = ("_created_time", "_elapsed_time")
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(engine: Engine, engine_settings: Settings) -> Iterator[Server]:
    """An API on the servers of the engine."""
    with start_server(ApiConfig(engine_settings)) as server:
        yield server


@pytest.mark.parametrize("name", CASES)
def test_fork_of_a_recorded_run_from_each_node_ends_as_the_run_did(
    name: str, engine: Engine, fixtures: Fixtures, server: Server
):  # T084
    case = load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)
    run_case(engine, fixtures, case)
    tenant_id = next(reversed(fixtures.cases))
    with engine.database.transaction() as tx:
        _, token = tenants.create_token(tx, tenant_id, "forks", "api")
    client = server.client_of(tenant_id, token)
    with closing(client.http):
        source = client.http.get("/api/v1/runs?limit=10").json()["runs"][-1]["id"]
        original = result_of(client, source)
        assert original["steps"]

        for node in sorted({node for node, _ in original["steps"]}):
            fixtures.scripts[tenant_id] = Script(case.llm)  # each fork may use all rules again
            assert result_of(client, fork(client, source, node)) == original, node


def fork(client: Client, source: str, node: str) -> str:
    """Fork a run from all steps of a node; return the fork's id once it is over."""
    preview = client.http.post(f"/api/v1/runs/{source}/fork", json={"from": [node], "dry_run": True}).json()
    body = {"from": [node], "confirm_unsafe": preview["confirm"]}
    reply = client.http.post(f"/api/v1/runs/{source}/fork", json=body)
    assert reply.status_code == 202, reply.text
    run_id = reply.json()["run_id"]
    client.wait_for(run_id, "succeeded", "failed", "cancelled", "waiting")
    return run_id


def result_of(client: Client, run_id: str) -> dict[str, Any]:
    """Return what is the same in two runs that end alike: status, answer, steps by scope, and what each has stored."""
    exported = client.http.get(f"/api/v1/runs/{run_id}/export").json()
    run = client.run(run_id)
    places = {row["id"]: (row["node_id"], row["scope"]) for row in exported["activations"]}
    outcomes = Counter((*places[row["id"]], row["status"], row["outcome"]) for row in exported["activations"])
    return {
        "status": run["status"],
        "answer": run["answer"],
        "error": run["error"],
        "steps": Counter(places.values()),
        "outcomes": outcomes,
        "values": sorted((*places[row["activation_id"]], lasting(row["outputs"])) for row in exported["values"]),
    }


def lasting(outputs: Mapping[str, Any]) -> str:
    """Return outputs as text, without the times of their attempt."""
    return json.dumps({name: value for name, value in outputs.items() if name not in TIMES}, sort_keys=True)
