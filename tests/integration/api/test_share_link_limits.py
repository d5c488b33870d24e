"""What a share link opens: one agent, as it is published, and what came by the link. Nothing else of its tenant."""

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
from tests.integration.api.conftest import Server, a_server, with_settings
from tests.integration.api.talking import ECHO, FORM, Client, canvas, eventually, frames, message

DRAFT = canvas(
    ("begin", "Begin", {"prologue": "Draft."}, ["Message:0"]),
    ("Message:0", "Message", message("Draft says: {sys.query}"), []),
)
NOT_FOUND = "document not found"
CALL = {"tool_name": "search", "arguments": {}, "result": "secret", "elapsed_time": 0.1, "path": "a"}


@pytest.fixture(scope="module")
def sharing(server: Server, engine: local_engine.Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The application with a worker behind it and a folder for files."""
    with a_server(with_settings(server.config, files_dir=tmp_path_factory.mktemp("files"))) as sharing:
        yield sharing


@pytest.fixture
def owner(sharing: Server) -> Iterator[Client]:
    owner = sharing.client()
    yield owner
    owner.http.close()


@dataclass(frozen=True)
class Shared:
    """An agent, and somebody who has its share link."""

    agent: str
    guest: Client
    token_id: UUID

    def chat(self, **body: Any) -> dict[str, Any]:
        path = f"/api/v1/agentbots/{self.agent}/completions"
        return self.guest.http.post(path, json={"query": "hi", "stream": False, **body}).json()


def published(client: Client, dsl: Any, title: str) -> str:
    agent = client.agent(dsl, title)
    assert client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["code"] == 0
    return agent


@contextmanager
def shared_of(server: Server, client: Client, agent: str) -> Generator[Shared]:
    with server.database.transaction() as tx:
        token_id, token = tenants.create_token(tx, client.tenant_id, "link", "beta", canvas_id=UUID(agent))
    guest = server.client_of(client.tenant_id, token)
    yield Shared(agent, guest, token_id)
    guest.http.close()


@pytest.fixture
def shared(sharing: Server, owner: Client) -> Iterator[Shared]:
    agent = published(owner, ECHO, "shared")
    owner.http.put(f"/api/v1/agents/{agent}", json={"dsl": DRAFT})
    with shared_of(sharing, owner, agent) as shared:
        yield shared


@pytest.fixture
def other(owner: Client) -> str:
    """Another agent of the same tenant."""
    return published(owner, ECHO, "other")


def upload(client: Client, agent: str, name: str = "a.txt", **headers: str) -> dict[str, Any]:
    sent = {"file": (name, b"bytes")}
    return client.http.post(f"/api/v1/agents/{agent}/upload", files=sent, headers=headers).json()


def test_a_share_link_runs_the_published_version_of_its_agent_alone(shared: Shared, other: str, owner: Client) -> None:
    (newest, *_) = owner.http.get(f"/api/v1/agents/{shared.agent}/versions").json()["data"]

    told = shared.chat()
    asked = [shared.chat(version=version) for version in ("draft", "latest", newest["id"])]
    elsewhere = shared.guest.http.post(f"/api/v1/agentbots/{other}/completions", json={"query": "hi"}).json()

    assert told["data"]["data"]["content"] == "You said: hi"
    assert {(reply["code"], reply["message"]) for reply in asked} == {
        (103, "A share link runs the published version. Leave out `version`.")
    }
    assert (elsewhere["code"], elsewhere["message"]) == (102, f"Can't find agent by ID: {other}")


def test_a_share_link_of_what_is_not_published_says_so(sharing: Server, owner: Client) -> None:
    with shared_of(sharing, owner, owner.agent(ECHO)) as shared:
        told = shared.chat()
        shown = shared.guest.http.get(f"/api/v1/agentbots/{shared.agent}/inputs").json()

    assert (told["code"], told["message"]) == (102, "No available published version")
    assert (shown["code"], shown["message"]) == (102, "No available published version")


def test_a_share_link_shows_the_form_of_the_published_version_alone(shared: Shared, other: str, owner: Client) -> None:
    shown = shared.guest.http.get(f"/api/v1/agentbots/{shared.agent}/inputs").json()
    drafted = owner.http.get(f"/api/v1/agentbots/{shared.agent}/inputs").json()
    elsewhere = shared.guest.http.get(f"/api/v1/agentbots/{other}/inputs").json()

    assert shown["data"]["prologue"] == "Hello, I repeat."
    assert drafted["data"]["prologue"] == "Draft."
    assert elsewhere["message"] == f"Can't find agent by ID: {other}"


def test_a_share_link_speaks_openais_words_to_its_agent_alone(shared: Shared, other: str) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": False}

    told = shared.guest.http.post(f"/api/v1/openai/agents/{shared.agent}/chat/completions", json=body).json()
    named = shared.guest.http.post("/api/v1/openai/chat/completions", json={**body, "model": shared.agent}).json()
    elsewhere = [
        shared.guest.http.post(f"/api/v1/openai/agents/{other}/chat/completions", json=body),
        shared.guest.http.post("/api/v1/openai/chat/completions", json={**body, "model": other}),
    ]
    drafts = shared.guest.http.post(
        "/api/v1/openai/chat/completions", json={**body, "model": shared.agent, "version": "draft"}
    )

    assert [reply["choices"][0]["message"]["content"] for reply in (told, named)] == ["You said: hi"] * 2
    assert [(reply.status_code, reply.json()["error"]["code"]) for reply in elsewhere] == [(404, "model_not_found")] * 2
    assert (drafts.status_code, drafts.json()["error"]["code"]) == (403, "not_allowed")


def test_a_share_link_shows_its_agent_alone_as_a_model(shared: Shared, other: str) -> None:
    def shown(path: str) -> httpx2.Response:
        return shared.guest.http.get(f"/api/v1/openai{path}")

    lists = [shown("/models"), shown(f"/agents/{shared.agent}/models")]
    own = [shown(f"/models/{shared.agent}"), shown(f"/agents/{shared.agent}/models/{shared.agent}")]
    others = [
        shown(path) for path in (f"/models/{other}", f"/agents/{other}/models", f"/agents/{other}/models/{other}")
    ]

    assert [[each["id"] for each in reply.json()["data"]] for reply in lists] == [[shared.agent]] * 2
    assert [reply.json()["id"] for reply in own] == [shared.agent] * 2
    assert [(reply.status_code, reply.json()["error"]["code"]) for reply in others] == [(404, "model_not_found")] * 3


def test_files_in_messages_of_a_share_link_are_those_of_the_link(shared: Shared, owner: Client) -> None:
    own = upload(shared.guest, shared.agent)["data"]["id"]
    theirs = upload(owner, shared.agent)["data"]["id"]

    def send(part: dict[str, Any]) -> httpx2.Response:
        body = {"model": shared.agent, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, part]}]}
        return shared.guest.http.post("/api/v1/openai/chat/completions", json=body)

    uploaded = send({"type": "file", "file": {"file_id": own}})
    brought = send({"type": "image_url", "image_url": {"url": "data:image/png;base64,Ynl0ZXM="}})
    refused = send({"type": "file", "file": {"file_id": theirs}})

    assert [reply.status_code for reply in (uploaded, brought, refused)] == [200, 200, 400]
    assert refused.json()["error"]["message"] == f"There is no file {theirs}. Upload it first."
    (picture,) = owner.run(brought.headers["x-run-id"])["request"]["files"]
    fetched = shared.guest.http.get(f"/api/v1/agents/attachments/{picture['id']}/download")
    assert fetched.content == b"bytes"


def test_a_share_link_goes_on_in_sessions_that_were_begun_by_it_alone(
    shared: Shared, owner: Client, sharing: Server
) -> None:
    own = shared.chat()["data"]["session_id"]
    theirs = owner.say(shared.agent)["data"]["session_id"]
    with shared_of(sharing, owner, shared.agent) as second:
        of_another_link = second.chat()["data"]["session_id"]

    again = shared.chat(session_id=own)
    refused = [shared.chat(session_id=session) for session in (theirs, of_another_link, "0" * 32)]
    in_openais_words = shared.guest.http.post(
        f"/api/v1/openai/agents/{shared.agent}/chat/completions",
        json={"messages": [{"role": "user", "content": "hi"}], "session_id": theirs},
    )

    assert again["data"]["session_id"] == own
    assert {(reply["code"], reply["message"]) for reply in refused} == {(102, "Session not found!")}
    assert in_openais_words.status_code == 404
    assert in_openais_words.json()["error"]["message"] == "Session not found!"


def test_a_share_link_answers_forms_of_its_own_sessions_alone(sharing: Server, owner: Client) -> None:
    agent = published(owner, FORM, "form")
    theirs = owner.say(agent)["data"]["session_id"]
    answer = {"inputs": {"name": {"value": "Ada"}}}

    with shared_of(sharing, owner, agent) as shared:
        own = shared.chat()["data"]["session_id"]
        answered = shared.chat(session_id=own, **answer)
        refused = shared.chat(session_id=theirs, **answer)

    assert answered["data"]["data"]["content"] == "Hello Ada"
    assert refused["message"] == "Session not found!"
    assert owner.say(agent, session_id=theirs, **answer)["data"]["data"]["content"] == "Hello Ada"


def test_a_share_link_sees_tool_calls_of_its_own_sessions_alone(shared: Shared, owner: Client, sharing: Server) -> None:
    own = shared.chat()["data"]
    theirs = owner.say(shared.agent)["data"]
    with sharing.database.transaction() as tx:
        for told in (own, theirs):
            attempt_records.add_tool_call(tx, UUID(told["run_id"]), UUID(told["message_id"]), "Agent:0", CALL)

    def seen(named: str, told: dict[str, Any]) -> dict[str, Any]:
        return shared.guest.http.get(f"/api/v1/agentbots/{named}/logs/{told['message_id']}").json()

    traced = [{"component_id": "Agent:0", "trace": [CALL]}]
    assert [seen(named, own)["data"] for named in (shared.agent, own["session_id"], own["run_id"])] == [traced] * 3
    assert seen(shared.agent, theirs)["data"] == {}
    assert [seen(named, theirs)["code"] for named in (theirs["session_id"], theirs["run_id"])] == [103, 103]
    whole = owner.http.get(f"/api/v1/agents/{shared.agent}/logs/{theirs['message_id']}").json()
    assert whole["data"] == traced


def test_a_share_link_uploads_to_its_agent_alone(shared: Shared, other: str) -> None:
    kept = upload(shared.guest, shared.agent)
    elsewhere = upload(shared.guest, other)

    assert kept["code"] == 0
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
def test_a_share_link_downloads_what_came_by_it_alone(
    path: str, shared: Shared, owner: Client, sharing: Server
) -> None:
    own = upload(shared.guest, shared.agent)["data"]["id"]
    theirs = upload(owner, shared.agent)["data"]["id"]
    made = produced(sharing, owner, UUID(shared.chat()["data"]["run_id"]))
    made_for_others = produced(sharing, owner, UUID(owner.say(shared.agent)["data"]["run_id"]))

    def got(file_id: str) -> httpx2.Response:
        return shared.guest.http.get(path.format(file_id))

    assert [got(file_id).content for file_id in (own, made)] == [b"bytes", b"bytes"]
    assert [got(file_id).json()["message"] for file_id in (theirs, made_for_others)] == [NOT_FOUND, NOT_FOUND]
    assert owner.http.get(path.format(made_for_others)).content == b"bytes"


def test_what_a_run_has_produced_stays_with_the_link_after_the_run_was_dropped(
    shared: Shared, owner: Client, sharing: Server
) -> None:
    run_id = UUID(shared.chat()["data"]["run_id"])
    made = produced(sharing, owner, run_id)

    with sharing.database.transaction() as tx:
        tx.execute(text("delete from runs where id = :run_id"), run_id=run_id)

    assert shared.guest.http.get(f"/api/v1/agents/attachments/{made}/download").content == b"bytes"


def test_runs_of_a_share_link_read_what_came_by_it_and_what_the_author_named(owner: Client, sharing: Server) -> None:
    authored = upload(owner, owner.agent(ECHO, "any"))["data"]["id"]
    named = canvas(
        ("begin", "Begin", {}, ["Message:0"]), ("Message:0", "Message", message(f"See {UUID(authored)}"), [])
    )
    agent = published(owner, named, "named")
    theirs = upload(owner, agent)["data"]["id"]

    with shared_of(sharing, owner, agent) as shared:
        own = upload(shared.guest, agent)["data"]["id"]
        run_id = UUID(shared.chat(files=[{"id": theirs, "name": "a.txt"}])["data"]["run_id"])
    api_run = UUID(owner.say(agent)["data"]["run_id"])

    def is_readable(file_id: str, run_id: UUID) -> bool:
        try:
            with sharing.database.transaction() as tx:
                uploads.get_for_run(tx, owner.tenant_id, UUID(file_id), run_id)
        except NotFound:
            return False
        return True

    assert [is_readable(file_id, run_id) for file_id in (own, authored, theirs)] == [True, True, False]
    assert [is_readable(file_id, api_run) for file_id in (own, authored, theirs)] == [True, True, True]


def test_a_file_of_somebody_else_fails_the_turn_that_a_share_link_brings_it_to(owner: Client, sharing: Server) -> None:
    agent = published(owner, canvas(*READS_FILES), "reads")
    theirs = upload(owner, agent)["data"]

    with shared_of(sharing, owner, agent) as shared:
        told = shared.chat(files=[theirs])

    assert "is not there. Upload it again." in told["message"], told


READS_FILES = (
    ("begin", "Begin", {}, ["Message:0"]),
    ("Message:0", "Message", message("{sys.files}"), []),
)


def test_an_idempotency_key_of_the_tenants_tells_a_share_link_nothing(shared: Shared, owner: Client) -> None:
    key = {"Idempotency-Key": "same"}
    theirs = upload(owner, shared.agent, **key)["data"]["id"]
    path = f"/api/v1/openai/agents/{shared.agent}/chat/completions"
    body = {"messages": [{"role": "user", "content": "hi"}], "release": True, "stream": False}
    their_turn = owner.http.post(path, json=body, headers=key).json()["id"]

    assert upload(shared.guest, shared.agent, **key)["data"]["id"] != theirs
    first = shared.guest.http.post(path, json=body, headers=key).json()["id"]
    again = shared.guest.http.post(path, json=body, headers=key).json()["id"]
    assert first != their_turn
    assert again == first


@pytest.mark.parametrize(
    "path", ["/api/v1/agents", "/api/v1/runs", "/api/v1/agents/{}", "/api/v1/agents/{}/sessions", "/api/v1/mcp/servers"]
)
def test_a_share_link_opens_no_route_of_api_tokens(shared: Shared, path: str) -> None:
    assert shared.guest.http.get(path.format(shared.agent)).status_code == 401


def test_a_share_link_that_names_no_agent_opens_nothing_until_one_is_named(
    shared: Shared, owner: Client, sharing: Server
) -> None:
    with sharing.database.transaction() as tx:
        tx.execute(text("update tokens set canvas_id = null where id = :id"), id=shared.token_id)
    unnamed = [
        shared.chat(),
        upload(shared.guest, shared.agent),
        shared.guest.http.get(f"/api/v1/agentbots/{shared.agent}/inputs").json(),
    ]
    unnamed_model = shared.guest.http.get("/api/v1/openai/models")

    with sharing.database.transaction() as tx:
        tenants.bind_token(tx, owner.tenant_id, shared.token_id, UUID(shared.agent))

    told = unnamed_model.json()["error"]
    assert [reply["code"] for reply in unnamed] == [401] * 3
    assert (unnamed_model.status_code, told["code"]) == (401, "invalid_api_key")
    assert all(reply["message"].startswith("This share link names no agent.") for reply in (*unnamed, told))
    assert shared.chat()["data"]["data"]["content"] == "You said: hi"


def test_a_share_link_is_made_for_one_agent_of_its_tenant(owner: Client, sharing: Server) -> None:
    stranger = sharing.client()
    theirs = UUID(stranger.agent(ECHO))
    stranger.http.close()

    def make(kind: str, canvas_id: UUID | None) -> None:
        with sharing.database.transaction() as tx:
            tenants.create_token(tx, owner.tenant_id, "x", kind, canvas_id=canvas_id)

    with pytest.raises(InvalidRequest, match="Name the agent"):
        make("beta", None)
    with pytest.raises(InvalidRequest, match="opens every agent"):
        make("api", UUID(owner.agent(ECHO)))
    for unknown in (theirs, new_id()):
        with pytest.raises(NotFound, match="no agent"):
            make("beta", unknown)


def test_a_token_is_refused_once_it_has_expired(owner: Client, sharing: Server) -> None:
    with sharing.database.transaction() as tx:
        token_id, token = tenants.create_token(tx, owner.tenant_id, "x", expires_in=timedelta(days=30))
    guest = sharing.client_of(owner.tenant_id, token)
    before = guest.http.get("/api/v1/agents").status_code

    with sharing.database.transaction() as tx:
        tx.execute(text("update tokens set expires_at = now() where id = :id"), id=token_id)

    assert (before, guest.http.get("/api/v1/agents").status_code) == (200, 401)
    guest.http.close()


# -- streams end with their token -------------------------------------------------------------------------------------


def revoke(server: Server, client: Client) -> None:
    with server.database.transaction() as tx:
        for token in tenants.list_tokens(tx, client.tenant_id):
            tenants.revoke_token(tx, client.tenant_id, token.id)


@pytest.mark.parametrize("way", ["chat", "openai", "events"])
def test_a_stream_ends_with_its_token_and_its_run_goes_on(way: str, lonely_server: Server) -> None:
    """Nobody carries the run out, so that the stream would stay open for ever."""
    lonely = lonely_server.client()
    agent = lonely.agent(ECHO)
    run_id = lonely.start(agent)["run_id"]
    asked = {
        "chat": ("POST", "/api/v1/agents/chat/completions", {"agent_id": agent, "query": "hi", "stream": True}),
        "openai": (
            "POST",
            f"/api/v1/openai/agents/{agent}/chat/completions",
            {"messages": [{"role": "user", "content": "hi"}], "stream": True},
        ),
        "events": ("GET", f"/api/v1/runs/{run_id}/events", None),
    }
    method, path, body = asked[way]

    with lonely.http.stream(method, path, json=body, headers={"Accept": "text/event-stream"}) as response:
        started = response.headers.get("x-run-id", run_id)
        revoke(lonely_server, lonely)
        seen = [frame.data for frame in frames(response.iter_lines())]

    last = seen[-1] if way == "events" else seen[-2]
    told = last["error"] if way == "openai" else last
    assert told["message"] == "The token of this stream was revoked or has expired."
    assert (told["code"], told["run_id"]) == ("invalid_api_key" if way == "openai" else 401, started)
    assert way == "events" or seen[-1] == "[DONE]"
    with lonely_server.database.transaction() as tx:
        assert tx.scalar(text("select status from runs where id = :id"), id=UUID(started)) == "running"
    lonely.http.close()


@pytest.mark.parametrize("way", ["chat", "openai", "run"])
def test_who_waits_for_a_turn_is_refused_once_the_token_was_revoked(way: str, lonely_server: Server) -> None:
    lonely = lonely_server.client()
    agent = lonely.agent(ECHO)
    refused: list[httpx2.Response] = []
    asked = {
        "chat": ("agents/chat/completions", {"agent_id": agent, "query": "hi"}),
        "openai": ("openai/chat/completions", {"model": agent, "messages": [{"role": "user", "content": "hi"}]}),
        "run": (f"agents/{agent}/runs", {"query": "hi"}),
    }
    path, body = asked[way]

    def wait() -> None:
        refused.append(lonely.http.post(f"/api/v1/{path}", json=body, headers={"Prefer": "wait=60"}, timeout=60))

    waiting = threading.Thread(target=wait)
    waiting.start()
    until_running(lonely_server, lonely)
    revoke(lonely_server, lonely)
    waiting.join(timeout=60)

    (reply,) = refused
    told = reply.json()["error"] if way == "openai" else reply.json()
    assert reply.status_code == 401
    assert told["message"] == "The token of this stream was revoked or has expired."
    assert told["code"] == {"chat": 401, "openai": "invalid_api_key", "run": "unauthorized"}[way]
    assert way != "openai" or reply.headers["x-should-retry"] == "false"  # its run was accepted
    lonely.http.close()


def until_running(server: Server, client: Client) -> None:
    def running() -> int:
        with server.database.transaction() as tx:
            return tx.scalar(text("select count(*) from runs where tenant_id = :id"), id=client.tenant_id)

    eventually(running, lambda number: number == 1, seconds=60)


def produced(server: Server, client: Client, run_id: UUID) -> str:
    """A file that a run has produced."""
    file_id = new_id()
    with server.database.transaction() as tx:
        kept = uploads.store_content(blobs_of(server), "a.txt", "text/plain", b"bytes")
        uploads.put_row(tx, client.tenant_id, file_id, kept, run_id=run_id)
    return file_id.hex


def blobs_of(server: Server) -> LocalBlobs:
    return LocalBlobs(server.config.settings.files_dir)
