"""Sessions and runs after their version was deleted."""

import re
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from api.app import create_app
from tests.integration.api.conftest import Server, config_of, start_server
from tests.integration.api.live_frames import follow
from tests.integration.api.talking import ECHO, FORM, Client


def force_delete_version(client: Client, agent: str, version: str) -> None:
    reply = client.http.delete(f"/api/v1/agents/{agent}/versions/{version}", params={"force": "true"}).json()
    assert reply["data"] is True


def delete_version_row(client: Client, server: Server, version: str) -> None:
    """Delete the row only, as earlier releases did."""
    with server.database.transaction() as tx:
        tx.execute(text("delete from versions where id = :id"), id=UUID(version))


@pytest.mark.parametrize("by", ["force", "an earlier release"])
def test_sessions_and_runs_are_shown_after_their_version_was_deleted(client: Client, server: Server, by: str) -> None:
    agent = client.agent(ECHO)
    started = client.start(agent, "hello")
    session, run = started["session_id"], started["run_id"]
    client.wait_for(run, "succeeded")
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": FORM})
    if by == "force":
        force_delete_version(client, agent, version["id"])
    else:
        delete_version_row(client, server, version["id"])

    with start_server(server.config) as new_server:  # a process that has not compiled that version
        new_client = new_server.client_of(client.tenant_id, client.token)
        listed = new_client.http.get(f"/api/v1/agents/{agent}/sessions").json()
        whole = new_client.http.get(f"/api/v1/agents/{agent}/sessions/{session}").json()
        shown = new_client.http.get(f"/api/v1/runs/{run}").json()
        explained = new_client.http.get(f"/api/v1/runs/{run}/explain").json()
        events = new_client.http.get(f"/api/v1/runs/{run}/events").json()
        versions = new_client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]

    assert listed["code"] == 0, listed
    assert [each["id"] for each in listed["data"]] == [session]
    messages = [message["content"] for message in listed["data"][0]["message"]]
    assert messages[-2:] == ["hello", "You said: hello"]
    assert whole["code"] == 0, whole
    assert shown["answer"] == "You said: hello"
    assert [each["node_id"] for each in shown["activations"]] == ["begin", "Message:0"]
    assert "error" not in explained
    assert events
    assert version["id"] not in [each["id"] for each in versions]


def test_next_turn_of_a_session_with_a_deleted_version_is_refused_with_advice(client: Client, server: Server) -> None:
    agent = client.agent(ECHO)
    started = client.start(agent, "hello")
    client.wait_for(started["run_id"], "succeeded")
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    delete_version_row(client, server, version["id"])

    with start_server(server.config) as new_server:
        new_client = new_server.client_of(client.tenant_id, client.token)
        reply = new_client.chat(agent, "again", session_id=started["session_id"])

    assert "not there any more" in reply["message"]
    assert "new session" in reply["message"]


# -- every route that shows a run or a session -------------------------------------------------------------------------
GRAPH = "/api/v1/runs/{run_id}/graph"
DOCUMENT = "/api/v1/runs/{run_id}/document"
NEED_MORE = ("/api/v1/runs/{run_id}/items",)  # needs the activation of a container


def list_readers() -> list[str]:
    """Return every path below which a run or a session is read, and the lists of both."""
    paths: dict[str, Any] = create_app(config_of("postgresql+psycopg://nowhere/x", "redis://nowhere")).openapi()[
        "paths"
    ]
    return [
        path
        for path, methods in paths.items()
        if "get" in methods and (path == "/api/v1/runs" or re.search(r"{run_id}|{message_id}|/sessions", path))
    ]


def ids_of(client: Client, agent: str, started: dict[str, Any]) -> dict[str, str]:
    """Return an id for each placeholder of those paths."""
    activations = client.run(started["run_id"])["activations"]
    return {"agent_id": agent, "activation_id": activations[-1]["id"], **started}


def read_all(client: Client, ids: dict[str, str], *, of_agent: bool = True) -> dict[str, tuple[int, Any]]:
    """Return the status and the body of each path that the ids complete, without the times of the replies."""
    replies: dict[str, tuple[int, Any]] = {}
    for path in list_readers():
        if path in NEED_MORE:
            continue
        if set(re.findall(r"{(\w+)}", path)) <= set(ids) and (of_agent or "{agent_id}" not in path):
            if path.endswith("/live"):
                frames = follow(client.http, ids["run_id"])
                replies[path] = 200, {"frames": sorted({frame.name for frame in frames})}
                continue
            reply = client.http.get(path.format(**ids))
            if reply.headers["Content-Type"].startswith("text/event-stream"):
                replies[path] = reply.status_code, {"text": reply.text}
                continue
            body = reply.json()
            body.pop("now", None)
            body.pop("exported_at", None)
            replies[path] = reply.status_code, body
    return replies


def restarted(server: Server, client: Client, ids: dict[str, str], **options: Any) -> dict[str, tuple[int, Any]]:
    """Return what a process answers that has compiled no version yet."""
    with start_server(server.config) as new_server:
        return read_all(new_server.client_of(client.tenant_id, client.token), ids, **options)


def test_the_readers_include_runs_events_explanations_and_sessions() -> None:
    assert set(list_readers()) >= {
        "/api/v1/agents/{agent_id}/logs/{message_id}",
        "/api/v1/agents/{agent_id}/sessions",
        "/api/v1/agents/{agent_id}/sessions/{session_id}",
        "/api/v1/runs",
        "/api/v1/runs/{run_id}",
        "/api/v1/runs/{run_id}/events",
        "/api/v1/runs/{run_id}/explain",
    }


def test_every_reader_answers_the_same_after_the_version_was_deleted_by_force(client: Client, server: Server) -> None:
    agent = client.agent(FORM)
    waiting = client.start(agent, "hello")
    client.wait_for(waiting["run_id"], "waiting")
    client.http.post(f"/api/v1/runs/{waiting['run_id']}/resume", json={"inputs": {"name": "Ada"}})
    client.wait_for(waiting["run_id"], "succeeded")
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    ids = ids_of(client, agent, waiting)
    before = restarted(server, client, ids)

    force_delete_version(client, agent, version["id"])

    assert restarted(server, client, ids) == before
    assert {status for status, _ in before.values()} == {200}
    assert not [path for path, (_, body) in before.items() if body.get("code")]


@pytest.mark.parametrize("by", ["the deletion of its agent", "an earlier release"])
def test_every_reader_of_a_run_answers_after_its_version_lost_its_agent_or_its_row(
    client: Client, server: Server, by: str
) -> None:
    agent = client.agent(ECHO)
    started = client.start(agent, "hello")
    client.wait_for(started["run_id"], "succeeded")
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    ids = ids_of(client, agent, started)
    is_whole = by == "an earlier release"
    before = restarted(server, client, ids, of_agent=is_whole)

    if is_whole:
        delete_version_row(client, server, version["id"])
    else:
        assert client.http.delete(f"/api/v1/agents/{agent}").json()["data"] is True

    after = restarted(server, client, ids, of_agent=is_whole)
    if is_whole:  # an earlier release has deleted the row, and the document with it
        for path in (GRAPH, DOCUMENT):
            status, body = after.pop(path)
            assert (status, body["code"]) == (404, "version_gone")
    assert {path: status for path, (status, _) in after.items()} == dict.fromkeys(before.keys() & after.keys(), 200)
    assert not [path for path, (_, body) in after.items() if body.get("code")]


def test_a_deleted_version_is_in_no_list_and_starts_nothing(client: Client) -> None:
    agent = client.agent(ECHO)
    started = client.start(agent, "hello")
    client.wait_for(started["run_id"], "succeeded")
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    of_version = f"/api/v1/agents/{agent}/versions/{version['id']}"
    force_delete_version(client, agent, version["id"])

    shown = client.http.get(of_version).json()
    started_anew = client.http.post(f"/api/v1/agents/{agent}/runs", json={"query": "x", "version": version["id"]})
    ran = client.http.post(f"/api/v1/agents/{agent}/run", params={"version": version["id"]}, json={"query": "x"})
    continued = client.chat(agent, "again", session_id=started["session_id"])

    assert client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"] == []
    assert (shown["code"], shown["message"]) == (102, "Version not found.")
    assert (started_anew.status_code, started_anew.json()["message"]) == (404, "Version not found.")
    assert (ran.json()["code"], ran.json()["message"]) == (102, "Version not found.")
    assert continued["data"]["data"]["content"] == "You said: again"


def test_an_agent_whose_only_release_was_deleted_shows_no_time_of_publication(client: Client) -> None:
    agent = client.agent(ECHO)
    published = client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["data"]
    started = client.start(agent, "hello", release=True)
    client.wait_for(started["run_id"], "succeeded")
    assert client.http.get(f"/api/v1/agents/{agent}").json()["data"]["last_publish_time"] is not None

    force_delete_version(client, agent, published["id"])

    (listed,) = client.http.get("/api/v1/agents").json()["data"]["canvas"]
    assert client.http.get(f"/api/v1/agents/{agent}").json()["data"]["last_publish_time"] is None
    assert listed["release_time"] is None
