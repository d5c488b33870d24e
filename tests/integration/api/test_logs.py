"""The tool calls of a turn, listed by the id of its agent, session or run."""

from uuid import UUID

from sqlalchemy import text

from store.primitives.ids import new_id
from store.runs import attempt_records
from store.tenants import tenants
from tests.integration.api.conftest import Server
from tests.integration.api.talking import ECHO, Client

FIRST = {"path": "Agent", "tool_name": "search", "arguments": {"q": "a"}, "result": "1", "elapsed_time": 0.1}
SECOND = {**FIRST, "result": "2"}
THIRD = {**FIRST, "path": "Agent-->Helper"}


def test_tool_calls_of_a_turn_are_listed_by_agent_session_and_run(
    workerless_client: Client, workerless_server: Server
) -> None:
    agent = workerless_client.agent(ECHO)
    started = workerless_client.start(agent)
    run_id, message_id = UUID(started["run_id"]), UUID(started["message_id"])
    with workerless_server.database.transaction() as tx:
        for node, call in (("Agent:0", FIRST), ("Agent:0", SECOND), ("Agent:1", THIRD)):
            attempt_records.add_tool_call(tx, run_id, message_id, node, call)
        attempt_records.add_tool_call(tx, run_id, new_id(), "Agent:0", THIRD)  # of another turn

    for listed_id in (agent, started["session_id"], started["run_id"]):
        for message in (message_id.hex, str(message_id)):
            reply = workerless_client.http.get(f"/api/v1/agents/{listed_id}/logs/{message}")
            assert reply.json() == {
                "code": 0,
                "message": "success",
                "data": [
                    {"component_id": "Agent:0", "trace": [FIRST, SECOND]},
                    {"component_id": "Agent:1", "trace": [THIRD]},
                ],
            }


def test_a_share_link_sees_the_tool_calls_of_its_agent(workerless_client: Client, workerless_server: Server) -> None:
    agent = workerless_client.agent(ECHO)
    started = workerless_client.start(agent)
    with workerless_server.database.transaction() as tx:
        token_id, token = tenants.create_token(tx, workerless_client.tenant_id, "share", "beta", canvas_id=UUID(agent))
        attempt_records.add_tool_call(tx, UUID(started["run_id"]), UUID(started["message_id"]), "Agent:0", FIRST)
        link_session = {"id": UUID(started["session_id"]), "token_id": token_id}
        tx.execute(text("update conversations set token_id = :token_id where id = :id"), **link_session)
    guest = workerless_server.client_of(workerless_client.tenant_id, token)

    shared = guest.http.get(f"/api/v1/agentbots/{agent}/logs/{started['message_id']}")
    own = guest.http.get(f"/api/v1/agents/{agent}/logs/{started['message_id']}")
    guest.http.close()

    assert shared.json()["data"] == [{"component_id": "Agent:0", "trace": [FIRST]}]
    assert own.status_code == 401


def test_tool_calls_of_a_turn_are_not_listed_by_another_agent_session_or_run(
    workerless_client: Client, workerless_server: Server
) -> None:
    agent, other_agent = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "other")
    started, other = workerless_client.start(agent), workerless_client.start(other_agent)
    with workerless_server.database.transaction() as tx:
        attempt_records.add_tool_call(tx, UUID(started["run_id"]), UUID(started["message_id"]), "Agent:0", FIRST)

    for listed_id in (other_agent, other["session_id"], other["run_id"]):
        reply = workerless_client.http.get(f"/api/v1/agents/{listed_id}/logs/{started['message_id']}")
        assert (reply.json()["code"], reply.json()["data"]) == (0, {})


def test_turn_without_tool_calls_has_an_empty_trace(workerless_client: Client) -> None:
    agent, other = workerless_client.agent(ECHO), workerless_client.agent(ECHO, "other")
    started = workerless_client.start(agent)

    for listed_id, message in ((agent, started["message_id"]), (other, started["message_id"]), (agent, "nonsense")):
        assert workerless_client.http.get(f"/api/v1/agents/{listed_id}/logs/{message}").json()["data"] == {}
    assert workerless_client.http.get(f"/api/v1/agents/{'0' * 32}/logs/{started['message_id']}").json()["code"] == 103
