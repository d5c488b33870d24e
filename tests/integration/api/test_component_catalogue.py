"""The routes of the palette: components with an ETag, the same for all tenants, and the choices of a tenant."""

from typing import Any

import pytest

from store.knowledge import bases, memories
from store.mcp import servers
from store.mcp.servers import ServerFields
from store.primitives.encryption import EncryptionKey
from store.tenants import model_accounts
from store.tenants.model_accounts import AccountRow
from tests.integration.api.conftest import SECRET, Server
from tests.integration.api.talking import Client


def choices(client: Client, kind: str, **params: Any) -> list[tuple[str, str]]:
    reply = client.http.get("/api/v1/viewer/choices", params={"kind": kind, **params})
    assert reply.status_code == 200, reply.text
    assert reply.json()["more"] is False
    return [(each["value"], each["label"]) for each in reply.json()["choices"]]


def test_components_are_the_same_for_all_tenants_and_a_known_etag_gets_304(
    workerless_client: Client, workerless_server: Server
) -> None:
    first = workerless_client.http.get("/api/v1/components")
    other = workerless_server.client().http.get("/api/v1/components")
    known = workerless_client.http.get("/api/v1/components", headers={"If-None-Match": first.headers["ETag"]})

    assert first.json() == other.json()
    assert first.headers["ETag"] == other.headers["ETag"]
    assert (known.status_code, known.content) == (304, b"")
    assert {"build", "groups", "components", "tools"} == set(first.json())


def test_choices_are_those_of_the_tenant_and_found_by_words(
    workerless_client: Client, workerless_server: Server
) -> None:
    key, tenant = EncryptionKey.from_secret(SECRET), workerless_client.tenant_id
    with workerless_server.database.transaction() as tx:
        base = bases.create(tx, tenant, "Handbook", embedding_model="", parser={})
        memory = memories.create(
            tx, tenant, "Customers", types=1, embedding_model="", chat_model="", most_bytes=10_000
        ).id
        server = servers.add(tx, tenant, ServerFields("Maps", "http://127.0.0.1:1/mcp", "sse"), key)
        account = AccountRow("OpenAI", "eu", api_key="sk-secret", models={"gpt-x": {"kinds": ["chat"]}})
        model_accounts.put_account(tx, tenant, account, key)

    assert choices(workerless_client, "knowledge_base") == [(base.hex, "Handbook")]
    assert choices(workerless_client, "memory") == [(memory.hex, "Customers")]
    assert choices(workerless_client, "mcp") == [(server.hex, "Maps")]
    assert choices(workerless_client, "model", q="GPT") == [("gpt-x@eu@OpenAI", "gpt-x")]
    assert ("echo@Easel", "echo") in choices(workerless_client, "model")
    assert choices(workerless_client, "tool", q="wikip") == [("Wikipedia", "Wikipedia")]
    assert choices(workerless_client, "knowledge_base", q="nothing") == []
    stranger = workerless_server.client()
    for kind in ("knowledge_base", "memory", "mcp"):
        assert choices(stranger, kind) == []
    assert [value for value, _ in choices(stranger, "model")] == ["echo@Easel"]
    assert "sk-secret" not in workerless_client.http.get("/api/v1/viewer/choices", params={"kind": "model"}).text


@pytest.mark.parametrize("params", [{}, {"kind": "x"}, {"kind": "model", "q": "x" * 201}, {"kind": "model", "z": "1"}])
def test_invalid_choices_are_refused(workerless_client: Client, params: dict[str, str]) -> None:
    reply = workerless_client.http.get("/api/v1/viewer/choices", params=params)

    assert reply.status_code == 400
    assert set(reply.json()) == {"code", "message", "details"}
