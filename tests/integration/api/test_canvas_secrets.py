"""Keys and passwords of canvases: sealed in rows, masked in replies, unchanged when a masked document is saved."""

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
READ_STORED_ROWS = text("""
    select string_agg(whole, ' ') from (
        select canvases::text as whole from canvases where tenant_id = :tenant
        union all select versions::text from versions where tenant_id = :tenant
        union all select idempotency_keys::text from idempotency_keys where tenant_id = :tenant
        union all select runs::text from runs where tenant_id = :tenant
        union all select conversations::text from conversations where tenant_id = :tenant
    ) as held
""")


def search_canvas(key: str = KEY, node: str = "TavilySearch:0") -> dict[str, Any]:
    params = {"api_key": key, "query": "{sys.query}"}
    document = canvas(
        ("begin", "Begin", {}, ["Message:0"]),
        ("Message:0", "Message", message("You said: {sys.query}"), []),
        (node, "TavilySearch", params, []),
    )
    (graph_node,) = (each for each in document["graph"]["nodes"] if each["id"] == node)
    graph_node["data"].update(label="TavilySearch", form=params)
    return document


def read_stored_rows(server: Server, client: Client) -> str:
    with server.database.transaction() as tx:
        return tx.scalar(READ_STORED_ROWS, tenant=client.tenant_id)


def get_document(client: Client, agent: str) -> dict[str, Any]:
    return client.http.get(f"/api/v1/agents/{agent}").json()["data"]["dsl"]


def api_key_of(document: dict[str, Any], node: str = "TavilySearch:0") -> str:
    return document["components"][node]["obj"]["params"]["api_key"]


def save_draft(client: Client, agent: str, dsl: dict[str, Any]) -> dict[str, Any]:
    return client.http.put(f"/api/v1/agents/{agent}", json={"dsl": dsl}).json()


def read_stored_key(server: Server, client: Client, agent: str, node: str = "TavilySearch:0") -> Any:
    """Return the key as a worker would unseal it."""
    with server.database.transaction() as tx:
        stored = canvases.get(tx, client.tenant_id, UUID(agent))
    return api_key_of(unseal_document(server, client, agent, stored.draft), node)


def unseal_document(server: Server, client: Client, agent: str, document: Any) -> dict[str, Any]:
    key = EncryptionKey.from_secret(server.config.settings.encryption_secret())
    return CanvasSecrets.for_canvas(key, client.tenant_id, UUID(agent), registry.secret_fields).open_document(document)


def test_a_key_of_a_tool_is_in_no_row_and_in_no_reply(server: Server, client: Client) -> None:
    body = {"title": "search", "dsl": search_canvas()}
    created = client.http.post("/api/v1/agents", json=body, headers={"Idempotency-Key": "k"})
    agent = created.json()["data"]["id"]
    repeated = client.http.post("/api/v1/agents", json=body, headers={"Idempotency-Key": "k"})
    published = client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    session = client.http.post(f"/api/v1/agents/{agent}/sessions", json={})
    turn = client.chat(agent, session_id=session.json()["data"]["id"])
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

    assert turn["data"]["data"]["content"] == "You said: hi"
    assert repeated.json() == created.json()
    for reply in replies:
        assert reply.json()["code"] == 0
        assert KEY not in reply.text
        assert PREFIX not in reply.text
    assert "••••" in replies[-1].json()["data"]["components"]["TavilySearch:0"]["obj"]["params"]["api_key"]
    assert KEY not in read_stored_rows(server, client)
    assert read_stored_key(server, client, agent) == KEY


def test_saving_a_masked_document_keeps_its_key_and_creates_no_version(server: Server, client: Client) -> None:
    agent = client.agent(search_canvas())

    reply = save_draft(client, agent, get_document(client, agent))

    assert reply["code"] == 0
    assert is_mask(api_key_of(get_document(client, agent)))
    assert read_stored_key(server, client, agent) == KEY
    assert len(client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]) == 1


def test_new_key_replaces_the_stored_key(server: Server, client: Client) -> None:
    agent = client.agent(search_canvas())
    before = get_document(client, agent)
    document = get_document(client, agent)
    document["components"]["TavilySearch:0"]["obj"]["params"]["api_key"] = "tvly-new-1234567890"

    save_draft(client, agent, document)

    assert read_stored_key(server, client, agent) == "tvly-new-1234567890"
    assert api_key_of(get_document(client, agent)) != api_key_of(before)


def test_republished_old_version_has_its_own_key(server: Server, client: Client) -> None:
    agent = client.agent(search_canvas())
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    save_draft(client, agent, search_canvas("tvly-new-1234567890"))
    old = client.http.get(f"/api/v1/agents/{agent}/versions/{version['id']}").json()["data"]["dsl"]

    reply = client.http.post(f"/api/v1/agents/{agent}/publish", json={"dsl": old}).json()

    assert reply["code"] == 0
    assert read_stored_key(server, client, agent) == KEY


def test_copied_node_has_the_key_of_the_original(server: Server, client: Client) -> None:
    agent = client.agent(search_canvas())
    document = get_document(client, agent)
    document["components"]["TavilySearch:1"] = document["components"]["TavilySearch:0"]

    save_draft(client, agent, document)

    assert read_stored_key(server, client, agent, "TavilySearch:1") == KEY


def test_masked_key_in_another_agent_is_refused_with_its_node_and_field(client: Client) -> None:
    agent, other = client.agent(search_canvas()), client.agent(search_canvas("tvly-other-1234567890"), "other")
    masked = get_document(client, agent)

    created = client.http.post("/api/v1/agents", json={"title": "copy", "dsl": masked})
    updated = client.http.put(f"/api/v1/agents/{other}", json={"dsl": masked})

    for reply in (created, updated):
        assert reply.status_code == 400
        assert (
            'Node "the TavilySearch:0" (TavilySearch:0), "api_key" of TavilySearch is masked' in reply.json()["message"]
        )
    assert client.http.get("/api/v1/agents", params={"title": "copy"}).json()["data"]["total"] == 0


def test_key_stored_as_plain_text_is_masked_and_sealed_at_the_next_save(server: Server, client: Client) -> None:
    with server.database.transaction() as tx:
        agent = canvases.create(tx, client.tenant_id, "old", search_canvas()).hex
    assert KEY in read_stored_rows(server, client)
    document = get_document(client, agent)

    reply = save_draft(client, agent, document)

    assert KEY not in json.dumps(document)
    assert reply["code"] == 0
    assert read_stored_key(server, client, agent) == KEY
    with server.database.transaction() as tx:
        assert KEY not in json.dumps(canvases.get(tx, client.tenant_id, UUID(agent)).draft)


def test_webhook_checks_the_sealed_token_of_its_canvas(server: Server, client: Client) -> None:
    security = {"auth_type": "token", "token": {"token_header": "X-Hook", "token_value": TOKEN}}
    document = canvas(
        ("begin", "Begin", {"mode": "Webhook", "security": security, "response": {"status": 200}}, ["Message:0"]),
        ("Message:0", "Message", message("done"), []),
    )
    agent = client.agent(document, "hook")
    client.http.post(f"/api/v1/agents/{agent}/publish", json={})
    url = f"{server.url}/api/v1/agents/{agent}/webhook"
    mask = get_document(client, agent)["components"]["begin"]["obj"]["params"]["security"]["token"]["token_value"]

    accepted = httpx2.post(url, json={}, headers={"X-Hook": TOKEN})
    refused = [httpx2.post(url, json={}, headers={b"X-Hook": value.encode()}) for value in (mask, "wrong")]

    assert accepted.status_code == 200
    assert [reply.json()["message"] for reply in refused] == ["Invalid token authentication"] * 2
    assert is_mask(mask)
    assert TOKEN not in read_stored_rows(server, client)


def test_masked_password_is_refused_by_the_database_connection_test(client: Client) -> None:
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


def test_sealed_key_copied_by_another_tenant_is_refused(server: Server, client: Client) -> None:
    agent = client.agent(search_canvas())
    with server.database.transaction() as tx:
        copied = api_key_of(dict(canvases.get(tx, client.tenant_id, UUID(agent)).draft))
    stranger = server.client()

    reply = stranger.http.post("/api/v1/agents", json={"title": "theirs", "dsl": search_canvas(copied)})

    assert copied.startswith(PREFIX)
    assert reply.status_code == 400
    assert '(TavilySearch:0), "api_key" of TavilySearch begins with' in reply.json()["message"]
    stranger.http.close()
