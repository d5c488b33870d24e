"""Agents as tools of an MCP server: with the SDK's own client, and message by message over HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from tests.integration.api.conftest import Server
from tests.integration.api.talking import BROKEN, ECHO, FORM, Client, canvas, eventually, message
from tests.integration.api.test_scopes import token_of

T = TypeVar("T")

WITH_INPUTS = canvas(
    (
        "begin",
        "Begin",
        {
            "mode": "task",
            "inputs": {
                "city": {"type": "line", "name": "Which city"},
                "days": {"type": "number", "name": "Days", "optional": True},
                "unit": {"type": "options", "name": "Unit", "options": ["C", "F"]},
            },
        },
        ["Message:0"],
    ),
    ("Message:0", "Message", message("{begin@days} days of {begin@city} in {begin@unit}"), []),
)
MODES = pytest.mark.parametrize("mode", ["auto", "legacy"])


@MODES
def test_an_exposed_agent_is_a_tool_and_a_call_runs_it(server: Server, client: Client, mode: str):
    create_exposed_agent(client, WITH_INPUTS, "Weather report")

    async def actions(mcp: McpClient) -> tuple[Any, Any, list[str]]:
        progress_texts: list[str] = []

        async def progress(done: float, total: float | None, text: str | None) -> None:
            progress_texts.append(f"{done:g} {text}")

        listed = await mcp.list_tools()
        arguments = {"city": "Rome", "days": 3, "unit": "C"}
        return (
            listed.tools,
            await mcp.call_tool("Weather_report", arguments, progress_callback=progress),
            progress_texts,
        )

    tools, result, progress_texts = run_with_mcp_client(server, client, actions, mode)

    (tool,) = tools
    assert (tool.name, tool.title, tool.description) == ("Weather_report", "Weather report", "Tells the weather.")
    assert tool.input_schema["required"] == ["city", "unit"]
    assert tool.input_schema["properties"]["unit"] == {"type": "string", "enum": ["C", "F"], "description": "Unit"}
    assert [item.text for item in result.content] == ["3 days of Rome in C"]
    assert result.structured_content["answer"] == "3 days of Rome in C"
    assert not result.is_error
    client.start(client.agent(WITH_INPUTS))
    (run,) = client.http.get("/api/v1/runs", params={"origin": "mcp"}).json()["runs"]
    assert run["id"] == result.structured_content["run_id"]
    assert client.run(run["id"])["origin"] == {"kind": "mcp", "run_id": None, "from": None, "edits": None}
    assert progress_texts[0] == "1 the begin started"


def test_only_published_and_exposed_agents_are_tools(server: Server, client: Client):
    hidden, draft, gone = (client.agent(ECHO, title) for title in ("hidden", "draft", "gone"))
    publish(client, hidden)
    expose(client, draft)
    publish(client, gone)
    expose(client, gone)
    assert list_tool_names(server, client) == ["gone"]

    client.http.delete(f"/api/v1/agents/{gone}/mcp")

    assert list_tool_names(server, client) == []
    result = call(server, client, "hidden", query="x")
    assert (result.is_error, result.content[0].text) == (True, "Unknown tool: hidden")


def test_agents_of_another_tenant_are_not_tools(server: Server, client: Client):
    create_exposed_agent(client, ECHO, "echo")
    stranger = server.client()

    assert list_tool_names(server, stranger) == []
    assert call(server, stranger, "echo", query="x").content[0].text == "Unknown tool: echo"


def test_second_agent_with_the_same_tool_name_is_a_conflict(client: Client):
    first, second = client.agent(ECHO, "first"), client.agent(ECHO, "second")
    expose(client, first, name="same")

    reply = client.http.put(f"/api/v1/agents/{second}/mcp", json={"name": "same"})

    assert reply.status_code == 409
    assert client.http.get(f"/api/v1/agents/{second}/mcp").json()["data"] == {"name": None}
    assert client.http.put(f"/api/v1/agents/{second}/mcp", json={"name": "no name!"}).status_code == 400


def test_conversation_continues_with_the_session_id_of_its_last_result(server: Server, client: Client):
    create_exposed_agent(client, FORM, "form")

    question = call(server, client, "form", query="hello")
    session = question.structured_content["session_id"]
    answered = call(server, client, "form", name="Ada", session_id=session)

    assert "Who are you?" in question.content[0].text
    assert session in question.content[0].text
    assert list(question.structured_content["waits_for"]) == ["name"]
    assert answered.content[0].text == "Hello Ada"


def test_failed_run_is_a_tool_error(server: Server, client: Client):
    create_exposed_agent(client, BROKEN, "broken")

    result = call(server, client, "broken", query="x")

    assert result.is_error
    assert "nothing" in result.content[0].text


def test_tool_call_repeated_with_its_idempotency_key_runs_once(server: Server, client: Client):
    create_exposed_agent(client, ECHO, "echo")

    results = [call(server, client, "echo", {"Idempotency-Key": "once"}, query="x") for _ in range(2)]

    assert len({result.structured_content["run_id"] for result in results}) == 1
    assert client.http.get("/api/v1/runs").json()["total"] == 1


# -- message by message ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("authorization", [None, "Bearer easel_nobody"])
def test_mcp_request_without_a_valid_token_is_refused(server: Server, authorization: str | None):
    headers = {} if authorization is None else {"Authorization": authorization}

    reply = httpx2.post(f"{server.url}/mcp", json=jsonrpc_request("tools/list"), headers=headers)

    assert (reply.status_code, reply.json()["code"]) == (401, 401)
    assert reply.headers["www-authenticate"].startswith("Bearer resource_metadata=")


def test_share_link_token_cannot_list_tools(server: Server, client: Client):
    with server.guest(client, client.agent(ECHO)).http as http:
        assert http.post("/mcp", json=jsonrpc_request("tools/list")).status_code == 401


def test_token_of_one_agent_lists_and_calls_its_agent_only(server: Server, client: Client):
    agent = create_exposed_agent(client, ECHO, "mine")
    create_exposed_agent(client, ECHO, "another")
    confined = token_of(server, client, "run", agent=agent)

    assert list_tool_names(server, confined) == ["mine"]
    assert not call(server, confined, "mine", query="x").is_error
    refused = call(server, confined, "another", query="x")
    assert (refused.is_error, refused.content[0].text) == (True, "Unknown tool: another")


def test_client_of_the_2025_protocol_needs_no_mcp_session(server: Server, client: Client):
    create_exposed_agent(client, ECHO, "echo")
    handshake = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    }

    initialized = rpc(client, jsonrpc_request("initialize", **handshake))
    listed = rpc(client, jsonrpc_request("tools/list"))
    answer = rpc(client, jsonrpc_request("tools/call", name="echo", arguments={"query": "Hi"}))

    assert initialized["serverInfo"]["name"] == "easel"
    assert [tool["name"] for tool in listed["tools"]] == ["echo"]
    assert answer["content"] == [{"type": "text", "text": "You said: Hi"}]


def test_a_body_that_is_too_large_is_refused(server: Server, client: Client):
    reply = client.http.post("/mcp", content=b"x" * (server.config.settings.max_body_bytes + 1), headers=ACCEPTS)

    assert reply.status_code == 413


@pytest.mark.parametrize(("mode", "headers"), [("auto", {}), ("legacy", {"X-Cancel-On-Disconnect": "true"})])
def test_client_disconnect_cancels_the_run_if_the_mode_or_a_header_says_so(
    workerless_server: Server, workerless_client: Client, mode: str, headers: dict[str, str]
):
    create_exposed_agent(workerless_client, ECHO, "echo")

    run_id = abandon_call(workerless_server, workerless_client, mode, headers)

    workerless_client.wait_for(run_id, "cancelled", "stopping")


@pytest.mark.parametrize(("mode", "headers"), [("legacy", {}), ("auto", {"X-Cancel-On-Disconnect": "false"})])
def test_client_disconnect_does_not_cancel_the_run_if_the_mode_or_a_header_says_so(
    workerless_server: Server, workerless_client: Client, mode: str, headers: dict[str, str]
):
    create_exposed_agent(workerless_client, ECHO, "echo")

    run_id = abandon_call(workerless_server, workerless_client, mode, headers)

    later = abandon_call(workerless_server, workerless_client, mode, {"X-Cancel-On-Disconnect": "true"})
    workerless_client.wait_for(
        later, "cancelled", "stopping"
    )  # a cancel of the earlier call would have arrived before this one
    assert workerless_client.run(run_id)["status"] == "running"


def abandon_call(server: Server, client: Client, mode: str, headers: dict[str, str]) -> str:
    """Call the tool `echo` and disconnect once its run has started; return the run's id."""
    before = list_run_ids(client)

    async def actions(mcp: McpClient) -> str:
        calling = asyncio.create_task(mcp.call_tool("echo", {"query": "x"}))
        started = await asyncio.to_thread(eventually, lambda: list_run_ids(client) - before, lambda new: len(new) == 1)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        return started.pop()

    return run_with_mcp_client(server, client, actions, mode, headers)


def list_run_ids(client: Client) -> set[str]:
    return {str(run["id"]) for run in client.http.get("/api/v1/runs").json()["runs"]}


# -- helpers ---------------------------------------------------------------------------------------------------------
ACCEPTS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def jsonrpc_request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def rpc(client: Client, body: dict[str, Any]) -> Any:
    reply = client.http.post("/mcp", json=body, headers=ACCEPTS)
    assert reply.status_code == 200, reply.text
    text = reply.text
    if reply.headers["content-type"].startswith("text/event-stream"):
        text = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")][-1]
    return json.loads(text)["result"]


def publish(client: Client, agent: str) -> None:
    assert client.http.post(f"/api/v1/agents/{agent}/publish", json={}).json()["code"] == 0


def expose(client: Client, agent: str, **settings: Any) -> None:
    assert client.http.put(f"/api/v1/agents/{agent}/mcp", json=settings).json()["code"] == 0


def create_exposed_agent(client: Client, dsl: dict[str, Any], title: str) -> str:
    agent = client.agent(dsl, title)
    client.http.put(f"/api/v1/agents/{agent}", json={"description": "Tells the weather."})
    publish(client, agent)
    expose(client, agent)
    return agent


def run_with_mcp_client(
    server: Server,
    client: Client,
    actions: Callable[[McpClient], Awaitable[T]],
    mode: str = "auto",
    headers: dict[str, str] | None = None,
) -> T:
    async def main() -> T:
        all_headers = {"Authorization": f"Bearer {client.token}", **(headers or {})}
        async with httpx2.AsyncClient(headers=all_headers, timeout=30) as http:
            wire = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with McpClient(wire, mode=mode) as mcp:
                return await actions(mcp)

    return asyncio.run(main())


def list_tool_names(server: Server, client: Client) -> list[str]:
    async def actions(mcp: McpClient) -> list[str]:
        return [tool.name for tool in (await mcp.list_tools()).tools]

    return run_with_mcp_client(server, client, actions)


def call(server: Server, client: Client, tool: str, headers: dict[str, str] | None = None, /, **arguments: Any) -> Any:
    async def actions(mcp: McpClient) -> Any:
        return await mcp.call_tool(tool, arguments)

    return run_with_mcp_client(server, client, actions, headers=headers)
