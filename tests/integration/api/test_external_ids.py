"""Runs that other services started: found by their external ids; refused starts are shown like runs."""

from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest

from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle import start_messages
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.lifecycle.start_messages import parse_message
from scheduler.messaging.celery_app import make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, Client

V4 = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
MAX_BYTES = 1024 * 1024


def send(server: Server, *args: Any, **options: Any) -> None:
    """Process a start message of another service, as a scheduler does."""
    bus = Bus(server.redis_url)
    coordinator = Coordinator(server.database, Dispatch(make_app(server.redis_url), bus), VersionCache())
    start_messages.carry_out(Lifecycle(coordinator), parse_message(args, options), MAX_BYTES)
    bus.close()


@pytest.mark.parametrize("external_id", [V4, UUID(V4).hex, "order-4711", "Auftrag 7 (Köln)"])
def test_every_route_of_a_run_accepts_its_external_id(server: Server, client: Client, external_id: str):
    agent = client.agent(FORM)
    send(server, client.tenant_id.hex, external_id, agent, query="Hello")
    path = f"/api/v1/runs/{quote(external_id)}"
    waiting = client.wait_for(quote(external_id), "waiting")

    run_id = waiting["id"]
    assert waiting["external_id"] == external_id
    assert client.http.get(f"{path}/explain").json()["run_id"] == run_id
    assert client.http.get(f"{path}/events").json()["status"] == "waiting"
    streamed = client.http.get(f"{path}/events", headers={"Accept": "text/event-stream"})
    assert "user_inputs" in streamed.text
    assert client.http.get(f"/api/v1/agents/{quote(external_id)}/logs/{waiting['message_id']}").json()["code"] == 0
    budget = {"scope": "run", "id": external_id, "tokens": 1000}
    assert client.http.put("/api/v1/budgets", json=budget).status_code == 200
    assert client.http.delete("/api/v1/budgets", params={"scope": "run", "id": external_id}).status_code == 200
    (listed,) = client.http.get("/api/v1/runs", params={"external_id": external_id}).json()["runs"]
    assert (listed["id"], listed["external_id"]) == (run_id, external_id)
    answered = client.http.post(f"{path}/resume", json={"inputs": {"name": "Ada"}})
    assert (answered.status_code, answered.json()["run_id"]) == (202, run_id)
    client.wait_for(quote(external_id), "succeeded")


@pytest.mark.parametrize("route", ["run", "task", "patch", "agent"])
def test_every_cancel_route_accepts_an_external_id(workerless_server: Server, workerless_client: Client, route: str):
    agent = workerless_client.agent(ECHO)
    send(workerless_server, workerless_client.tenant_id.hex, "order-4711", agent)
    match route:
        case "run":
            reply = workerless_client.http.post("/api/v1/runs/order-4711/cancel")
        case "task":
            reply = workerless_client.http.post("/api/v1/tasks/order-4711/cancel")
        case "patch":
            reply = workerless_client.http.patch("/api/v1/tasks/order-4711", json={"action": "stop"})
        case _:
            reply = workerless_client.http.post(f"/api/v1/agents/{agent}/cancel", json={"run_id": "order-4711"})

    assert reply.status_code == 200
    assert workerless_client.run("order-4711")["status"] == "cancelled"


def test_cancelling_an_agent_does_not_cancel_external_ids_of_other_agents(
    workerless_server: Server, workerless_client: Client
):
    agent, other = workerless_client.agent(ECHO, "one"), workerless_client.agent(ECHO, "other")
    send(workerless_server, workerless_client.tenant_id.hex, "order-4711", agent)

    reply = workerless_client.http.post(f"/api/v1/agents/{other}/cancel", json={"run_id": "order-4711"})

    assert reply.json()["code"] == 0
    assert workerless_client.run("order-4711")["status"] == "running"


def test_an_external_id_with_a_slash_is_found_by_the_filter_of_the_list(
    workerless_server: Server, workerless_client: Client
):
    agent = workerless_client.agent(ECHO)
    send(workerless_server, workerless_client.tenant_id.hex, "orders/2026/4711", agent)
    send(workerless_server, workerless_client.tenant_id.hex, "other", agent)

    page = workerless_client.http.get("/api/v1/runs", params={"external_id": "orders/2026/4711"}).json()

    assert [run["external_id"] for run in page["runs"]] == ["orders/2026/4711"]
    assert workerless_client.http.get("/api/v1/runs", params={"external_id": "nothing"}).json() == {
        "runs": [],
        "total": 0,
    }


def test_run_id_of_another_tenant_is_not_found(workerless_server: Server, workerless_client: Client):
    other = workerless_server.client()
    agent = workerless_client.agent(ECHO)
    send(workerless_server, workerless_client.tenant_id.hex, "order-4711", agent)
    run_id = workerless_client.run("order-4711")["id"]

    for either_id in ("order-4711", run_id):
        assert other.http.get(f"/api/v1/runs/{either_id}").status_code == 404
        assert other.http.post(f"/api/v1/runs/{either_id}/cancel").status_code == 404
        assert other.http.get(f"/api/v1/runs/{either_id}/events").status_code == 404
    other.http.close()


@pytest.mark.parametrize("unknown_id", ["nothing", "x" * 300, "a%00b", "%ED%A0%80", V4])
def test_unknown_run_id_is_not_found(workerless_client: Client, unknown_id: str):
    for path in ("", "/explain", "/events"):
        assert workerless_client.http.get(f"/api/v1/runs/{unknown_id}{path}").status_code == 404


def test_a_refused_start_is_shown_like_a_run_with_its_reason(workerless_server: Server, workerless_client: Client):
    agent = workerless_client.agent(ECHO)
    send(workerless_server, workerless_client.tenant_id.hex, "order-4711", agent, qurey="Hello")
    send(workerless_server, workerless_client.tenant_id.hex, "order-4712", "My agent", query="Hello")
    send(workerless_server, workerless_client.tenant_id.hex, "order-4713", agent, query="Hello")

    run = workerless_client.run("order-4711")
    assert (run["status"], run["external_id"], run["agent_id"]) == ("refused", "order-4711", agent)
    assert 'Did you mean "query"?' in run["error"]
    assert (run["version_id"], run["session_id"], run["message_id"], run["activations"]) == (None, None, None, [])
    assert (run["activation_count"], run["activations_truncated"]) == (0, False)
    assert run["finished_at"] is not None
    assert workerless_client.run("order-4712")["agent_id"] is None
    assert workerless_client.run("order-4712")["request"]["query"] == "Hello"
    listed = workerless_client.http.get("/api/v1/runs").json()
    assert [row["external_id"] for row in listed["runs"]] == ["order-4713", "order-4712", "order-4711"]
    filtered = workerless_client.http.get("/api/v1/runs", params={"status": "refused"}).json()
    assert [row["external_id"] for row in filtered["runs"]] == ["order-4712", "order-4711"]
    assert (
        workerless_client.http.get("/api/v1/runs", params={"agent_id": agent, "status": "refused"}).json()["total"] == 1
    )


def test_refused_start_can_be_explained_and_streamed_and_not_resumed(
    workerless_server: Server, workerless_client: Client
):
    agent = workerless_client.agent(ECHO)
    send(workerless_server, workerless_client.tenant_id.hex, "order-4711", agent, qurey="Hello")
    path = "/api/v1/runs/order-4711"

    explained = workerless_client.http.get(f"{path}/explain").json()
    assert explained["sentence"].startswith("The start was refused, and no node has run: There is no option")
    assert workerless_client.http.get(f"{path}/events").json()["events"] == []
    streamed = workerless_client.http.get(f"{path}/events", headers={"Accept": "text/event-stream"})
    assert '"code":500,"message":"There is no option' in streamed.text
    assert workerless_client.http.post(f"{path}/cancel").json()["status"] == "refused"
    assert workerless_client.http.post(f"{path}/resume", json={"query": "Hello"}).status_code == 409
