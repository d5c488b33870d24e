"""What sessions and runs show after the version that they are on was deleted."""

from uuid import UUID

import pytest
from sqlalchemy import text

from tests.integration.api.conftest import Server, a_server
from tests.integration.api.talking import ECHO, FORM, Client


def deleted_by_force(client: Client, agent: str, version: str) -> None:
    reply = client.http.delete(f"/api/v1/agents/{agent}/versions/{version}", params={"force": "true"}).json()
    assert reply["data"] is True


def gone(client: Client, server: Server, version: str) -> None:
    """As releases before this one have left it."""
    with server.database.transaction() as tx:
        tx.execute(text("delete from versions where id = :id"), id=UUID(version))


@pytest.mark.parametrize("by", ["force", "an earlier release"])
def test_sessions_and_runs_are_shown_after_their_version_was_deleted(client: Client, server: Server, by: str) -> None:
    agent = client.agent(ECHO)
    said = client.start(agent, "hello")
    session, run = said["session_id"], said["run_id"]
    client.until(run, "succeeded")
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": FORM})
    if by == "force":
        deleted_by_force(client, agent, version["id"])
    else:
        gone(client, server, version["id"])

    with a_server(server.config) as fresh:  # a process that has not compiled that version
        there = fresh.client_of(client.tenant_id, client.token)
        listed = there.http.get(f"/api/v1/agents/{agent}/sessions").json()
        whole = there.http.get(f"/api/v1/agents/{agent}/sessions/{session}").json()
        shown = there.http.get(f"/api/v1/runs/{run}").json()
        explained = there.http.get(f"/api/v1/runs/{run}/explain").json()
        events = there.http.get(f"/api/v1/runs/{run}/events").json()
        versions = there.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]

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


def test_the_next_turn_of_a_session_whose_version_is_gone_is_refused_with_what_to_do(
    client: Client, server: Server
) -> None:
    agent = client.agent(ECHO)
    said = client.start(agent, "hello")
    client.until(said["run_id"], "succeeded")
    (version,) = client.http.get(f"/api/v1/agents/{agent}/versions").json()["data"]
    gone(client, server, version["id"])

    with a_server(server.config) as fresh:
        there = fresh.client_of(client.tenant_id, client.token)
        reply = there.say(agent, "again", session_id=said["session_id"])

    assert "not there any more" in reply["message"]
    assert "new session" in reply["message"]
