"""The scope that each route needs, and what a token of one agent reaches."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi.routing import APIRoute
from hypothesis import given, settings
from hypothesis import strategies as st

from api.requests import auth
from api.requests.scopes import confines_callers, needed_scope
from canvas.errors import InvalidRequest
from canvas.ids import CanvasId, TenantId
from store.primitives.ids import new_id
from store.tenants import tenants
from store.tenants.scopes import KINDS, TokenScope, in_order, kind_of, parse_scopes, scopes_of
from tests.integration.api.browsers import browser, cookie_of, depends_on, list_routes
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client
from tests.integration.api.test_access import WELL_KNOWN

TABLE: Mapping[str, str] = {
    "read": """
        GET //v1/document/download/{attachment_id} one-agent
        GET /a2a/{agent_id}/.well-known/agent-card.json
        GET /agentbots/{agent_id}/inputs
        GET /agentbots/{agent_id}/logs/{message_id}
        GET /agentbots/{agent_id}/runs/{run_id}/events
        GET /agentbots/{agent_id}/sessions/{session_id}
        GET /agents one-agent
        GET /agents/attachments/{attachment_id}/download one-agent
        GET /agents/attachments/{attachment_id}/preview one-agent
        GET /agents/download one-agent
        GET /agents/prompts
        GET /agents/tags
        GET /agents/templates one-agent
        GET /agents/{agent_id}
        GET /agents/{agent_id}/components/{component_id}/input-form
        GET /agents/{agent_id}/logs/{message_id}
        GET /agents/{agent_id}/mcp
        GET /agents/{agent_id}/sessions
        GET /agents/{agent_id}/sessions/{session_id}
        GET /agents/{agent_id}/versions
        GET /agents/{agent_id}/versions/{version_id}
        GET /agents/{agent_id}/webhook/logs
        GET /budgets
        GET /callbacks
        GET /callbacks/deliveries
        GET /callbacks/deliveries/{delivery_id}
        GET /callbacks/{callback_id}
        GET /components one-agent
        GET /datasets
        GET /datasets/metadata/flattened
        GET /datasets/{dataset_id}
        GET /datasets/{dataset_id}/documents
        GET /datasets/{dataset_id}/documents/{document_id}
        GET /datasets/{dataset_id}/documents/{document_id}/chunks
        GET /datasets/{dataset_id}/documents/{document_id}/chunks/{chunk_id}
        GET /datasets/{dataset_id}/metadata/config
        GET /datasets/{dataset_id}/metadata/summary
        GET /document/download/{attachment_id} one-agent
        GET /documents/artifact/{name} one-agent
        GET /documents/images/{image_id}
        GET /documents/{document_id}
        GET /documents/{document_id}/preview
        GET /mcp/servers
        GET /mcp/servers/{server_id}
        GET /mcp/servers/{server_id}/tools
        GET /memories
        GET /memories/{memory_id}
        GET /memories/{memory_id}/config
        GET /messages
        GET /messages/search
        GET /messages/{message_key}/content
        GET /openai/agents/{agent_id}/models
        GET /openai/agents/{agent_id}/models/{model}
        GET /openai/agents/{agent_id}/responses/{response_id}
        GET /openai/models one-agent
        GET /openai/models/{model} one-agent
        GET /openai/responses/{response_id} one-agent
        GET /plugin/tools one-agent
        GET /runs one-agent
        GET /runs/states one-agent
        GET /runs/{run_id}
        GET /runs/{run_id}/activations
        GET /runs/{run_id}/activations/{activation_id}
        GET /runs/{run_id}/activations/{activation_id}/values/{kind}/{name:path}
        GET /runs/{run_id}/attempts
        GET /runs/{run_id}/compare/{other_run_id}
        GET /runs/{run_id}/compare/{other_run_id}/steps/{activation_id}
        GET /runs/{run_id}/document
        GET /runs/{run_id}/events
        GET /runs/{run_id}/explain
        GET /runs/{run_id}/export
        GET /runs/{run_id}/graph
        GET /runs/{run_id}/items
        GET /runs/{run_id}/live
        GET /runs/{run_id}/model_calls
        GET /runs/{run_id}/model_calls/{call_id}
        GET /runs/{run_id}/shares
        GET /runs/{run_id}/tool_calls
        GET /schedules
        GET /schedules/{schedule_id}
        GET /schedules/{schedule_id}/fires
        GET /system/status
        GET /thumbnails
        GET /viewer
        GET /viewer/agents one-agent
        GET /viewer/agents/{agent_id}
        GET /viewer/agents/{agent_id}/draft
        GET /viewer/agents/{agent_id}/graph
        GET /viewer/agents/{agent_id}/versions
        GET /viewer/agents/{agent_id}/versions/{version_id}
        GET /viewer/choices
        GET /viewer/conversations one-agent
        GET /viewer/conversations/{session_id} one-agent
        GET /viewer/overview one-agent
        DELETE|POST /viewer/session
        GET /viewer/sessions_of_mine one-agent
    """,
    "run": """
        POST /a2a/{agent_id}
        POST /agentbots/{agent_id}/cancel
        POST /agentbots/{agent_id}/completions
        POST /agents/chat/completions one-agent
        POST /agents/rerun
        POST /agents/{agent_id}/cancel
        POST /agents/{agent_id}/completions
        POST /agents/{agent_id}/components/{component_id}/debug
        POST /agents/{agent_id}/run
        POST /agents/{agent_id}/runs
        POST /agents/{agent_id}/sessions
        POST /agents/{agent_id}/stream
        POST /agents/{agent_id}/upload
        DELETE|GET|HEAD|PATCH|POST|PUT /agents/{agent_id}/webhook
        DELETE|GET|HEAD|PATCH|POST|PUT /agents/{agent_id}/webhook/test
        POST /agents_openai/{agent_id}/chat/completions
        POST /datasets/search
        POST /datasets/{dataset_id}/search
        POST /openai/agents/{agent_id}/chat/completions
        POST /openai/agents/{agent_id}/responses
        POST /openai/agents/{agent_id}/responses/{response_id}/cancel
        POST /openai/chat/completions one-agent
        POST /openai/responses one-agent
        POST /openai/responses/{response_id}/cancel one-agent
        POST /retrieval
        POST /runs/cancel one-agent
        POST /runs/{run_id}/cancel
        POST /runs/{run_id}/fork
        POST /runs/{run_id}/rerun
        POST /runs/{run_id}/resume
        POST /schedules/preview
        PATCH /tasks/{task_id} one-agent
        POST /tasks/{task_id}/cancel one-agent
        POST /viewer/agents/{agent_id}/nodes/{node_id}/run
        POST /viewer/codes one-agent
        DELETE /viewer/sessions_of_mine/{sign_in_id} one-agent
    """,
    "edit": """
        POST /agents
        POST /agents/test_db_connection
        DELETE|PATCH|PUT /agents/{agent_id}
        DELETE|PUT /agents/{agent_id}/mcp
        POST /agents/{agent_id}/publish
        POST /agents/{agent_id}/reset
        DELETE /agents/{agent_id}/sessions
        DELETE /agents/{agent_id}/sessions/{session_id}
        PUT /agents/{agent_id}/tags
        POST /agents/{agent_id}/versions
        DELETE /agents/{agent_id}/versions/{version_id}
        DELETE|PUT /budgets
        POST /callbacks
        POST /callbacks/deliveries/{delivery_id}/replay
        GET /callbacks/secret
        POST /callbacks/secret/rotate
        DELETE /callbacks/{callback_id}
        PATCH /callbacks/{callback_id}
        POST /callbacks/{callback_id}/rotate
        POST /callbacks/{callback_id}/test
        DELETE|POST /datasets
        PUT /datasets/{dataset_id}
        DELETE|POST /datasets/{dataset_id}/chunks
        DELETE|POST /datasets/{dataset_id}/documents
        POST /datasets/{dataset_id}/documents/batch-update-status
        PATCH /datasets/{dataset_id}/documents/metadatas
        POST /datasets/{dataset_id}/documents/parse
        POST /datasets/{dataset_id}/documents/stop
        PATCH|PUT /datasets/{dataset_id}/documents/{document_id}
        DELETE|PATCH|POST /datasets/{dataset_id}/documents/{document_id}/chunks
        PATCH /datasets/{dataset_id}/documents/{document_id}/chunks/{chunk_id}
        PUT /datasets/{dataset_id}/documents/{document_id}/metadata/config
        PUT /datasets/{dataset_id}/metadata/config
        POST /documents/ingest
        POST /mcp/servers
        POST /mcp/servers/import
        POST /mcp/servers/list_tools
        POST /mcp/servers/test_tool
        DELETE|PATCH|PUT /mcp/servers/{server_id}
        POST /mcp/servers/{server_id}/approve
        POST /mcp/servers/{server_id}/test
        POST /memories
        DELETE|PUT /memories/{memory_id}
        POST /messages
        DELETE|PUT /messages/{message_key}
        POST /runs/{run_id}/shares
        DELETE /runs/{run_id}/shares/{share_id}
        POST /schedules
        DELETE /schedules/{schedule_id}
        PATCH /schedules/{schedule_id}
        POST /schedules/{schedule_id}/pause
        POST /schedules/{schedule_id}/resume
        POST /schedules/{schedule_id}/trigger
        GET|POST /tokens one-agent
        DELETE /tokens/{token_id} one-agent
        POST /viewer/agents
        PATCH /viewer/agents/{agent_id}
        PATCH|PUT /viewer/agents/{agent_id}/draft
        GET /viewer/agents/{agent_id}/export
        POST /viewer/agents/{agent_id}/publish
        POST /viewer/agents/{agent_id}/restore
    """,
    "admin": """
        GET /admin/canvas-runtime/{tenant_id}
        POST /admin/canvas-runtime/{tenant_id}
        GET /audit
        GET /viewer/system
    """,
}
"""Scope -> methods and path below /api/v1, or at the root after `//`. `one-agent`: the handler confines its callers."""
OPEN = {
    "/healthz", "/readyz", "/metrics", "/openapi.json", "/v1/system/healthz", *WELL_KNOWN,
    *(f"/api/v1/system/{name}" for name in ("config", "healthz", "ping", "version")),
}  # fmt: skip
"""Routes without a mark: open, or checked by the handler."""
NOT_CHECKED = re.compile(r"/api/v1/(viewer|viewer/session|agents/\{agent_id\}/webhook)")
"""Routes that everybody may call: they sign in and out, say who the caller is, or authenticate in their own way."""
ROUTES = [each for each in list_routes() if each[1] not in OPEN]
CHECKED = [(method, path, route) for method, path, route in ROUTES if not NOT_CHECKED.fullmatch(path)]


def rows_of_table() -> Iterator[tuple[str, str, str, bool]]:
    """Yield method, path, scope and whether the handler confines tokens of one agent."""
    for scope, text in TABLE.items():
        for line in filter(None, map(str.strip, text.splitlines())):
            methods, path, *mark = line.split()
            whole = path[1:] if path.startswith("//") else f"/api/v1{path}"
            for method in methods.split("|"):
                yield method, whole, scope, bool(mark)


def url_of(path: str, ids: Mapping[str, str] | None = None) -> str:
    """Return the URL of a route; ids that are not given are unknown ones."""
    return re.sub(r"{(\w+)(:path)?}", lambda name: (ids or {}).get(name[1], "0" * 31 + "7"), path)


def add_agent(client: Client) -> str:
    """Add an agent with a title that no other has; return its id."""
    return client.agent(ECHO, title=f"agent {new_id()}")


def token_of(server: Server, client: Client, *scopes: str, agent: str | None = None) -> Client:
    """Return a client of the same tenant with these scopes, of one agent if it is given."""
    canvas_id = CanvasId(UUID(agent)) if agent is not None else None
    with server.database.transaction() as tx:
        _, token = tenants.create_token(
            tx, TenantId(client.tenant_id), "scoped", scopes=parse_scopes(scopes), canvas_id=canvas_id
        )
    return server.client_of(client.tenant_id, token)


@pytest.fixture(scope="module")
def owner(workerless_server: Server) -> Iterator[Client]:
    client = workerless_server.client(kind="admin")
    yield client
    client.http.close()


@pytest.fixture(scope="module")
def without(workerless_server: Server, owner: Client) -> Iterator[Mapping[str, Client]]:
    """For each scope a client with all others; `admin` includes the others, so only that of `admin` has it."""
    names = ("read", "run", "edit")
    clients = {name: token_of(workerless_server, owner, *(each for each in names if each != name)) for name in names}
    clients["admin"] = token_of(workerless_server, owner, *names)
    yield clients
    for client in clients.values():
        client.http.close()


# -- by route ---------------------------------------------------------------------------------------------------------
def test_every_route_needs_the_scope_of_the_table() -> None:
    found = {(method, path, str(needed_scope(route)), confines_callers(route)) for method, path, route in ROUTES}

    assert found == set(rows_of_table())


@pytest.mark.parametrize(("method", "path", "route"), CHECKED)
def test_route_refuses_a_token_without_its_scope(
    without: Mapping[str, Client], method: str, path: str, route: APIRoute
) -> None:
    needed = str(needed_scope(route))

    reply = without[needed].http.request(method, url_of(path), json=None if method == "GET" else {})

    assert reply.status_code == 403
    if method != "HEAD":
        body = reply.json()
        assert body.get("error", body)["code"] in ("missing_scope", 103)
        assert f"`{needed}`" in body.get("error", body)["message"]


def test_route_without_a_mark_is_refused_to_everybody() -> None:
    unmarked = [path for _, path, route in list_routes() if needed_scope(route) is None]

    assert set(unmarked) == OPEN
    assert not any(
        depends_on(route, auth.authenticate, auth.identify) for _, path, route in list_routes() if path in OPEN
    )


@pytest.mark.parametrize(("path", "needed"), [("/metrics", "admin"), ("/openapi.json", "read"), ("/mcp", "run")])
def test_route_at_the_root_needs_its_scope(without: Mapping[str, Client], path: str, needed: str) -> None:
    reply = without[needed].http.request("POST" if path == "/mcp" else "GET", path)

    assert reply.status_code == 403
    assert f"`{needed}`" in reply.json()["message"]


def test_sign_in_has_the_scopes_and_the_agent_of_its_token(workerless_server: Server, owner: Client) -> None:
    agent, other = add_agent(owner), add_agent(owner)
    client = token_of(workerless_server, owner, "read", agent=agent)

    with browser(workerless_server.url, cookie_of(workerless_server.url, token=client.token)) as page:
        about = page.get("/api/v1/viewer").json()
        statuses = [page.get(f"/api/v1/viewer/agents/{each}").status_code for each in (agent, other)]
        started = page.post(f"/api/v1/agents/{agent}/runs", json={"query": "x"})

    assert (about["scopes"], about["agent_id"], about["may"]) == (["read"], agent, ["read"])
    assert statuses == [200, 404]
    assert started.status_code == 403


def test_fork_with_other_parameters_needs_the_scope_edit(workerless_server: Server, owner: Client) -> None:
    run = owner.start(add_agent(owner))["run_id"]
    client = token_of(workerless_server, owner, "read", "run")

    reply = client.http.post(f"/api/v1/runs/{run}/fork", json={"edits": {"params": {"Message:0": {"content": ["x"]}}}})

    assert (reply.status_code, reply.json()["code"]) == (403, "missing_scope")


# -- one agent --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("method", "path", "route"), CHECKED)
def test_token_of_one_agent_gets_a_404_for_everything_else(
    strangers: tuple[Client, Mapping[str, str]], method: str, path: str, route: APIRoute
) -> None:
    client, others = strangers
    if needed_scope(route) is TokenScope.ADMIN or path == "/api/v1/tokens":
        pytest.skip("a token of one agent has no scope admin, and may make tokens of its agent")

    theirs, unknown = (
        client.http.request(method, url_of(path, ids), json=None if method == "GET" else body_of(path, ids))
        for ids in (others, dict.fromkeys(others, "0" * 31 + "7"))
    )

    assert theirs.status_code == unknown.status_code
    text = theirs.text
    for name, value in others.items():
        if name not in ("agent_id", "run_id", "other_run_id"):
            text = text.replace(value, "0" * 31 + "7")
    assert "secret title" not in text
    if not confines_callers(route):
        assert theirs.status_code == 404 or method == "HEAD"


@pytest.fixture(scope="module")
def strangers(workerless_server: Server, owner: Client) -> Iterator[tuple[Client, Mapping[str, str]]]:
    """A token of one agent, and the ids of another agent and of what belongs to it."""
    client = token_of(workerless_server, owner, "read", "run", "edit", agent=add_agent(owner))
    other = owner.agent(ECHO, title="secret title")
    run = owner.start(other)
    (version,) = owner.http.get(f"/api/v1/agents/{other}/versions").json()["data"]
    file = owner.http.post(f"/api/v1/agents/{other}/upload", files={"file": ("secret title.txt", b"secret title")})
    others = {
        "agent_id": other,
        "run_id": run["run_id"],
        "other_run_id": run["run_id"],
        "session_id": run["session_id"],
        "task_id": run["run_id"],
        "version_id": version["id"],
        "attachment_id": file.json()["data"]["id"],
        "name": file.json()["data"]["id"] + ".txt",
        "model": other,
        "message_id": run["message_id"],
    }
    yield client, others
    assert owner.run(run["run_id"])["status"] == "running"
    assert owner.http.get(f"/api/v1/agents/{other}").json()["code"] == 0
    client.http.close()


def body_of(path: str, ids: Mapping[str, str]) -> dict[str, Any]:
    """Return a body that names what belongs to another agent."""
    match path.removeprefix("/api/v1"):
        case "/agents/chat/completions":
            return {"agent_id": ids["agent_id"], "query": "x", "stream": False}
        case "/openai/chat/completions":
            return {"model": ids["agent_id"], "messages": [{"role": "user", "content": "x"}]}
        case "/runs/cancel":
            return {"ids": [ids["run_id"]]}
        case "/tasks/{task_id}":
            return {"action": "stop"}
        case _:
            return {}


def test_token_of_one_agent_uses_it_and_sees_only_what_belongs_to_it(workerless_server: Server, owner: Client) -> None:
    agent, other = add_agent(owner), add_agent(owner)
    theirs = owner.start(other)
    client = token_of(workerless_server, owner, "read", "run", "edit", agent=agent)

    run = client.start(agent)
    get = client.http.get

    assert [each["id"] for each in get("/api/v1/runs").json()["runs"]] == [run["run_id"]]
    assert get("/api/v1/runs", params={"agent_id": other, "limit": 5}).json()["runs"] == []
    assert get("/api/v1/runs", params={"q": theirs["run_id"]}).json()["runs"] == []
    ids = f"{run['run_id']},{theirs['run_id']}"
    assert [each["id"] for each in get("/api/v1/runs/states", params={"ids": ids}).json()["runs"]] == [run["run_id"]]
    assert [each["id"] for each in get("/api/v1/agents").json()["data"]["canvas"]] == [agent]
    assert get("/api/v1/agents", params={"type": "filter"}).json()["data"]["total"] == 1
    assert get("/api/v1/agents", params={"id": other}).json()["data"]["total"] == 0
    assert [each["id"] for each in get("/api/v1/viewer/agents").json()["agents"]] == [agent]
    assert [each["id"] for each in get("/api/v1/openai/models").json()["data"]] == [agent]
    conversations = get("/api/v1/viewer/conversations").json()["conversations"]
    assert [each["id"] for each in conversations] == [run["session_id"]]
    assert get("/api/v1/viewer/overview").json()["tiles"]["runs"] == 1
    assert get(f"/api/v1/runs/{run['run_id']}").status_code == 200
    assert client.http.patch(f"/api/v1/viewer/agents/{agent}", json={"title": f"Mine {agent}"}).status_code == 200
    done = client.http.post("/api/v1/runs/cancel", json={"ids": [run["run_id"], theirs["run_id"]]}).json()
    assert done == {"cancelled": [run["run_id"]], "over": [], "unknown": [theirs["run_id"]]}
    assert owner.run(theirs["run_id"])["status"] == "running"


def test_token_of_one_agent_reads_its_own_uploads_and_no_others(workerless_server: Server, owner: Client) -> None:
    agent = add_agent(owner)
    client = token_of(workerless_server, owner, "read", "run", agent=agent)

    mine, theirs = (
        each.http.post(f"/api/v1/agents/{agent}/upload", files={"file": ("a.txt", b"a")}).json()["data"]["id"]
        for each in (client, owner)
    )

    downloads = [client.http.get("/api/v1/agents/download", params={"id": each}) for each in (mine, theirs)]
    assert downloads[0].content == b"a"
    assert downloads[1].json()["code"] == 102


def test_session_of_another_agent_is_unknown_to_a_token_of_one_agent(workerless_server: Server, owner: Client) -> None:
    agent = add_agent(owner)
    theirs = owner.start(add_agent(owner))["session_id"]
    client = token_of(workerless_server, owner, "run", agent=agent)

    reply = client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "x", "session_id": theirs})

    assert reply.status_code in (403, 404)


# -- share links ------------------------------------------------------------------------------------------------------
def test_share_link_opens_published_versions_only(workerless_server: Server, owner: Client) -> None:
    agent = add_agent(owner)
    link = token_of(workerless_server, owner, "share", agent=agent)

    draft = link.http.post(f"/api/v1/agentbots/{agent}/completions", json={"query": "x"})
    form = link.http.get(f"/api/v1/agentbots/{agent}/inputs")
    owner.http.post(f"/api/v1/agents/{agent}/publish", json={})
    published = link.http.get(f"/api/v1/agentbots/{agent}/inputs")

    assert draft.json()["code"] == form.json()["code"] == 102
    assert published.json()["code"] == 0
    assert link.http.get(f"/api/v1/agents/{agent}").status_code == 401


# -- the set ----------------------------------------------------------------------------------------------------------
NAMES: Sequence[str] = [each.value for each in TokenScope]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*NAMES, "write", ""]), max_size=5))
def test_scopes_are_parsed_or_refused_and_stored_without_a_loss(written: list[str]) -> None:
    is_valid = (
        bool(written) and set(written) <= set(NAMES) and (TokenScope.SHARE not in written or set(written) == {"share"})
    )

    if not is_valid:
        with pytest.raises(InvalidRequest):
            parse_scopes(written)
        return

    scopes = parse_scopes(written)

    assert set(written) <= scopes
    assert scopes - set(written) == (scopes - {"admin"} - set(written) if "admin" in written else set())
    assert scopes_of("api", " ".join(in_order(scopes))) == scopes
    assert kind_of(scopes) == next((kind for kind, known in KINDS.items() if known == scopes), "api")


def test_scope_of_a_later_release_gives_no_right() -> None:
    assert scopes_of("api", "read everything") == {TokenScope.READ}


def test_existing_token_has_the_scopes_of_its_kind() -> None:
    assert {kind: scopes_of(kind, None) for kind in KINDS} == dict(KINDS)


def test_answer_of_a_refused_scope_says_which_is_needed(without: Mapping[str, Client]) -> None:
    reply: httpx2.Response = without["edit"].http.post("/api/v1/viewer/agents")

    assert reply.json()["details"] == {"needed": "edit"}
