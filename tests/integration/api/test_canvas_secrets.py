"""Keys and passwords of canvases: sealed in rows, masked in replies, kept where a document comes back as shown."""

import json
from typing import Any
from uuid import UUID

import httpx2
from sqlalchemy import text

from components import registry
from store.agents import canvases
from store.agents.canvas_secrets import PREFIX, CanvasSecrets, is_mask
from store.primitives.encryption import EncryptionKey
from tests.integration.api.conftest import Server
from tests.integration.api.talking import Client, canvas, message

KEY = "tvly-1234567890"
TOKEN = "hook-1234567890"
HELD = text("""
    select string_agg(whole, ' ') from (
        select canvases::text as whole from canvases where tenant_id = :tenant
        union all select versions::text from versions where tenant_id = :tenant
        union all select idempotency_keys::text from idempotency_keys where tenant_id = :tenant
        union all select runs::text from runs where tenant_id = :tenant
        union all select conversations::text from conversations where tenant_id = :tenant
    ) as held
""")


def searching(key: str = KEY, node: str = "TavilySearch:0") -> dict[str, Any]:
    params = {"api_key": key, "query": "{sys.query}"}
    document = canvas(
        ("begin", "Begin", {}, ["Message:0"]),
        ("Message:0", "Message", message("You said: {sys.query}"), []),
        (node, "TavilySearch", params, []),
    )
    (drawn,) = (each for each in document["graph"]["nodes"] if each["id"] == node)
    drawn["data"].update(label="TavilySearch", form=params)
    return document


def held(server: Server, client: Client) -> str:
    with server.database.transaction() as tx:
        return tx.scalar(HELD, tenant=client.tenant_id)


def shown(client: Client, agent: str) -> dict[str, Any]:
    return client.http.get(f"/api/v1/agents/{agent}").json()["data"]["dsl"]


def key_in(document: dict[str, Any], node: str = "TavilySearch:0") -> str:
    return document["components"][node]["obj"]["params"]["api_key"]


def put(client: Client, agent: str, dsl: dict[str, Any]) -> dict[str, Any]:
    return client.http.put(f"/api/v1/agents/{agent}", json={"dsl": dsl}).json()


def stored_key(server: Server, client: Client, agent: str, node: str = "TavilySearch:0") -> Any:
    """What a worker would open."""
    with server.database.transaction() as tx:
        stored = canvases.get(tx, client.tenant_id, UUID(agent))
    return key_in(opened(server, client, agent, stored.draft), node)


def opened(server: Server, client: Client, agent: str, document: Any) -> dict[str, Any]:
    key = EncryptionKey.from_secret(server.config.settings.encryption_secret())
    return CanvasSecrets.for_canvas(key, client.tenant_id, UUID(agent), registry.secret_fields).open_document(document)


def test_a_key_of_a_tool_is_in_no_row_and_in_no_reply(server: Server, client: Client) -> None:
    body = {"title": "search", "dsl": searching()}
    created = client.http.post("/api/v1/agents", json=body, headers={"Idempotency-Key": "k"})
    agent = created.json()["data"]["id"]
    repeated = client.http.post("/api/v1/agents", json=body, headers={"Idempotency-Key": "k"})
    published = client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    session = client.http.post(f"/api/v1/agents/{agent}/sessions", json={})
    said = client.say(agent, session_id=session.json()["data"]["id"])
    version = published.json()["data"]["id"]
    replies = [
        created,
        repeated,
        published,
        session,
        client.http.get(f"/api/v1/agents/{agent}"),
        client.http.get(f"/api/v1/agents/{agent}/versions/{version}"),
        client.http.get(f"/api/v1/agents/{agent}/sessions"),
        client.http.get(f"/api/v1/agents/{agent}/sessions/{session.json()['data']['id']}"),
        client.http.post(f"/api/v1/agents/{agent}/reset"),
    ]

    assert said["data"]["data"]["content"] == "You said: hi"
    assert repeated.json() == created.json()
    for reply in replies:
        assert reply.json()["code"] == 0
        assert KEY not in reply.text
        assert PREFIX not in reply.text
    assert "••••" in replies[-1].json()["data"]["components"]["TavilySearch:0"]["obj"]["params"]["api_key"]
    assert KEY not in held(server, client)
    assert stored_key(server, client, agent) == KEY


def test_a_document_that_comes_back_as_it_was_shown_keeps_its_key_and_makes_no_version(
    server: Server, client: Client
) -> None:
    agent = client.agent(searching())

    reply = put(client, agent, shown(client, agent))

    assert reply["code"] == 0
    assert is_mask(key_in(shown(client, agent)))
    assert stored_key(server, client, agent) == KEY
    assert len(client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]) == 1


def test_a_key_that_was_typed_anew_takes_the_place_of_the_stored_one(server: Server, client: Client) -> None:
    agent = client.agent(searching())
    before = shown(client, agent)
    document = shown(client, agent)
    document["components"]["TavilySearch:0"]["obj"]["params"]["api_key"] = "tvly-new-1234567890"

    put(client, agent, document)

    assert stored_key(server, client, agent) == "tvly-new-1234567890"
    assert key_in(shown(client, agent)) != key_in(before)


def test_an_old_version_comes_back_with_its_own_key(server: Server, client: Client) -> None:
    agent = client.agent(searching())
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    put(client, agent, searching("tvly-new-1234567890"))
    old = client.http.get(f"/api/v1/agents/{agent}/versions/{version['id']}").json()["data"]["dsl"]

    reply = client.http.post(f"/api/v1/agents/{agent}/publish", json={"dsl": old}).json()

    assert reply["code"] == 0
    assert stored_key(server, client, agent) == KEY


def test_a_node_that_was_copied_takes_its_key_along(server: Server, client: Client) -> None:
    agent = client.agent(searching())
    document = shown(client, agent)
    document["components"]["TavilySearch:1"] = document["components"]["TavilySearch:0"]

    put(client, agent, document)

    assert stored_key(server, client, agent, "TavilySearch:1") == KEY


def test_a_mask_in_another_agent_is_refused_by_node_and_field(client: Client) -> None:
    agent, other = client.agent(searching()), client.agent(searching("tvly-other-1234567890"), "other")
    masked = shown(client, agent)

    created = client.http.post("/api/v1/agents", json={"title": "copy", "dsl": masked})
    updated = client.http.put(f"/api/v1/agents/{other}", json={"dsl": masked})

    for reply in (created, updated):
        assert reply.status_code == 400
        assert (
            'Node "the TavilySearch:0" (TavilySearch:0), "api_key" of TavilySearch is masked' in reply.json()["message"]
        )
    assert client.http.get("/api/v1/agents", params={"title": "copy"}).json()["data"]["total"] == 0


def test_a_key_that_was_stored_in_the_clear_is_masked_and_sealed_at_the_next_save(
    server: Server, client: Client
) -> None:
    with server.database.transaction() as tx:
        agent = canvases.create(tx, client.tenant_id, "old", searching()).hex
    assert KEY in held(server, client)
    document = shown(client, agent)

    reply = put(client, agent, document)

    assert KEY not in json.dumps(document)
    assert reply["code"] == 0
    assert stored_key(server, client, agent) == KEY
    with server.database.transaction() as tx:
        assert KEY not in json.dumps(canvases.get(tx, client.tenant_id, UUID(agent)).draft)


def test_a_webhook_compares_the_token_that_its_canvas_holds_sealed(server: Server, client: Client) -> None:
    security = {"auth_type": "token", "token": {"token_header": "X-Hook", "token_value": TOKEN}}
    document = canvas(
        ("begin", "Begin", {"mode": "Webhook", "security": security, "response": {"status": 200}}, ["Message:0"]),
        ("Message:0", "Message", message("done"), []),
    )
    agent = client.agent(document, "hook")
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    url = f"{server.url}/api/v1/agents/{agent}/webhook"
    mask = shown(client, agent)["components"]["begin"]["obj"]["params"]["security"]["token"]["token_value"]

    taken = httpx2.post(url, json={}, headers={"X-Hook": TOKEN})
    refused = [httpx2.post(url, json={}, headers={b"X-Hook": value.encode()}) for value in (mask, "wrong")]

    assert taken.status_code == 200
    assert [reply.json()["message"] for reply in refused] == ["Invalid token authentication"] * 2
    assert is_mask(mask)
    assert TOKEN not in held(server, client)


def test_a_masked_password_is_not_tried_on_a_database(client: Client) -> None:
    fields = {
        "db_type": "postgres",
        "host": "h",
        "port": 1,
        "username": "u",
        "database": "d",
        "password": "••••12345678",
    }

    reply = client.http.post("/api/v1/agents/test_db_connection", json=fields).json()

    assert (reply["code"], reply["message"]) == (101, "The password is masked. Enter it to test the connection.")


def test_another_tenant_opens_nothing_with_a_row_that_it_has_copied(server: Server, client: Client) -> None:
    agent = client.agent(searching())
    with server.database.transaction() as tx:
        stolen = key_in(dict(canvases.get(tx, client.tenant_id, UUID(agent)).draft))
    stranger = server.client()

    reply = stranger.http.post("/api/v1/agents", json={"title": "theirs", "dsl": searching(stolen)})

    assert stolen.startswith(PREFIX)
    assert reply.status_code == 400
    assert '(TavilySearch:0), "api_key" of TavilySearch begins with' in reply.json()["message"]
    stranger.http.close()
