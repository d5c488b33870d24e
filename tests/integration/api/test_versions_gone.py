"""Sessions and runs after their version was deleted."""

from uuid import UUID

import pytest
from sqlalchemy import text

from tests.integration.api.conftest import Server, start_server
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
