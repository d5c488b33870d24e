"""Sessions over HTTP: created on a version, listed with their messages, deleted with their runs."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from store.primitives.ids import new_id
from store.runs import attempt_records
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, FORM, Client


def create(client: Client, agent: str, **body: Any) -> dict[str, Any]:
    return client.http.post(f"/api/v1/agents/{agent}/sessions", json=body).json()


def test_a_new_session_begins_with_the_prologue(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    reply = create(workerless_client, agent, name="mine")

    session = reply["data"]
    assert set(reply) == {"code", "data"}
    assert session["agent_id"] == agent
    assert session["source"] == "agent"
    assert session["name"] == "mine"
    assert session["user_id"] == workerless_client.tenant_id.hex
    assert session["message"] == [{"role": "assistant", "content": "Hello, I repeat."}]
    assert session["dsl"]["history"] == []


def test_a_session_stays_on_the_version_it_was_created_with(client: Client) -> None:
    agent = client.agent(ECHO)
    session = create(client, agent)["data"]["id"]
    client.http.put(f"/api/v1/agents/{agent}", json={"dsl": FORM})

    assert client.chat(agent, "x", session_id=session)["data"]["data"]["content"] == "You said: x"


def test_session_with_release_needs_a_published_version(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)

    assert create(workerless_client, agent, release="true")["message"] == "No available published version"
    assert create(workerless_client, agent, release="false")["code"] == 0
    assert create(workerless_client, "0" * 32)["message"] == "Agent not found."


def test_sessions_are_listed_by_user_keyword_and_time(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    first = create(workerless_client, agent, user_id="ann", name="one")["data"]["id"]
    second = create(workerless_client, agent, user_id="bob", name="two")["data"]["id"]
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()

    def ids(**query: Any) -> list[str]:
        reply = workerless_client.http.get(f"/api/v1/agents/{agent}/sessions", params=query).json()
        assert reply["code"] == 0, reply
        assert len(reply["data"]) <= reply["total"]
        return [session["id"] for session in reply["data"]]

    assert ids(orderby="create_time") == [second, first]
    assert ids(user_id="ann") == [first]
    assert ids(keywords="TW") == [second]
    assert ids(id=f"{first},x") == [first]
    assert ids(from_date=tomorrow) == []
    assert ids(to_date=tomorrow, desc="false", orderby="create_time") == [first, second]
    assert (
        workerless_client.http.get(f"/api/v1/agents/{agent}/sessions", params={"from_date": "soon"}).json()["code"]
        == 101
    )


def test_session_list_can_omit_the_document_or_show_names_only(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    session = create(workerless_client, agent, user_id="ann", name="one")["data"]["id"]
    url = f"/api/v1/agents/{agent}/sessions"

    assert "dsl" not in workerless_client.http.get(url, params={"dsl": "false"}).json()["data"][0]
    assert workerless_client.http.get(url, params={"exp_user_id": "ann"}).json()["data"] == [
        {"id": session, "name": "one"}
    ]


def test_a_session_is_found_under_its_own_agent_only(workerless_client: Client) -> None:
    one, other = workerless_client.agent(ECHO, "one"), workerless_client.agent(ECHO, "other")
    session = create(workerless_client, one)["data"]["id"]

    right = workerless_client.http.get(f"/api/v1/agents/{one}/sessions/{session}").json()
    wrong = workerless_client.http.get(f"/api/v1/agents/{other}/sessions/{session}").json()

    assert right["data"]["dialog_id"] == one
    assert (wrong["code"], wrong["message"]) == (102, "Session not found!")


def test_deleting_a_session_cancels_its_run_first(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    run = workerless_client.start(agent)

    deleted = workerless_client.http.delete(f"/api/v1/agents/{agent}/sessions/{run['session_id']}").json()
    again = workerless_client.http.delete(f"/api/v1/agents/{agent}/sessions/{run['session_id']}").json()

    assert deleted["data"] == 1
    assert again["code"] == 102
    assert workerless_client.run(run["run_id"])["status"] == "cancelled"


def test_many_sessions_are_deleted_at_once_and_unknown_ones_are_named(workerless_client: Client) -> None:
    agent = workerless_client.agent(ECHO)
    ids = [create(workerless_client, agent)["data"]["id"] for _ in range(4)]
    url = f"/api/v1/agents/{agent}/sessions"

    def delete(**body: Any) -> dict[str, Any]:
        return workerless_client.http.request("DELETE", url, json=body).json()

    assert delete() == {"code": 0}
    assert delete(ids=ids[:1]) == {"code": 0}
    partly = delete(ids=[ids[1], ids[1], "0" * 32])["data"]
    assert partly["success_count"] == 1
    assert len(partly["errors"]) == 2
    assert delete(ids=["0" * 32])["code"] == 102
    assert delete(delete_all=True) == {"code": 0}
    assert workerless_client.http.get(url).json()["total"] == 0


def test_session_shows_the_citations_of_its_answers(client: Client, server: Server) -> None:
    agent = client.agent(ECHO)
    reply = client.chat(agent, "x")["data"]
    session, message_id = reply["session_id"], UUID(reply["message_id"])
    with server.database.transaction() as tx:
        chunk = {"chunk_id": "29584016", "content": "Up 4%."}
        attempt_records.add_citations(
            tx, UUID(reply["run_id"]), message_id, new_id(), [chunk], [{"doc_name": "a", "count": 1}]
        )

    url = f"/api/v1/agents/{agent}/sessions"
    (listed,) = client.http.get(url).json()["data"]
    raw = client.http.get(f"{url}/{session}").json()["data"]

    assert listed["message"][-1]["reference"] == [{"content": "Up 4%.", "citation_id": "373"}]
    assert raw["message"] == listed["message"]
    assert raw["reference"] == [
        {"chunks": {"373": {"content": "Up 4%."}}, "doc_aggs": {"a": {"doc_name": "a", "count": 1}}}
    ]
