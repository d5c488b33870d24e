"""Routes of callbacks, and the callbacks that the requests which start runs bring."""

import json
from typing import Any

import pytest
from sqlalchemy import select, text

from store.tables.callbacks import callbacks
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, Client

URL = "https://example.com/hook"
SECRET = "whsec_" + "QUJD" * 8  # 24 bytes
MESSAGES = [{"role": "user", "content": "x"}]
STARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "runs": ("/agents/{agent}/runs", {"query": "x"}),
    "run": ("/agents/{agent}/run", {"query": "x"}),
    "completions": ("/agents/chat/completions", {"agent_id": "{agent}", "query": "x"}),
    "of the agent": ("/agents/{agent}/completions", {"query": "x"}),
    "openai": ("/openai/agents/{agent}/chat/completions", {"messages": MESSAGES}),
    "openai by model": (
        "/openai/chat/completions",
        {"model": "{agent}", "messages": MESSAGES},
    ),
}


def create(client: Client, **body: Any) -> dict[str, Any]:
    reply = client.http.post("/api/v1/callbacks", json={"url": URL, **body})
    assert reply.status_code == 201, reply.text
    assert reply.headers["cache-control"] == "no-store"
    return reply.json()


def deliveries(client: Client, **query: str) -> list[dict[str, Any]]:
    reply = client.http.get("/api/v1/callbacks/deliveries", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()["deliveries"]


def test_callback_is_created_listed_changed_disabled_and_deleted(workerless_client: Client) -> None:
    client = workerless_client
    agent = client.agent(ECHO)
    made = create(client, agent_id=agent, events=["run.failed"], description="on call")
    other = create(client)
    place = f"/api/v1/callbacks/{made['id']}"

    listed = client.http.get("/api/v1/callbacks").json()["callbacks"]
    of_agent = client.http.get("/api/v1/callbacks", params={"agent_id": agent}).json()["callbacks"]
    changed = client.http.patch(place, json={"enabled": False, "include": ["output"]}).json()
    enabled = client.http.patch(place, json={"enabled": True, "url": URL + "/2"}).json()
    deleted = client.http.delete(place)

    secret = made.pop("secret")
    assert secret.startswith("whsec_")
    assert [each["id"] for each in listed] == [made["id"], other["id"]]
    assert of_agent == [made]
    assert (made["agent_id"], made["events"], made["description"]) == (agent, ["run.failed"], "on call")
    assert len(other["events"]) == 4
    assert (changed["enabled"], changed["disabled_because"], changed["include"]) == (False, "owner", ["output"])
    assert (enabled["enabled"], enabled["disabled_because"], enabled["url"]) == (True, None, URL + "/2")
    assert (deleted.status_code, client.http.get(place).status_code) == (204, 404)


def test_secret_is_shown_once_and_stored_encrypted(workerless_server: Server) -> None:
    client = workerless_server.client()
    made = create(client, secret=SECRET)
    rotated = client.http.post(f"/api/v1/callbacks/{made['id']}/rotate", json={}).json()

    assert made["secret"] == SECRET
    assert rotated["secret"] not in (SECRET, "")
    assert rotated["former_secret_until"] is not None
    assert "secret" not in client.http.get(f"/api/v1/callbacks/{made['id']}").json()
    with workerless_server.database.transaction() as tx:
        rows = tx.rows(text("select cast(c as text) from callbacks c where tenant_id = :of"), of=client.tenant_id)
    stored = json.dumps([row[0] for row in rows])
    assert SECRET.encode().hex() not in stored
    assert SECRET not in stored


def test_repeat_of_a_creation_gets_the_same_secret(workerless_client: Client) -> None:
    key = {"Idempotency-Key": "once"}

    replies = [workerless_client.http.post("/api/v1/callbacks", json={"url": URL}, headers=key) for _ in range(2)]

    assert replies[0].json() == replies[1].json()
    assert replies[0].json()["secret"].startswith("whsec_")
    assert len(workerless_client.http.get("/api/v1/callbacks").json()["callbacks"]) == 1


def test_secret_of_the_tenant_is_the_same_until_it_is_replaced(workerless_client: Client) -> None:
    first = workerless_client.http.get("/api/v1/callbacks/secret").json()["secret"]
    again = workerless_client.http.get("/api/v1/callbacks/secret").json()["secret"]
    rotated = workerless_client.http.post("/api/v1/callbacks/secret/rotate", json={}).json()["secret"]

    assert first == again != rotated == workerless_client.http.get("/api/v1/callbacks/secret").json()["secret"]


@pytest.mark.parametrize(
    ("body", "field", "remedy"),
    [
        ({"url": "http://example.com"}, "url", "SSRF_ALLOW"),
        ({"url": "https://10.0.0.1/x"}, "url", "SSRF_ALLOW"),
        ({"url": "https://localhost/x"}, "url", "SSRF_ALLOW"),
        ({"url": "https://user:pass@example.com"}, "url", "Remove it"),
        ({"url": "example.com/hook"}, "url", "https"),
        ({"url": None}, "url", "https"),
        ({"events": ["run.done"]}, "events", "run.succeeded"),
        ({"events": []}, "events", "Name an event"),
        ({"include": ["input"]}, "include", "output"),
        ({"secret": "whsec_c2hvcnQ="}, "secret", "24 to 64"),
    ],
)
def test_invalid_callback_is_refused_with_its_field_and_a_remedy(
    workerless_client: Client, body: dict[str, Any], field: str, remedy: str
) -> None:
    reply = workerless_client.http.post("/api/v1/callbacks", json={"url": URL, **body})

    assert reply.status_code == 400
    assert f"`{field}`" in reply.json()["message"]
    assert remedy in reply.json()["message"]
    assert "pass" not in reply.json()["message"].replace("password", "")


@pytest.mark.parametrize(("path", "body"), STARTS.values(), ids=STARTS)
def test_every_start_of_a_run_takes_callbacks(server: Server, path: str, body: dict[str, Any]) -> None:
    client = server.client()
    agent = client.agent(ECHO)
    stored = create(client)
    given = [{"url": URL, "events": ["run.succeeded"], "secret": SECRET}, {"id": stored["id"]}]
    filled = json.loads(json.dumps(body).replace("{agent}", agent))

    reply = client.http.post(f"/api/v1{path.format(agent=agent)}", json={**filled, "callbacks": given})

    assert reply.status_code in (200, 202), reply.text
    client.wait_for(reply.headers["x-run-id"], "succeeded")
    found = deliveries(client, run_id=reply.headers["x-run-id"])
    assert [each["event"] for each in found] == ["run.succeeded"] * 2
    assert stored["id"] in {each["callback_id"] for each in found}
    with server.database.transaction() as tx:
        row = tx.rows(select(callbacks).where(callbacks.c.tenant_id == client.tenant_id, callbacks.c.url == URL))
    assert all(each.sealed_secret is not None and SECRET.encode() not in each.sealed_secret for each in row)


def test_reruns_and_forks_take_callbacks(server: Server) -> None:
    client = server.client()
    run = client.start(client.agent(ECHO))["run_id"]
    client.wait_for(run, "succeeded")

    for kind, body in (("rerun", {}), ("fork", {"from": ["Message:0"]})):
        reply = client.http.post(f"/api/v1/runs/{run}/{kind}", json={**body, "callbacks": [{"url": URL}]})
        assert reply.status_code == 202, reply.text
        client.wait_for(reply.json()["run_id"], "succeeded")
        assert len(deliveries(client, run_id=reply.json()["run_id"])) == 1


def test_run_of_one_node_alone_is_not_told_to_the_callbacks_of_its_agent(server: Server) -> None:
    client = server.client()
    agent = client.agent(ECHO)
    create(client, agent_id=agent)

    reply = client.http.post(f"/api/v1/agents/{agent}/components/Message:0/debug", json={"params": {}})
    run = client.start(agent)["run_id"]
    client.wait_for(run, "succeeded")

    assert reply.status_code == 200, reply.text
    assert [each["run_id"] for each in deliveries(client)] == [run]


def test_agent_callback_that_is_created_while_a_run_waits_is_told_of_its_end(server: Server) -> None:
    client = server.client()
    agent = client.agent(FORM)
    run = client.start(agent)["run_id"]
    client.wait_for(run, "waiting")

    create(client, agent_id=agent)
    client.http.post(f"/api/v1/runs/{run}/resume", json={"inputs": {"name": "Ada"}})
    client.wait_for(run, "succeeded")

    assert [each["event"] for each in deliveries(client)] == ["run.succeeded"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"url": "http://example.com"}, "callbacks[0].url"),
        ({"url": URL, "event": ["run.failed"]}, "callbacks[0].event"),
        ({"events": ["run.failed"]}, "callbacks[0].url"),
        ({"id": "0" * 32}, "callbacks[0].id"),
        ({"id": "0" * 32, "url": URL}, "callbacks[0].url"),
        ({"url": URL, "secret": "short"}, "callbacks[0].secret"),
    ],
)
def test_start_with_an_invalid_callback_is_refused_and_names_the_field(
    workerless_client: Client, given: dict[str, Any], field: str
) -> None:
    agent = workerless_client.agent(ECHO)

    reply = workerless_client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "x", "callbacks": [given]})

    assert reply.status_code == (404 if field.endswith("id") else 400)
    assert f"`{field}`" in reply.json()["message"]
    assert workerless_client.http.get("/api/v1/runs").json()["total"] == 0


def test_stored_callback_of_another_tenant_cannot_be_named(workerless_server: Server) -> None:
    theirs = create(workerless_server.client())
    client = workerless_server.client()
    agent = client.agent(ECHO)

    reply = client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "x", "callbacks": [{"id": theirs["id"]}]})
    of_their_agent = client.http.post(
        "/api/v1/callbacks", json={"url": URL, "agent_id": workerless_server.client().agent(ECHO)}
    )

    assert (reply.status_code, of_their_agent.status_code) == (404, 404)


def test_share_link_brings_no_callbacks(workerless_server: Server) -> None:
    owner = workerless_server.client()
    agent = owner.agent(ECHO)
    owner.http.post(f"/api/v1/agents/{agent}/publish", json={})
    guest = workerless_server.guest(owner, agent)

    body = {"query": "x", "callbacks": [{"url": URL}]}
    reply = guest.http.post(f"/api/v1/agentbots/{agent}/completions", json=body)

    assert "callbacks" in reply.text
    assert owner.http.get("/api/v1/runs").json()["total"] == 0


def test_test_event_and_replay_are_deliveries(workerless_client: Client) -> None:
    made = create(workerless_client)

    tested = workerless_client.http.post(f"/api/v1/callbacks/{made['id']}/test", json={})
    place = f"/api/v1/callbacks/deliveries/{tested.json()['id']}"
    replayed = workerless_client.http.post(f"{place}/replay", json={})

    assert (tested.status_code, replayed.status_code) == (202, 202)
    assert tested.json()["event"] == "callback.test"
    assert workerless_client.http.get(place).json() == replayed.json()
    assert [each["id"] for each in deliveries(workerless_client, status="pending")] == [tested.json()["id"]]
    assert deliveries(workerless_client, status="dead") == []
    assert deliveries(workerless_client, callback_id=made["id"]) != []
    wrong = workerless_client.http.get("/api/v1/callbacks/deliveries", params={"status": "failed"})
    assert (wrong.status_code, "dead" in wrong.json()["message"]) == (400, True)
