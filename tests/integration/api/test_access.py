"""Who may ask: nobody without a token, and never about what is somebody else's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.app import create_app
from store.files.blobs import LocalBlobs
from store.knowledge import bases, documents, memories, memory_messages
from store.knowledge.memory_messages import ANY_SCOPE, NewMessage
from store.mcp import servers
from store.mcp.servers import ServerFields
from store.primitives.encryption import EncryptionKey
from store.tenants import tenants, uploads
from tests.integration.api.conftest import NO_TLS, SECRET, Server, config_of
from tests.integration.api.talking import ECHO, Client

OPEN = {"/healthz", "/readyz", "/api/v1/agents/{agent_id}/webhook"}  # a webhook has locks of its own
OF_SHARE_LINKS = {
    "GET /api/v1/agentbots/{agent_id}/inputs",
    "GET /api/v1/agentbots/{agent_id}/logs/{message_id}",
    "GET /api/v1/agents/attachments/{attachment_id}/download",
    "GET /api/v1/document/download/{attachment_id}",
    "GET /api/v1/documents/artifact/{name}",
    "GET /api/v1/openai/agents/{agent_id}/models",
    "GET /api/v1/openai/agents/{agent_id}/models/{model}",
    "GET /api/v1/openai/models",
    "GET /api/v1/openai/models/{model}",
    "GET /v1/document/download/{attachment_id}",
    "POST /api/v1/agentbots/{agent_id}/completions",
    "POST /api/v1/agents/{agent_id}/upload",
    "POST /api/v1/openai/agents/{agent_id}/chat/completions",
    "POST /api/v1/openai/chat/completions",
}
BODIES = {  # enough of a body for the route to look at the ids in it
    "/api/v1/agents/chat/completions": {"agent_id": "{agent_id}", "query": "x"},
    "/api/v1/openai/chat/completions": {"model": "{agent_id}", "messages": [{"role": "user", "content": "x"}]},
    "/api/v1/openai/agents/{agent_id}/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/api/v1/agents_openai/{agent_id}/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/api/v1/agentbots/{agent_id}/completions": {"query": "x"},
    "/api/v1/agents/{agent_id}/run": {"query": "x"},
    "/api/v1/agents/{agent_id}/tags": {"tags": ["x"]},
    "/api/v1/tasks/{task_id}": {"action": "stop"},
    "/api/v1/agents": {"title": "x"},
    "/api/v1/datasets": {"ids": ["{dataset_id}"]},
    "/api/v1/datasets/{dataset_id}/documents": {"ids": ["{document_id}"]},
    "/api/v1/datasets/{dataset_id}/chunks": {"document_ids": ["{document_id}"]},
    "/api/v1/retrieval": {"dataset_ids": ["{dataset_id}"], "question": "x"},
    "/api/v1/mcp/servers/list_tools": {"mcp_ids": ["{server_id}"]},
    "/api/v1/mcp/servers/test_tool": {"mcp_id": "{server_id}", "tool_name": "x"},
    "/api/v1/budgets": {"scope": "run", "id": "{run_id}", "tokens": 5},
    "/api/v1/messages": {"memory_id": ["{memory_id}"], "user_input": "x"},
    "/api/v1/messages/{message_key}": {"status": False},
}


def routes() -> list[tuple[str, str]]:
    """Every method and path there is."""
    app = create_app(config_of("postgresql+psycopg://nowhere/x", "redis://nowhere"))
    paths: dict[str, Any] = app.openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods if path not in OPEN]


@pytest.fixture(scope="module")
def nobody(lonely_server: Server) -> Iterator[httpx2.Client]:
    """Somebody without a token."""
    with httpx2.Client(base_url=lonely_server.url, verify=NO_TLS) as client:
        yield client


@pytest.mark.parametrize(("method", "path"), routes())
@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer easel_nobody", "easel_nobody", "Basic eDp5"])
def test_every_route_refuses_whom_we_do_not_know(
    nobody: httpx2.Client, method: str, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}

    reply = nobody.request(method, re.sub(r"{\w+}", "0" * 32, path), headers=headers)

    assert reply.status_code == 401
    told = reply.json()
    assert told.get("error", told)["message"] == "Authorization is not valid!"
    assert told.get("error", told)["code"] == ("invalid_api_key" if "openai" in path else code_of(path))


def code_of(path: str) -> int | str:
    """The code of a 401: RAGFlow's, or ours on our own routes."""
    return "unauthorized" if re.match(r"/api/v1/(runs|budgets|agents/{agent_id}/runs)", path) else 401


@pytest.mark.parametrize(("method", "path"), [route for route in routes() if "{" in route[1] or route[1] in BODIES])
def test_ids_of_others_are_answered_like_ids_of_nobody(
    lonely_server: Server, tmp_path: Path, method: str, path: str
) -> None:
    owner, stranger = lonely_server.client(), lonely_server.client()
    agent = owner.agent(ECHO)
    run = owner.start(agent)
    (version,) = owner.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    with lonely_server.database.transaction() as tx:
        fields = ServerFields("theirs", "http://127.0.0.1:1/mcp", "sse")
        server = servers.add(tx, owner.tenant_id, fields, EncryptionKey.from_secret(SECRET))
        file = uploads.register(
            tx, owner.tenant_id, uploads.store_content(LocalBlobs(tmp_path), "a.txt", "text/plain", b"a")
        )
        base = bases.create(tx, owner.tenant_id, "x", embedding_model="echo", parser={})
        document, _ = documents.add(tx, owner.tenant_id, base, "a.txt", "text/plain", 1, b"a" * 32)
        memory = memories.create(
            tx, owner.tenant_id, "x", types=1, embedding_model="", chat_model="", most_bytes=10_000
        )
        memory_messages.save_message(tx, memory, NewMessage(1, "x", b""), ANY_SCOPE)
    theirs = {
        "agent_id": agent,
        "component_id": "begin",
        "attachment_id": file.id.hex,
        "dataset_id": base.hex,
        "document_id": document.id.hex,
        "message_key": f"{memory.id.hex}:1",  # before the id that is in it
        "memory_id": memory.id.hex,
        "message_id": run["message_id"],
        "model": agent,
        "name": f"{file.id.hex}.txt",
        "run_id": run["run_id"],
        "server_id": server.hex,
        "session_id": run["session_id"],
        "task_id": run["run_id"],
        "version_id": version["id"],
    }
    unknown = dict.fromkeys(theirs, "0" * 31 + "7")

    def ask(ids: dict[str, str]) -> tuple[int, str]:
        body = {name: filled(value, ids) for name, value in BODIES.get(path, {}).items()}
        reply = stranger.http.request(method, path.format(**ids), json=body)
        told = reply.text
        for value in ids.values():
            told = told.replace(value, "<id>")
        return reply.status_code, told

    assert ask(theirs) == ask(unknown)
    assert [row["run"] for row in documents_of(owner, base.hex)] == ["UNSTART"]
    params = {"memory_id": memory.id.hex}
    (message,) = owner.http.get("/api/v1/messages", params=params).json()["data"]
    assert (message["status"], message["forget_at"]) == (True, None)
    assert owner.run(run["run_id"])["status"] == "running"
    assert owner.http.get(f"/api/v1/agents/{agent}/sessions/{run['session_id']}").json()["code"] == 0


@pytest.mark.parametrize(("method", "path"), routes())
def test_a_share_link_opens_the_routes_of_share_links_alone(
    lonely_server: Server, method: str, path: str, lonely: Client
) -> None:
    guest = lonely_server.guest(lonely, lonely.agent(ECHO))

    reply = guest.http.request(method, re.sub(r"{\w+}", "0" * 32, path), json=BODIES.get(path))
    guest.http.close()

    assert (reply.status_code != 401) == (f"{method} {path}" in OF_SHARE_LINKS)


def filled(value: Any, ids: dict[str, str]) -> Any:
    """A value of a body with the ids in the texts that are in it, at the top or in a list."""
    if isinstance(value, list):
        return [filled(each, ids) if isinstance(each, str) else each for each in value]
    return value.format(**ids) if isinstance(value, str) else value


def documents_of(owner: Client, base: str) -> list[dict[str, Any]]:
    return owner.http.get(f"/api/v1/datasets/{base}/documents").json()["data"]["docs"]


def test_lists_show_what_is_the_callers(lonely: Client, lonely_server: Server) -> None:
    stranger = lonely_server.client()
    agent = stranger.agent(ECHO)
    stranger.start(agent)

    stranger.http.post("/api/v1/datasets", json={"name": "Theirs"})

    assert lonely.http.get("/api/v1/agents").json()["data"]["total"] == 0
    assert lonely.http.get("/api/v1/datasets").json()["data"] == []
    assert lonely.http.get("/api/v1/datasets", params={"name": "Theirs"}).json()["code"] == 102
    stranger.http.post("/api/v1/memories", json={"name": "Theirs"})
    assert lonely.http.get("/api/v1/memories").json()["data"] == {"memory_list": [], "total_count": 0}
    for path in ("/api/v1/messages", "/api/v1/messages/search"):
        reply = lonely.http.get(path, params={"memory_id": "Theirs"}).json()
        assert (reply["code"], reply["message"]) == (102, "Memory ['Theirs'] not found.")
    assert lonely.http.get("/api/v1/runs").json()["total"] == 0
    assert lonely.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 0


def test_the_bare_token_will_do_and_a_revoked_one_will_not(lonely: Client, lonely_server: Server) -> None:
    url = f"{lonely_server.url}/api/v1/agents"
    headers = {"Authorization": lonely.token}
    bare = httpx2.get(url, headers=headers)

    with lonely_server.database.transaction() as tx:
        for token in tenants.list_tokens(tx, lonely.tenant_id):
            tenants.revoke_token(tx, lonely.tenant_id, token.id)

    assert bare.status_code == 200
    assert httpx2.get(url, headers=headers).status_code == 401


def test_unknown_routes_are_not_found(lonely: Client) -> None:
    assert lonely.http.post("/api/v1/agents/chat/completion", json={}).status_code in (404, 405)
    assert lonely.http.get("/api/v1/nothing").status_code == 404
