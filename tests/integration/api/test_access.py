"""Access control: every route needs a token, and no token can read or change the data of another tenant."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from api.app import create_app
from canvas.ids import CanvasId, RunId
from knowledge.bases.search import public_chunk_id
from scheduler.schedules import changes
from store.files.blobs import LocalBlobs
from store.knowledge import bases, documents, memories, memory_messages, written_chunks
from store.knowledge.memory_messages import ANY_SCOPE, NewMessage
from store.knowledge.written_chunks import ChunkIndex, ChunkPlace
from store.mcp import servers
from store.mcp.servers import ServerFields
from store.primitives.encryption import EncryptionKey
from store.primitives.ids import new_id
from store.runs import model_calls
from store.runs.model_calls import CallBatch, CallRow
from store.tenants import callback_deliveries, callbacks, run_shares, tenants, uploads, viewer_sessions
from tests.integration.api.conftest import NO_TLS, SECRET, Server, config_of
from tests.integration.api.talking import ECHO, Client

WELL_KNOWN = ("/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp")
PROBED = (  # as RAGFlow's probes ask
    "/api/v1/system/config",
    "/api/v1/system/healthz",
    "/api/v1/system/ping",
    "/api/v1/system/version",
    "/v1/system/healthz",
)
PUBLIC_PATHS = {
    *WELL_KNOWN,
    "/healthz",
    "/readyz",
    *PROBED,
    "/api/v1/agents/{agent_id}/webhook",  # a webhook has its own authentication
    "/api/v1/viewer",  # says who the caller is, and whether there is one
    "/api/v1/viewer/session",  # signs in and out
}
SHARE_LINK_ROUTES = {
    "GET /api/v1/a2a/{agent_id}/.well-known/agent-card.json",
    "GET /api/v1/agentbots/{agent_id}/inputs",
    "GET /api/v1/agentbots/{agent_id}/logs/{message_id}",
    "GET /api/v1/agentbots/{agent_id}/runs/{run_id}/events",
    "GET /api/v1/agentbots/{agent_id}/sessions/{session_id}",
    "GET /api/v1/agents/attachments/{attachment_id}/download",
    "GET /api/v1/document/download/{attachment_id}",
    "GET /api/v1/documents/artifact/{name}",
    "GET /api/v1/openai/agents/{agent_id}/models",
    "GET /api/v1/openai/agents/{agent_id}/models/{model}",
    "GET /api/v1/openai/models",
    "GET /api/v1/openai/agents/{agent_id}/responses/{response_id}",
    "GET /api/v1/openai/models/{model}",
    "GET /api/v1/openai/responses/{response_id}",
    "GET /v1/document/download/{attachment_id}",
    "POST /api/v1/a2a/{agent_id}",
    "POST /api/v1/agentbots/{agent_id}/cancel",
    "POST /api/v1/agentbots/{agent_id}/completions",
    "POST /api/v1/agents/{agent_id}/upload",
    "POST /api/v1/openai/agents/{agent_id}/chat/completions",
    "POST /api/v1/openai/agents/{agent_id}/responses",
    "POST /api/v1/openai/agents/{agent_id}/responses/{response_id}/cancel",
    "POST /api/v1/openai/chat/completions",
    "POST /api/v1/openai/responses",
    "POST /api/v1/openai/responses/{response_id}/cancel",
}
ROUTES_OF_LINKS = {  # their page expects a 200 with a code
    "/api/v1/agentbots/{agent_id}/completions",
    "/api/v1/agentbots/{agent_id}/inputs",
    "/api/v1/agentbots/{agent_id}/logs/{message_id}",
}
BODIES = {  # the least body with which the route checks the ids
    "/api/v1/agents/chat/completions": {"agent_id": "{agent_id}", "query": "x"},
    "/api/v1/openai/chat/completions": {"model": "{agent_id}", "messages": [{"role": "user", "content": "x"}]},
    "/api/v1/openai/agents/{agent_id}/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/api/v1/openai/responses": {"model": "{agent_id}", "input": "x", "previous_response_id": "resp_{run_id}"},
    "/api/v1/openai/agents/{agent_id}/responses": {"input": "x"},
    "/api/v1/agents_openai/{agent_id}/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/api/v1/agentbots/{agent_id}/cancel": {"session_id": "{session_id}", "run_id": "{run_id}"},
    "/api/v1/agentbots/{agent_id}/completions": {"query": "x"},
    "/api/v1/agents/{agent_id}/run": {"query": "x"},
    "/api/v1/agents/{agent_id}/stream": {"query": "x"},
    "/api/v1/agents/{agent_id}/tags": {"tags": ["x"]},
    "/api/v1/tasks/{task_id}": {"action": "stop"},
    "/api/v1/agents": {"title": "x"},
    "/api/v1/datasets": {"ids": ["{dataset_id}"]},
    "/api/v1/datasets/{dataset_id}/documents": {"ids": ["{document_id}"]},
    "/api/v1/datasets/{dataset_id}/chunks": {"document_ids": ["{document_id}"]},
    "/api/v1/datasets/{dataset_id}/documents/parse": {"document_ids": ["{document_id}"]},
    "/api/v1/datasets/{dataset_id}/documents/stop": {"document_ids": ["{document_id}"]},
    "/api/v1/datasets/{dataset_id}/documents/batch-update-status": {"doc_ids": ["{document_id}"], "status": "0"},
    "/api/v1/datasets/{dataset_id}/documents/{document_id}/chunks/{chunk_id}": {"available": False},
    "/api/v1/datasets/{dataset_id}/search": {"question": "x"},
    "/api/v1/datasets/search": {"dataset_ids": ["{dataset_id}"], "question": "x"},
    "/api/v1/documents/ingest": {"doc_ids": ["{document_id}"], "run": "1"},
    "/api/v1/retrieval": {"dataset_ids": ["{dataset_id}"], "question": "x"},
    "/api/v1/mcp/servers/list_tools": {"mcp_ids": ["{server_id}"]},
    "/api/v1/mcp/servers/test_tool": {"mcp_id": "{server_id}", "tool_name": "x"},
    "/api/v1/budgets": {"scope": "run", "id": "{run_id}", "tokens": 5},
    "/api/v1/runs/{run_id}/shares": {"hide": []},
    "/api/v1/runs/cancel": {"ids": ["{run_id}"]},
    "/api/v1/messages": {"memory_id": ["{memory_id}"], "user_input": "x"},
    "/api/v1/messages/{message_key}": {"status": False},
    "/api/v1/schedules": {"agent_id": "{agent_id}", "spec": {"every_seconds": 3600}},
    "/api/v1/schedules/{schedule_id}": {"name": "x"},
}


def list_routes() -> list[tuple[str, str]]:
    """Return the method and the path of every route that needs a token."""
    app = create_app(config_of("postgresql+psycopg://nowhere/x", "redis://nowhere"))
    paths: dict[str, Any] = app.openapi()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods if path not in PUBLIC_PATHS]


@pytest.fixture(scope="module")
def anonymous_client(workerless_server: Server) -> Iterator[httpx2.Client]:
    """A client without a token."""
    with httpx2.Client(base_url=workerless_server.url, verify=NO_TLS) as client:
        yield client


@pytest.mark.parametrize(("method", "path"), list_routes())
@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer easel_nobody", "easel_nobody", "Basic eDp5"])
def test_every_route_refuses_a_missing_or_unknown_token(
    anonymous_client: httpx2.Client, method: str, path: str, authorization: str | None
) -> None:  # T145
    headers = {} if authorization is None else {"Authorization": authorization}

    reply = anonymous_client.request(method, re.sub(r"{\w+}", "0" * 32, path), headers=headers)

    is_of_links = path in ROUTES_OF_LINKS
    assert reply.status_code == (200 if is_of_links else 401)
    body = reply.json()
    code = 102 if is_of_links else "invalid_api_key" if "openai" in path else unauthorized_code(path)
    words = "<Unauthorized '401: Unauthorized'>" if code == 401 else "Authorization is not valid!"
    assert (body.get("error", body)["code"], body.get("error", body)["message"]) == (code, words)


def unauthorized_code(path: str) -> int | str:
    """Return the code of a 401: RAGFlow's, or Easel's on Easel's own routes."""
    own = r"/api/v1/(a2a|runs|viewer|components|budgets|schedules|admin|tokens|audit|callbacks|agents/{agent_id}/runs)"
    return "unauthorized" if re.match(own, path) else 401


@pytest.mark.parametrize(
    ("method", "path"), [route for route in list_routes() if "{" in route[1] or route[1] in BODIES]
)
def test_ids_of_another_tenant_get_the_same_reply_as_unknown_ids(
    workerless_server: Server, tmp_path: Path, method: str, path: str
) -> None:  # T145
    owner, stranger = workerless_server.client(), workerless_server.client(kind="admin")
    agent = owner.agent(ECHO)
    run = owner.start(agent)
    (version,) = owner.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    with workerless_server.database.transaction() as tx:
        fields = ServerFields("theirs", "http://127.0.0.1:1/mcp", "sse")
        server = servers.add(tx, owner.tenant_id, fields, EncryptionKey.from_secret(SECRET))
        file = uploads.register(
            tx, owner.tenant_id, uploads.store_content(LocalBlobs(tmp_path), "a.txt", "text/plain", b"a")
        )
        base = bases.create(tx, owner.tenant_id, "x", embedding_model="echo", parser={})
        document = documents.add(tx, owner.tenant_id, base, "a.txt", "text/plain", 1, b"a" * 32)
        place = ChunkPlace(owner.tenant_id, base, document.id)
        position = written_chunks.add(
            tx, place, "x", ChunkIndex(["x"], None, 0), details={}, image=b"\x89PNG\r\n\x1a\n"
        )
        chunk_id = public_chunk_id(document.id, position)
        memory = memories.create(
            tx, owner.tenant_id, "x", types=1, embedding_model="", chat_model="", most_bytes=10_000
        )
        memory_messages.save_message(tx, memory, NewMessage(1, "x", b""), ANY_SCOPE)
        call = a_model_call()
        model_calls.write(tx, RunId(UUID(run["run_id"])), [CallBatch((), [call], {})])
        share, _ = run_shares.create(
            tx, owner.tenant_id, RunId(UUID(run["run_id"])), CanvasId(UUID(agent)), created_by=new_id(),
            expires_in=timedelta(days=1), hide=(), may_answer=False, note="",
        )  # fmt: skip
        token_id, _ = tenants.create_token(tx, owner.tenant_id, "another")
        callback = callbacks.create(
            tx, owner.tenant_id, new_id(), canvas_id=CanvasId(UUID(agent)), url="https://example.com", events=[],
            include=[], description="", sealed_secret=b"",
        )  # fmt: skip
        delivery = callback_deliveries.put_test(tx, owner.tenant_id, new_id(), callback.id, callbacks.TEST)
        principal = tenants.find_principal(tx, owner.token)
        assert principal is not None
        cookie = viewer_sessions.sign_in_with_token(tx, principal, "a browser")
        sign_in = viewer_sessions.find(tx, cookie)
        assert sign_in is not None
        fields = {"spec": {"every_seconds": 3600}, "paused": True}
        schedule = changes.create(tx, owner.tenant_id, CanvasId(UUID(agent)), fields, now=datetime.now(UTC))
    theirs = {
        "activation_id": owner.run(run["run_id"])["activations"][0]["id"],
        "agent_id": agent,
        "component_id": "begin",
        "attachment_id": file.id.hex,
        "call_id": call.id.hex,
        "callback_id": callback.id.hex,
        "delivery_id": delivery.id.hex,
        "dataset_id": base.hex,
        "chunk_id": chunk_id,
        "image_id": f"{base.hex}-{chunk_id}",  # before the ids that are parts of it
        "kind": "outputs",
        "document_id": document.id.hex,
        "message_key": f"{memory.id.hex}:1",  # before `memory_id`, which is a part of it
        "memory_id": memory.id.hex,
        "message_id": run["message_id"],
        "model": agent,
        "name": f"{file.id.hex}.txt",
        "node_id": "begin",
        "other_run_id": run["run_id"],
        "response_id": f"resp_{run['run_id']}",  # before `run_id`, which is a part of it
        "run_id": run["run_id"],
        "schedule_id": schedule.id.hex,
        "server_id": server.hex,
        "session_id": run["session_id"],
        "share_id": share.id.hex,
        "sign_in_id": sign_in.id.hex,
        "task_id": run["run_id"],
        "tenant_id": owner.tenant_id.hex,
        "token_id": token_id.hex,
        "version_id": version["id"],
    }
    unknown = {
        **dict.fromkeys(theirs, "0" * 31 + "7"),
        "kind": "outputs",
        "message_key": "0" * 31 + "7:1",
        "response_id": f"resp_{'0' * 31}7",
    }

    def send(ids: dict[str, str]) -> tuple[int, str]:
        body = {name: insert_ids(value, ids) for name, value in BODIES.get(path, {}).items()}
        reply = stranger.http.request(method, path.format(**ids), json=body)
        reply_text = re.sub(r'"now":"[^"]*"', "", reply.text)
        for value in ids.values():
            reply_text = reply_text.replace(value, "<id>")
        return reply.status_code, reply_text

    assert send(theirs) == send(unknown)
    assert [(row["run"], row["status"]) for row in list_documents(owner, base.hex)] == [("UNSTART", "1")]
    chunks = owner.http.get(f"/api/v1/datasets/{base.hex}/documents/{document.id.hex}/chunks").json()["data"]["chunks"]
    assert [(chunk["id"], chunk["available"]) for chunk in chunks] == [(chunk_id, True)]
    params = {"memory_id": memory.id.hex}
    (message,) = owner.http.get("/api/v1/messages", params=params).json()["data"]
    assert (message["status"], message["forget_at"]) == (True, None)
    assert owner.run(run["run_id"])["status"] == "running"
    assert owner.run(run["run_id"])["shares"] == 1
    with workerless_server.database.transaction() as tx:
        assert {token.revoked_at for token in tenants.list_tokens(tx, owner.tenant_id)} == {None}
    (kept,) = owner.http.get("/api/v1/schedules").json()["schedules"]
    assert (kept["name"], kept["paused"], kept["last_run_id"]) == ("every 3600 s", True, None)
    assert len(owner.http.get("/api/v1/viewer/sessions_of_mine").json()["sessions"]) == 1
    assert owner.http.get(f"/api/v1/agents/{agent}/sessions/{run['session_id']}").json()["code"] == 0


@pytest.mark.parametrize(("method", "path"), list_routes())
def test_share_link_token_is_accepted_only_by_the_routes_of_share_links(
    workerless_server: Server, method: str, path: str, workerless_client: Client
) -> None:
    guest = workerless_server.guest(workerless_client, workerless_client.agent(ECHO))

    reply = guest.http.request(method, re.sub(r"{\w+}", "0" * 32, path), json=BODIES.get(path))
    guest.http.close()

    assert (reply.status_code != 401) == (f"{method} {path}" in SHARE_LINK_ROUTES)


def a_model_call() -> CallRow:
    """Return a call as a worker stores it."""
    return CallRow(
        new_id(), new_id(), 1, None, "chat", "m", "a", 0.0, None, 0.0, "ok", None, 1, 0, {"calls": 1}, None, None
    )


def insert_ids(value: Any, ids: dict[str, str]) -> Any:
    """Insert the ids into a value of a body, or into the texts of a list."""
    if isinstance(value, list):
        return [insert_ids(each, ids) if isinstance(each, str) else each for each in value]
    return value.format(**ids) if isinstance(value, str) else value


def list_documents(owner: Client, base: str) -> list[dict[str, Any]]:
    return owner.http.get(f"/api/v1/datasets/{base}/documents").json()["data"]["docs"]


def test_lists_show_only_what_belongs_to_the_caller(workerless_client: Client, workerless_server: Server) -> None:
    stranger = workerless_server.client()
    agent = stranger.agent(ECHO)
    stranger.start(agent)

    stranger.http.post("/api/v1/datasets", json={"name": "Theirs"})

    assert workerless_client.http.get("/api/v1/agents").json()["data"]["total"] == 0
    assert workerless_client.http.get("/api/v1/datasets").json()["data"] == []
    assert workerless_client.http.get("/api/v1/datasets", params={"name": "Theirs"}).json()["code"] == 102
    body = {"name": "Theirs", "memory_type": ["raw"], "embd_id": "", "llm_id": ""}
    assert stranger.http.post("/api/v1/memories", json=body).json()["code"] == 0
    assert workerless_client.http.get("/api/v1/memories").json()["data"] == {"memory_list": [], "total_count": 0}
    for path in ("/api/v1/messages", "/api/v1/messages/search"):
        params = {"memory_id": "Theirs"} | ({"query": "x"} if path.endswith("search") else {})
        reply = workerless_client.http.get(path, params=params).json()
        assert (reply["code"], reply["message"]) == (404, "Memory ['Theirs'] not found.")
    assert workerless_client.http.get("/api/v1/runs").json()["total"] == 0
    assert workerless_client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 0


def test_token_without_bearer_is_accepted_and_a_revoked_token_is_refused(
    workerless_client: Client, workerless_server: Server
) -> None:
    url = f"{workerless_server.url}/api/v1/agents"
    headers = {"Authorization": workerless_client.token}
    bare = httpx2.get(url, headers=headers)

    with workerless_server.database.transaction() as tx:
        for token in tenants.list_tokens(tx, workerless_client.tenant_id):
            tenants.revoke_token(tx, workerless_client.tenant_id, token.id)

    assert bare.status_code == 200
    assert httpx2.get(url, headers=headers).status_code == 401


def test_unknown_routes_are_not_found(workerless_client: Client) -> None:
    assert workerless_client.http.post("/api/v1/agents/chat/completion", json={}).status_code in (404, 405)
    assert workerless_client.http.get("/api/v1/nothing").status_code == 404
