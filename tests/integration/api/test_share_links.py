"""The routes of share links, agents as models and by tags, and the database connection test."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import httpx2
import pytest
from sqlalchemy.engine import make_url

from api.app import ApiConfig
from store.tenants import tenants
from tests.integration.api.conftest import Server, start_server, with_settings
from tests.integration.api.talking import ECHO, FORM, Client, canvas, frames, message, text_of

ASKING = canvas(
    (
        "begin",
        "Begin",
        {"prologue": "Hello.", "mode": "task", "inputs": {"name": {"type": "line", "name": "Name"}}},
        ["Message:0"],
    ),
    ("Message:0", "Message", message("Hello {begin@name}"), []),
)


Share = Callable[[dict[str, Any], str], tuple[str, Client]]


@pytest.fixture
def share(server: Server, client: Client) -> Iterator[Share]:
    """A function that publishes a canvas of the client and returns the agent and a client with its share link."""
    guests: list[Client] = []

    def share(dsl: dict[str, Any], title: str = "agent") -> tuple[str, Client]:
        agent = client.agent(dsl, title)
        client.http.post(f"/api/v1/agents/{agent}/publish", json={})
        with server.database.transaction() as tx:
            _, token = tenants.create_token(tx, client.tenant_id, "link", "beta", canvas_id=UUID(agent))
        guests.append(server.client_of(client.tenant_id, token))
        return agent, guests[-1]

    yield share
    for guest in guests:
        guest.http.close()


def test_share_link_shows_the_inputs_of_its_agent(share: Share) -> None:
    agent_with_inputs, guest = share(ASKING, "asking")
    plain, other_guest = share(ECHO, "plain")

    inputs = guest.http.get(f"/api/v1/agentbots/{agent_with_inputs}/inputs").json()
    other = other_guest.http.get(f"/api/v1/agentbots/{plain}/inputs").json()["data"]

    assert inputs == {
        "code": 0,
        "data": {
            "title": "asking",
            "avatar": None,
            "inputs": {"name": {"type": "line", "name": "Name"}},
            "prologue": "Hello.",
            "mode": "task",
        },
    }
    assert (other["inputs"], other["mode"]) == ({}, "conversational")


def test_share_link_completion_streams_by_default(share: Share) -> None:
    agent, guest = share(ECHO, "agent")
    path = f"/api/v1/agentbots/{agent}/completions"

    with guest.http.stream("POST", path, json={"query": "hi"}) as response:
        streamed = list(frames(response.iter_lines()))
    whole = guest.http.post(path, json={"query": "hi", "stream": False}).json()

    assert text_of(streamed) == "You said: hi"
    assert whole["data"]["data"]["content"] == "You said: hi"


@pytest.mark.parametrize("path", ["agentbots/{agent}/completions", "openai/agents/{agent}/chat/completions"])
def test_share_link_request_with_custom_headers_is_refused(share: Share, client: Client, path: str) -> None:
    agent, guest = share(ECHO, "agent")
    body = {"messages": [{"role": "user", "content": "hi"}]} if "openai" in path else {"query": "hi", "stream": False}

    def send(custom_header: dict[str, str]) -> httpx2.Response:
        return guest.http.post(f"/api/v1/{path.format(agent=agent)}", json={**body, "custom_header": custom_header})

    assert send({}).headers["x-run-id"]
    refused = send({"Authorization": "Bearer theirs"})

    assert "A share link sends no headers to MCP servers. Leave out `custom_header`." in refused.text
    assert refused.status_code == (403 if "openai" in path else 200)
    assert "openai" in path or refused.json()["code"] == 103
    assert client.http.get("/api/v1/runs", params={"agent_id": agent}).json()["total"] == 1


def test_share_link_request_in_openais_format_is_refused_with_the_right_path(share: Share) -> None:
    agent, guest = share(ECHO, "agent")

    refused = guest.http.post(f"/api/v1/agentbots/{agent}/completions", json={"query": "hi", "openai-compatible": True})

    assert refused.status_code == 400
    assert "Use /openai/chat/completions" in refused.json()["error"]["message"]


def test_share_link_continues_its_session_and_answers_forms(share: Share) -> None:
    agent, guest = share(FORM, "agent")
    path = f"/api/v1/agentbots/{agent}/completions"

    question = guest.http.post(path, json={"query": "hi", "stream": False}).json()["data"]
    answered = guest.http.post(
        path, json={"session_id": question["session_id"], "inputs": {"name": {"value": "Ada"}}, "stream": False}
    ).json()["data"]

    assert question["event"] == "user_inputs"
    assert answered["data"]["content"] == "Hello Ada"


def test_unknown_agent_is_refused_with_its_id(share: Share, client: Client) -> None:
    unknown_id = "0" * 32
    _, guest = share(ECHO, "agent")

    for caller in (client, guest):
        for reply in (
            caller.http.get(f"/api/v1/agentbots/{unknown_id}/inputs"),
            caller.http.post(f"/api/v1/agentbots/{unknown_id}/completions", json={"query": "x"}),
        ):
            assert reply.json()["message"] == f"Can't find agent by ID: {unknown_id}"
            assert reply.json()["code"] == 102


def test_agents_are_listed_as_openai_lists_models(client: Client) -> None:
    agent = client.agent(ECHO)

    listed = client.http.get("/api/v1/openai/models").json()

    assert [(each["id"], each["object"]) for each in listed["data"]] == [(agent, "model")]


def test_tags_are_set_counted_and_filter_the_list(client: Client) -> None:
    first, second = client.agent(ECHO, "first"), client.agent(ECHO, "second")

    client.http.put(f"/api/v1/agents/{first}/tags", json={"tags": ["Law", "a,b", "law"]})
    client.http.put(f"/api/v1/agents/{second}/tags", json={"tags": "Law, HR"})

    counted = client.http.get("/api/v1/agents/tags").json()["data"]
    filtered = client.http.get("/api/v1/agents", params={"tags": "hr"}).json()["data"]["canvas"]
    assert counted == [{"tag": "Law", "count": 2}, {"tag": "HR", "count": 1}, {"tag": "a b", "count": 1}]
    assert [each["id"] for each in filtered] == [second]
    refused = client.http.put(f"/api/v1/agents/{'0' * 32}/tags", json={"tags": []}).json()
    assert (refused["code"], refused["message"]) == (103, "Agent not found or no permission.")


# -- databases -------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def server_with_local_access(config: ApiConfig) -> Iterator[Server]:
    """A server that may connect to databases on this machine."""
    with start_server(with_settings(config, ssrf_allow="127.0.0.1")) as server:
        yield server


def fields(server: Server, **changes: Any) -> dict[str, Any]:
    url = make_url(server.database_url)
    connection = {"db_type": "postgres", "host": "127.0.0.1", "port": url.port, "username": url.username}
    return {**connection, "database": "postgres", "password": url.password or "-", **changes}


def try_connection(server: Server, **body: Any) -> dict[str, Any]:
    client = server.client()
    try:
        return client.http.post("/api/v1/agents/test_db_connection", json=body).json()
    finally:
        client.http.close()


def test_connection_test_succeeds_for_a_database_that_exesql_can_reach(server_with_local_access: Server) -> None:
    reply = try_connection(server_with_local_access, **fields(server_with_local_access))

    assert (reply["code"], reply["data"]) == (0, "Database Connection Successful!"), reply


def test_connection_test_is_refused_for_a_database_that_no_node_may_reach(
    server_with_local_access: Server, workerless_server: Server
) -> None:
    own_name = make_url(server_with_local_access.database_url).database
    wrong = fields(server_with_local_access, password="secret-and-wrong", username="nobody")

    guarded = try_connection(workerless_server, **fields(server_with_local_access))
    own_database = try_connection(server_with_local_access, **fields(server_with_local_access, database=own_name))
    refused = try_connection(server_with_local_access, **wrong)
    lacking = try_connection(server_with_local_access, db_type="postgres", host="x", port=1)

    assert guarded["message"].startswith("Database host '127.0.0.1' is not allowed")
    assert "does not support database named" in own_database["message"]
    assert refused["code"] == 102
    assert "secret-and-wrong" not in json.dumps(refused)
    assert lacking["message"] == "required argument are missing: database,username,password; "


@pytest.mark.parametrize(("begin", "prologue"), [({"enablePrologue": False}, ""), ({}, "Hello.")])
def test_a_share_link_and_a_session_show_the_same_prologue(
    client: Client, share: Share, begin: dict[str, Any], prologue: str
) -> None:
    greeting = ("begin", "Begin", {"prologue": "Hello.", **begin}, ["Message:0"])
    agent, guest = share(canvas(greeting, ("Message:0", "Message", message("Bye."), [])), "greets")

    shared = guest.http.get(f"/api/v1/agentbots/{agent}/inputs").json()["data"]["prologue"]
    session = client.http.post(f"/api/v1/agents/{agent}/sessions", json={}).json()["data"]["message"]

    assert shared == prologue
    assert session[0]["content"] == prologue
