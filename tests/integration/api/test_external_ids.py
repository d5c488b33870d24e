"""Runs that other services have started, over HTTP: found under their ids, and refused starts shown like runs."""

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
MOST = 1024 * 1024


def send(server: Server, *args: Any, **options: Any) -> None:
    """Carry out a message of another service as a scheduler does."""
    bus = Bus(server.redis_url)
    coordinator = Coordinator(server.database, Dispatch(make_app(server.redis_url), bus), VersionCache())
    start_messages.carry_out(Lifecycle(coordinator), parse_message(args, options), MOST)
    bus.close()


@pytest.mark.parametrize("written", [V4, UUID(V4).hex, "order-4711", "Auftrag 7 (Köln)"])
def test_every_route_of_a_run_takes_its_external_id(server: Server, client: Client, written: str):
    agent = client.agent(FORM)
    send(server, client.tenant_id.hex, written, agent, query="Hello")
    path = f"/api/v1/runs/{quote(written)}"
    waiting = client.until(quote(written), "waiting")

    run_id = waiting["id"]
    assert waiting["external_id"] == written
    assert client.http.get(f"{path}/explain").json()["run_id"] == run_id
    assert client.http.get(f"{path}/events").json()["status"] == "waiting"
    streamed = client.http.get(f"{path}/events", headers={"Accept": "text/event-stream"})
    assert "user_inputs" in streamed.text
    assert client.http.get(f"/api/v1/agents/{quote(written)}/logs/{waiting['message_id']}").json()["code"] == 0
    budget = {"scope": "run", "id": written, "tokens": 1000}
    assert client.http.put("/api/v1/budgets", json=budget).status_code == 200
    assert client.http.delete("/api/v1/budgets", params={"scope": "run", "id": written}).status_code == 200
    (listed,) = client.http.get("/api/v1/runs", params={"external_id": written}).json()["runs"]
    assert (listed["id"], listed["external_id"]) == (run_id, written)
    answered = client.http.post(f"{path}/resume", json={"inputs": {"name": "Ada"}})
    assert (answered.status_code, answered.json()["run_id"]) == (202, run_id)
    client.until(quote(written), "succeeded")


@pytest.mark.parametrize("route", ["run", "task", "patch", "agent"])
def test_every_cancel_takes_an_external_id(lonely_server: Server, lonely: Client, route: str):
    agent = lonely.agent(ECHO)
    send(lonely_server, lonely.tenant_id.hex, "order-4711", agent)
    match route:
        case "run":
            reply = lonely.http.post("/api/v1/runs/order-4711/cancel")
        case "task":
            reply = lonely.http.post("/api/v1/tasks/order-4711/cancel")
        case "patch":
            reply = lonely.http.patch("/api/v1/tasks/order-4711", json={"action": "stop"})
        case _:
            reply = lonely.http.post(f"/api/v1/agents/{agent}/cancel", json={"run_id": "order-4711"})

    assert reply.status_code == 200
    assert lonely.run("order-4711")["status"] == "cancelled"


def test_cancelling_an_agent_leaves_the_external_ids_of_other_agents_alone(lonely_server: Server, lonely: Client):
    agent, other = lonely.agent(ECHO, "one"), lonely.agent(ECHO, "other")
    send(lonely_server, lonely.tenant_id.hex, "order-4711", agent)

    reply = lonely.http.post(f"/api/v1/agents/{other}/cancel", json={"run_id": "order-4711"})

    assert reply.json()["code"] == 0
    assert lonely.run("order-4711")["status"] == "running"


def test_an_external_id_with_a_slash_is_found_by_the_filter_of_the_list(lonely_server: Server, lonely: Client):
    agent = lonely.agent(ECHO)
    send(lonely_server, lonely.tenant_id.hex, "orders/2026/4711", agent)
    send(lonely_server, lonely.tenant_id.hex, "other", agent)

    found = lonely.http.get("/api/v1/runs", params={"external_id": "orders/2026/4711"}).json()

    assert [run["external_id"] for run in found["runs"]] == ["orders/2026/4711"]
    assert lonely.http.get("/api/v1/runs", params={"external_id": "nothing"}).json() == {"runs": [], "total": 0}


def test_the_id_of_another_tenant_looks_like_none(lonely_server: Server, lonely: Client):
    other = lonely_server.client()
    agent = lonely.agent(ECHO)
    send(lonely_server, lonely.tenant_id.hex, "order-4711", agent)
    run_id = lonely.run("order-4711")["id"]

    for written in ("order-4711", run_id):
        assert other.http.get(f"/api/v1/runs/{written}").status_code == 404
        assert other.http.post(f"/api/v1/runs/{written}/cancel").status_code == 404
        assert other.http.get(f"/api/v1/runs/{written}/events").status_code == 404
    other.http.close()


@pytest.mark.parametrize("written", ["nothing", "x" * 300, "a%00b", "%ED%A0%80", V4])
def test_an_id_that_nobody_has_is_a_404(lonely: Client, written: str):
    for path in ("", "/explain", "/events"):
        assert lonely.http.get(f"/api/v1/runs/{written}{path}").status_code == 404


def test_a_refused_start_is_shown_like_a_run_with_its_reason(lonely_server: Server, lonely: Client):
    agent = lonely.agent(ECHO)
    send(lonely_server, lonely.tenant_id.hex, "order-4711", agent, qurey="Hello")
    send(lonely_server, lonely.tenant_id.hex, "order-4712", "My agent", query="Hello")
    send(lonely_server, lonely.tenant_id.hex, "order-4713", agent, query="Hello")

    run = lonely.run("order-4711")
    assert (run["status"], run["external_id"], run["agent_id"]) == ("refused", "order-4711", agent)
    assert 'Did you mean "query"?' in run["error"]
    assert (run["version_id"], run["session_id"], run["message_id"], run["activations"]) == (None, None, None, [])
    assert (run["activation_count"], run["activations_truncated"]) == (0, False)
    assert run["finished_at"] is not None
    assert lonely.run("order-4712")["agent_id"] is None
    assert lonely.run("order-4712")["request"]["query"] == "Hello"
    listed = lonely.http.get("/api/v1/runs").json()
    assert [row["external_id"] for row in listed["runs"]] == ["order-4713", "order-4712", "order-4711"]
    filtered = lonely.http.get("/api/v1/runs", params={"status": "refused"}).json()
    assert [row["external_id"] for row in filtered["runs"]] == ["order-4712", "order-4711"]
    assert lonely.http.get("/api/v1/runs", params={"agent_id": agent, "status": "refused"}).json()["total"] == 1


def test_what_asks_for_more_of_a_refused_start_gets_an_answer(lonely_server: Server, lonely: Client):
    agent = lonely.agent(ECHO)
    send(lonely_server, lonely.tenant_id.hex, "order-4711", agent, qurey="Hello")
    path = "/api/v1/runs/order-4711"

    explained = lonely.http.get(f"{path}/explain").json()
    assert explained["sentence"].startswith("The start was refused, and no node has run: There is no option")
    assert lonely.http.get(f"{path}/events").json()["events"] == []
    streamed = lonely.http.get(f"{path}/events", headers={"Accept": "text/event-stream"})
    assert '"code":500,"message":"There is no option' in streamed.text
    assert lonely.http.post(f"{path}/cancel").json()["status"] == "refused"
    assert lonely.http.post(f"{path}/resume", json={"query": "Hello"}).status_code == 409
