"""A share link opens one agent as published, and the sessions and files of the link; nothing else of its tenant."""

import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
from sqlalchemy import text

import local_engine
from canvas.errors import InvalidRequest, NotFound
from store.files.blobs import LocalBlobs
from store.primitives.ids import new_id
from store.runs import attempt_records
from store.tenants import tenants, uploads
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import ECHO, FORM, Client, canvas, eventually, frames, message

DRAFT = canvas(
    ("begin", "Begin", {"prologue": "Draft."}, ["Message:0"]),
    ("Message:0", "Message", message("Draft says: {sys.query}"), []),
)
NOT_FOUND = "document not found"
CALL = {"tool_name": "search", "arguments": {}, "result": "secret", "elapsed_time": 0.1, "path": "a"}


@pytest.fixture(scope="module")
def server_with_files(
    server: Server, engine: local_engine.Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """An API server with a folder for files, whose runs are executed."""
    with start_server(with_settings(server.config, files_dir=tmp_path_factory.mktemp("files"))) as running:
        yield running


@pytest.fixture
def owner(server_with_files: Server) -> Iterator[Client]:
    owner = server_with_files.client()
    yield owner
    owner.http.close()


@dataclass(frozen=True)
class SharedAgent:
    """An agent, and a client with its share link."""

    agent: str
    guest: Client
    token_id: UUID

    def chat(self, **body: Any) -> dict[str, Any]:
        path = f"/api/v1/agentbots/{self.agent}/completions"
        return self.guest.http.post(path, json={"query": "hi", "stream": False, **body}).json()


def create_published_agent(client: Client, dsl: Any, title: str) -> str:
    agent = client.agent(dsl, title)
    assert client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["code"] == 0
    return agent


@contextmanager
def create_share_link(server: Server, client: Client, agent: str) -> Generator[SharedAgent]:
    with server.database.transaction() as tx:
        token_id, token = tenants.create_token(tx, client.tenant_id, "link", "beta", canvas_id=UUID(agent))
    guest = server.client_of(client.tenant_id, token)
    yield SharedAgent(agent, guest, token_id)
    guest.http.close()


@pytest.fixture
def shared_agent(server_with_files: Server, owner: Client) -> Iterator[SharedAgent]:
    agent = create_published_agent(owner, ECHO, "shared")
    owner.http.put(f"/api/v1/agents/{agent}", json={"dsl": DRAFT})
    with create_share_link(server_with_files, owner, agent) as link:
        yield link


@pytest.fixture
def other(owner: Client) -> str:
    """Another agent of the same tenant."""
    return create_published_agent(owner, ECHO, "other")


def upload(client: Client, agent: str, name: str = "a.txt", **headers: str) -> dict[str, Any]:
    sent = {"file": (name, b"bytes")}
    return client.http.post(f"/api/v1/agents/{agent}/upload", files=sent, headers=headers).json()


def test_share_link_runs_only_the_published_version_of_its_agent(
    shared_agent: SharedAgent, other: str, owner: Client
) -> None:
    (newest, *_) = owner.http.get(f"/api/v1/agents/{shared_agent.agent}/versions").json()["data"]

    answered = shared_agent.chat()
    refused = [shared_agent.chat(version=version) for version in ("draft", "latest", newest["id"])]
    elsewhere = shared_agent.guest.http.post(f"/api/v1/agentbots/{other}/completions", json={"query": "hi"}).json()

    assert answered["data"]["data"]["content"] == "You said: hi"
    assert {(reply["code"], reply["message"]) for reply in refused} == {
        (103, "A share link runs the published version. Leave out `version`.")
    }
    assert (elsewhere["code"], elsewhere["message"]) == (102, f"Can't find agent by ID: {other}")


def test_share_link_of_an_unpublished_agent_is_refused(server_with_files: Server, owner: Client) -> None:
    with create_share_link(server_with_files, owner, owner.agent(ECHO)) as shared_agent:
        chat = shared_agent.chat()
        inputs = shared_agent.guest.http.get(f"/api/v1/agentbots/{shared_agent.agent}/inputs").json()

    assert (chat["code"], chat["message"]) == (102, "No available published version")
    assert (inputs["code"], inputs["message"]) == (102, "No available published version")


def test_share_link_shows_only_the_inputs_of_the_published_version(
    shared_agent: SharedAgent, other: str, owner: Client
) -> None:
    inputs = shared_agent.guest.http.get(f"/api/v1/agentbots/{shared_agent.agent}/inputs").json()
    draft_inputs = owner.http.get(f"/api/v1/agentbots/{shared_agent.agent}/inputs").json()
    elsewhere = shared_agent.guest.http.get(f"/api/v1/agentbots/{other}/inputs").json()

    assert inputs["data"]["prologue"] == "Hello, I repeat."
    assert draft_inputs["data"]["prologue"] == "Draft."
    assert elsewhere["message"] == f"Can't find agent by ID: {other}"


def test_share_link_completes_in_openais_format_only_with_its_agent(shared_agent: SharedAgent, other: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": False}

    by_path = shared_agent.guest.http.post(
        f"/api/v1/openai/agents/{shared_agent.agent}/chat/completions", json=body
    ).json()
    by_model = shared_agent.guest.http.post(
        "/api/v1/openai/chat/completions", json={**body, "model": shared_agent.agent}
    ).json()
    elsewhere = [
        shared_agent.guest.http.post(f"/api/v1/openai/agents/{other}/chat/completions", json=body),
        shared_agent.guest.http.post("/api/v1/openai/chat/completions", json={**body, "model": other}),
    ]
    draft = shared_agent.guest.http.post(
        "/api/v1/openai/chat/completions", json={**body, "model": shared_agent.agent, "version": "draft"}
    )

    assert [reply["choices"][0]["message"]["content"] for reply in (by_path, by_model)] == ["You said: hi"] * 2
    assert [(reply.status_code, reply.json()["error"]["code"]) for reply in elsewhere] == [(404, "model_not_found")] * 2
    assert (draft.status_code, draft.json()["error"]["code"]) == (403, "not_allowed")


def test_share_link_lists_only_its_agent_as_a_model(shared_agent: SharedAgent, other: str) -> None:
    def get(path: str) -> httpx2.Response:
        return shared_agent.guest.http.get(f"/api/v1/openai{path}")

    lists = [get("/models"), get(f"/agents/{shared_agent.agent}/models")]
    own = [get(f"/models/{shared_agent.agent}"), get(f"/agents/{shared_agent.agent}/models/{shared_agent.agent}")]
    others = [get(path) for path in (f"/models/{other}", f"/agents/{other}/models", f"/agents/{other}/models/{other}")]

    assert [[each["id"] for each in reply.json()["data"]] for reply in lists] == [[shared_agent.agent]] * 2
    assert [reply.json()["id"] for reply in own] == [shared_agent.agent] * 2
    assert [(reply.status_code, reply.json()["error"]["code"]) for reply in others] == [(404, "model_not_found")] * 3


def test_messages_of_a_share_link_can_use_only_files_of_the_link(shared_agent: SharedAgent, owner: Client) -> None:
    own = upload(shared_agent.guest, shared_agent.agent)["data"]["id"]
    theirs = upload(owner, shared_agent.agent)["data"]["id"]

    def send(part: dict[str, Any]) -> httpx2.Response:
        body = {
            "model": shared_agent.agent,
            "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, part]}],
        }
        return shared_agent.guest.http.post("/api/v1/openai/chat/completions", json=body)

    uploaded = send({"type": "file", "file": {"file_id": own}})
    inline = send({"type": "image_url", "image_url": {"url": "data:image/png;base64,Ynl0ZXM="}})
    refused = send({"type": "file", "file": {"file_id": theirs}})

    assert [reply.status_code for reply in (uploaded, inline, refused)] == [200, 200, 400]
    assert refused.json()["error"]["message"] == f"There is no file {theirs}. Upload it first."
    (picture,) = owner.run(inline.headers["x-run-id"])["request"]["files"]
    fetched = shared_agent.guest.http.get(f"/api/v1/agents/attachments/{picture['id']}/download")
    assert fetched.content == b"bytes"


def test_share_link_continues_only_its_own_sessions(
    shared_agent: SharedAgent, owner: Client, server_with_files: Server
) -> None:
    own = shared_agent.chat()["data"]["session_id"]
    theirs = owner.chat(shared_agent.agent)["data"]["session_id"]
    with create_share_link(server_with_files, owner, shared_agent.agent) as second:
        of_another_link = second.chat()["data"]["session_id"]

    again = shared_agent.chat(session_id=own)
    refused = [shared_agent.chat(session_id=session) for session in (theirs, of_another_link, "0" * 32)]
    openai_refused = shared_agent.guest.http.post(
        f"/api/v1/openai/agents/{shared_agent.agent}/chat/completions",
        json={"messages": [{"role": "user", "content": "hi"}], "session_id": theirs},
    )

    assert again["data"]["session_id"] == own
    assert {(reply["code"], reply["message"]) for reply in refused} == {(102, "Session not found!")}
    assert openai_refused.status_code == 404
    assert openai_refused.json()["error"]["message"] == "Session not found!"


def test_share_link_answers_only_forms_of_its_own_sessions(server_with_files: Server, owner: Client) -> None:
    agent = create_published_agent(owner, FORM, "form")
    theirs = owner.chat(agent)["data"]["session_id"]
    answer = {"inputs": {"name": {"value": "Ada"}}}

    with create_share_link(server_with_files, owner, agent) as shared_agent:
        own = shared_agent.chat()["data"]["session_id"]
        answered = shared_agent.chat(session_id=own, **answer)
        refused = shared_agent.chat(session_id=theirs, **answer)

    assert answered["data"]["data"]["content"] == "Hello Ada"
    assert refused["message"] == "Session not found!"
    assert owner.chat(agent, session_id=theirs, **answer)["data"]["data"]["content"] == "Hello Ada"


def test_share_link_sees_only_tool_calls_of_its_own_sessions(
    shared_agent: SharedAgent, owner: Client, server_with_files: Server
) -> None:
    own = shared_agent.chat()["data"]
    theirs = owner.chat(shared_agent.agent)["data"]
    with server_with_files.database.transaction() as tx:
        for ids in (own, theirs):
            attempt_records.add_tool_call(tx, UUID(ids["run_id"]), UUID(ids["message_id"]), "Agent:0", CALL)

    def read_logs(listed_id: str, ids: dict[str, Any]) -> dict[str, Any]:
        return shared_agent.guest.http.get(f"/api/v1/agentbots/{listed_id}/logs/{ids['message_id']}").json()

    trace = [{"component_id": "Agent:0", "trace": [CALL]}]
    assert [
        read_logs(listed_id, own)["data"] for listed_id in (shared_agent.agent, own["session_id"], own["run_id"])
    ] == [trace] * 3
    assert read_logs(shared_agent.agent, theirs)["data"] == {}
    assert [read_logs(listed_id, theirs)["code"] for listed_id in (theirs["session_id"], theirs["run_id"])] == [
        103,
        103,
    ]
    whole = owner.http.get(f"/api/v1/agents/{shared_agent.agent}/logs/{theirs['message_id']}").json()
    assert whole["data"] == trace


def test_share_link_uploads_only_to_its_agent(shared_agent: SharedAgent, other: str) -> None:
    accepted = upload(shared_agent.guest, shared_agent.agent)
    elsewhere = upload(shared_agent.guest, other)

    assert accepted["code"] == 0
    assert (elsewhere["code"], elsewhere["data"]) == (103, False)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/agents/attachments/{}/download",
        "/api/v1/document/download/{}",
        "/v1/document/download/{}",
        "/api/v1/documents/artifact/{}.txt",
    ],
)
def test_share_link_downloads_only_files_of_the_link(
    path: str, shared_agent: SharedAgent, owner: Client, server_with_files: Server
) -> None:
    own = upload(shared_agent.guest, shared_agent.agent)["data"]["id"]
    theirs = upload(owner, shared_agent.agent)["data"]["id"]
    own_output = store_produced_file(server_with_files, owner, UUID(shared_agent.chat()["data"]["run_id"]))
    other_output = store_produced_file(server_with_files, owner, UUID(owner.chat(shared_agent.agent)["data"]["run_id"]))

    def download(file_id: str) -> httpx2.Response:
        return shared_agent.guest.http.get(path.format(file_id))

    assert [download(file_id).content for file_id in (own, own_output)] == [b"bytes", b"bytes"]
    assert [download(file_id).json()["message"] for file_id in (theirs, other_output)] == [NOT_FOUND, NOT_FOUND]
    assert owner.http.get(path.format(other_output)).content == b"bytes"


def test_share_link_downloads_a_produced_file_after_its_run_was_deleted(
    shared_agent: SharedAgent, owner: Client, server_with_files: Server
) -> None:
    run_id = UUID(shared_agent.chat()["data"]["run_id"])
    file_id = store_produced_file(server_with_files, owner, run_id)

    with server_with_files.database.transaction() as tx:
        tx.execute(text("delete from runs where id = :run_id"), run_id=run_id)

    assert shared_agent.guest.http.get(f"/api/v1/agents/attachments/{file_id}/download").content == b"bytes"


def test_runs_of_a_share_link_read_files_of_the_link_and_files_named_in_the_canvas(
    owner: Client, server_with_files: Server
) -> None:
    authored = upload(owner, owner.agent(ECHO, "any"))["data"]["id"]
    dsl = canvas(("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message(f"See {UUID(authored)}"), []))
    agent = create_published_agent(owner, dsl, "named")
    theirs = upload(owner, agent)["data"]["id"]

    with create_share_link(server_with_files, owner, agent) as shared_agent:
        own = upload(shared_agent.guest, agent)["data"]["id"]
        run_id = UUID(shared_agent.chat(files=[{"id": theirs, "name": "a.txt"}])["data"]["run_id"])
    api_run = UUID(owner.chat(agent)["data"]["run_id"])

    def is_readable(file_id: str, run_id: UUID) -> bool:
        try:
            with server_with_files.database.transaction() as tx:
                uploads.get_for_run(tx, owner.tenant_id, UUID(file_id), run_id)
        except NotFound:
            return False
        return True

    assert [is_readable(file_id, run_id) for file_id in (own, authored, theirs)] == [True, True, False]
    assert [is_readable(file_id, api_run) for file_id in (own, authored, theirs)] == [True, True, True]


def test_run_of_a_share_link_with_a_file_of_its_owner_fails(owner: Client, server_with_files: Server) -> None:
    agent = create_published_agent(owner, canvas(*READS_FILES), "reads")
    theirs = upload(owner, agent)["data"]

    with create_share_link(server_with_files, owner, agent) as shared_agent:
        reply = shared_agent.chat(files=[theirs])

    assert "is not there. Upload it again." in reply["message"], reply


READS_FILES = (
    ("begin", "Begin", {}, ["Message:0"]),
    ("Message:0", "Message", message("{sys.files}"), []),
)


def test_idempotency_key_of_the_owner_is_new_for_a_share_link(shared_agent: SharedAgent, owner: Client) -> None:
    key = {"Idempotency-Key": "same"}
    theirs = upload(owner, shared_agent.agent, **key)["data"]["id"]
    path = f"/api/v1/openai/agents/{shared_agent.agent}/chat/completions"
    body = {"messages": [{"role": "user", "content": "hi"}], "release": True, "stream": False}
    owners_completion = owner.http.post(path, json=body, headers=key).json()["id"]

    assert upload(shared_agent.guest, shared_agent.agent, **key)["data"]["id"] != theirs
    first = shared_agent.guest.http.post(path, json=body, headers=key).json()["id"]
    again = shared_agent.guest.http.post(path, json=body, headers=key).json()["id"]
    assert first != owners_completion
    assert again == first


@pytest.mark.parametrize(
    "path", ["/api/v1/agents", "/api/v1/runs", "/api/v1/agents/{}", "/api/v1/agents/{}/sessions", "/api/v1/mcp/servers"]
)
def test_a_share_link_opens_no_route_of_api_tokens(shared_agent: SharedAgent, path: str) -> None:
    assert shared_agent.guest.http.get(path.format(shared_agent.agent)).status_code == 401


def test_share_link_without_an_agent_is_refused_until_it_is_bound_to_one(
    shared_agent: SharedAgent, owner: Client, server_with_files: Server
) -> None:
    with server_with_files.database.transaction() as tx:
        tx.execute(text("update tokens set canvas_id = null where id = :id"), id=shared_agent.token_id)
    unnamed = [
        shared_agent.chat(),
        upload(shared_agent.guest, shared_agent.agent),
        shared_agent.guest.http.get(f"/api/v1/agentbots/{shared_agent.agent}/inputs").json(),
    ]
    unnamed_model = shared_agent.guest.http.get("/api/v1/openai/models")

    with server_with_files.database.transaction() as tx:
        tenants.bind_token(tx, owner.tenant_id, shared_agent.token_id, UUID(shared_agent.agent))

    error = unnamed_model.json()["error"]
    assert [reply["code"] for reply in unnamed] == [
        102,
        401,
        102,
    ]  # the first and the last are RAGFlow's routes of links
    assert (unnamed_model.status_code, error["code"]) == (401, "invalid_api_key")
    assert all(reply["message"].startswith("This share link names no agent.") for reply in (*unnamed, error))
    assert shared_agent.chat()["data"]["data"]["content"] == "You said: hi"


def test_share_link_needs_one_agent_of_its_tenant(owner: Client, server_with_files: Server) -> None:
    stranger = server_with_files.client()
    theirs = UUID(stranger.agent(ECHO))
    stranger.http.close()

    def create(kind: str, canvas_id: UUID | None) -> None:
        with server_with_files.database.transaction() as tx:
            tenants.create_token(tx, owner.tenant_id, "x", kind, canvas_id=canvas_id)

    with pytest.raises(InvalidRequest, match="Name the agent"):
        create("beta", None)
    with pytest.raises(InvalidRequest, match="opens every agent"):
        create("admin", UUID(owner.agent(ECHO)))
    for unknown in (theirs, new_id()):
        with pytest.raises(NotFound, match="no agent"):
            create("beta", unknown)


def test_a_token_is_refused_once_it_has_expired(owner: Client, server_with_files: Server) -> None:
    with server_with_files.database.transaction() as tx:
        token_id, token = tenants.create_token(tx, owner.tenant_id, "x", expires_in=timedelta(days=30))
    guest = server_with_files.client_of(owner.tenant_id, token)
    before = guest.http.get("/api/v1/agents").status_code

    with server_with_files.database.transaction() as tx:
        tx.execute(text("update tokens set expires_at = now() where id = :id"), id=token_id)

    assert (before, guest.http.get("/api/v1/agents").status_code) == (200, 401)
    guest.http.close()


# -- revoked tokens ----------------------------------------------------------------------------------------------------


def revoke_tokens(server: Server, client: Client) -> None:
    with server.database.transaction() as tx:
        for token in tenants.list_tokens(tx, client.tenant_id):
            tenants.revoke_token(tx, client.tenant_id, token.id)


@pytest.mark.parametrize("route", ["chat", "openai", "events"])
def test_stream_ends_when_its_token_is_revoked_and_its_run_continues(route: str, workerless_server: Server) -> None:
    """No worker executes the run, so the stream would otherwise stay open."""
    client = workerless_server.client()
    agent = client.agent(ECHO)
    run_id = client.start(agent)["run_id"]
    requests = {
        "chat": ("POST", "/api/v1/agents/chat/completions", {"agent_id": agent, "query": "hi", "stream": True}),
        "openai": (
            "POST",
            f"/api/v1/openai/agents/{agent}/chat/completions",
            {"messages": [{"role": "user", "content": "hi"}], "stream": True},
        ),
        "events": ("GET", f"/api/v1/runs/{run_id}/events", None),
    }
    method, path, body = requests[route]

    with client.http.stream(method, path, json=body, headers={"Accept": "text/event-stream"}) as response:
        started = response.headers.get("x-run-id", run_id)
        revoke_tokens(workerless_server, client)
        events = [frame.data for frame in frames(response.iter_lines())]

    last = events[-1] if route == "events" else events[-2]
    error = last["error"] if route == "openai" else last
    assert error["message"] == "The token of this stream was revoked or has expired."
    assert (error["code"], error["run_id"]) == ("invalid_api_key" if route == "openai" else 401, started)
    assert route == "events" or events[-1] == "[DONE]"
    with workerless_server.database.transaction() as tx:
        assert tx.scalar(text("select status from runs where id = :id"), id=UUID(started)) == "running"
    client.http.close()


@pytest.mark.parametrize("route", ["chat", "openai", "run"])
def test_waiting_request_is_refused_when_its_token_is_revoked(route: str, workerless_server: Server) -> None:
    client = workerless_server.client()
    agent = client.agent(ECHO)
    replies: list[httpx2.Response] = []
    requests = {
        "chat": ("agents/chat/completions", {"agent_id": agent, "query": "hi"}),
        "openai": ("openai/chat/completions", {"model": agent, "messages": [{"role": "user", "content": "hi"}]}),
        "run": (f"agents/{agent}/runs", {"query": "hi"}),
    }
    path, body = requests[route]

    def wait() -> None:
        replies.append(client.http.post(f"/api/v1/{path}", json=body, headers={"Prefer": "wait=60"}, timeout=60))

    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until_started(workerless_server, client)
    revoke_tokens(workerless_server, client)
    waiting.join(timeout=60)

    (reply,) = replies
    error = reply.json()["error"] if route == "openai" else reply.json()
    assert reply.status_code == 401
    assert error["message"] == "The token of this stream was revoked or has expired."
    assert error["code"] == {"chat": 401, "openai": "invalid_api_key", "run": "unauthorized"}[route]
    assert route != "openai" or reply.headers["x-should-retry"] == "false"  # its run was accepted
    client.http.close()


def wait_until_started(server: Server, client: Client) -> None:
    def count_runs() -> int:
        with server.database.transaction() as tx:
            return tx.scalar(text("select count(*) from runs where tenant_id = :id"), id=client.tenant_id)

    eventually(count_runs, lambda number: number == 1, seconds=60)


def store_produced_file(server: Server, client: Client, run_id: UUID) -> str:
    """Store a file as the output of a run; return its id."""
    file_id = new_id()
    with server.database.transaction() as tx:
        content = uploads.store_content(blobs_of(server), "a.txt", "text/plain", b"bytes")
        uploads.put_row(tx, client.tenant_id, file_id, content, run_id=run_id)
    return file_id.hex


def blobs_of(server: Server) -> LocalBlobs:
    return LocalBlobs(server.config.settings.files_dir)
