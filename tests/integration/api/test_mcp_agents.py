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

T = TypeVar("T")

ASKS = canvas(
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
    exposed(client, ASKS, "Weather report")

    async def story(mcp: McpClient) -> tuple[Any, Any, list[str]]:
        heard: list[str] = []

        async def progress(done: float, total: float | None, text: str | None) -> None:
            heard.append(f"{done:g} {text}")

        listed = await mcp.list_tools()
        arguments = {"city": "Rome", "days": 3, "unit": "C"}
        return listed.tools, await mcp.call_tool("Weather_report", arguments, progress_callback=progress), heard

    tools, result, heard = spoken_with(server, client, story, mode)

    (tool,) = tools
    assert (tool.name, tool.title, tool.description) == ("Weather_report", "Weather report", "Tells the weather.")
    assert tool.input_schema["required"] == ["city", "unit"]
    assert tool.input_schema["properties"]["unit"] == {"type": "string", "enum": ["C", "F"], "description": "Unit"}
    assert [item.text for item in result.content] == ["3 days of Rome in C"]
    assert result.structured_content["answer"] == "3 days of Rome in C"
    assert not result.is_error
    assert heard[0] == "1 the begin started"


def test_only_published_and_exposed_agents_are_tools(server: Server, client: Client):
    hidden, draft, gone = (client.agent(ECHO, title) for title in ("hidden", "draft", "gone"))
    publish(client, hidden)
    expose(client, draft)
    publish(client, gone)
    expose(client, gone)
    assert tool_names(server, client) == ["gone"]

    client.http.delete(f"/api/v1/agents/{gone}/mcp")

    assert tool_names(server, client) == []
    result = call(server, client, "hidden", query="x")
    assert (result.is_error, result.content[0].text) == (True, "Unknown tool: hidden")


def test_agents_of_others_are_no_tools(server: Server, client: Client):
    exposed(client, ECHO, "echo")
    stranger = server.client()

    assert tool_names(server, stranger) == []
    assert call(server, stranger, "echo", query="x").content[0].text == "Unknown tool: echo"


def test_two_agents_cannot_be_one_tool(client: Client):
    first, second = client.agent(ECHO, "first"), client.agent(ECHO, "second")
    expose(client, first, name="same")

    reply = client.http.put(f"/api/v1/agents/{second}/mcp", json={"name": "same"})

    assert reply.status_code == 409
    assert client.http.get(f"/api/v1/agents/{second}/mcp").json()["data"] == {"name": None}
    assert client.http.put(f"/api/v1/agents/{second}/mcp", json={"name": "no name!"}).status_code == 400


def test_a_conversation_goes_on_by_the_session_of_its_last_result(server: Server, client: Client):
    exposed(client, FORM, "form")

    asked = call(server, client, "form", query="hello")
    session = asked.structured_content["session_id"]
    answered = call(server, client, "form", name="Ada", session_id=session)

    assert "Who are you?" in asked.content[0].text
    assert session in asked.content[0].text
    assert list(asked.structured_content["waits_for"]) == ["name"]
    assert answered.content[0].text == "Hello Ada"


def test_a_run_that_fails_is_an_error(server: Server, client: Client):
    exposed(client, BROKEN, "broken")

    result = call(server, client, "broken", query="x")

    assert result.is_error
    assert "nothing" in result.content[0].text


def test_a_call_with_a_key_runs_once(server: Server, client: Client):
    exposed(client, ECHO, "echo")

    results = [call(server, client, "echo", {"Idempotency-Key": "once"}, query="x") for _ in range(2)]

    assert len({result.structured_content["run_id"] for result in results}) == 1
    assert client.http.get("/api/v1/runs").json()["total"] == 1


# -- message by message ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("authorization", [None, "Bearer easel_nobody"])
def test_nobody_is_served_without_a_token(server: Server, authorization: str | None):
    headers = {} if authorization is None else {"Authorization": authorization}

    reply = httpx2.post(f"{server.url}/mcp", json=asking("tools/list"), headers=headers)

    assert (reply.status_code, reply.json()["code"]) == (401, 401)
    assert reply.headers["www-authenticate"] == "Bearer"


def test_a_share_link_opens_no_tools(server: Server, client: Client):
    with server.guest(client, client.agent(ECHO)).http as http:
        assert http.post("/mcp", json=asking("tools/list")).status_code == 401


def test_a_client_of_the_handshake_era_needs_no_session(server: Server, client: Client):
    exposed(client, ECHO, "echo")
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    }

    began = rpc(client, asking("initialize", **hello))
    listed = rpc(client, asking("tools/list"))
    answer = rpc(client, asking("tools/call", name="echo", arguments={"query": "Hi"}))

    assert began["serverInfo"]["name"] == "easel"
    assert [tool["name"] for tool in listed["tools"]] == ["echo"]
    assert answer["content"] == [{"type": "text", "text": "You said: Hi"}]


def test_a_body_that_is_too_large_is_refused(server: Server, client: Client):
    reply = client.http.post("/mcp", content=b"x" * (server.config.settings.max_body_bytes + 1), headers=ACCEPTS)

    assert reply.status_code == 413


@pytest.mark.parametrize(("mode", "headers"), [("auto", {}), ("legacy", {"X-Cancel-On-Disconnect": "true"})])
def test_client_that_goes_away_cancels_its_run_where_that_means_cancel(
    lonely_server: Server, lonely: Client, mode: str, headers: dict[str, str]
):
    exposed(lonely, ECHO, "echo")

    run_id = abandoned_call(lonely_server, lonely, mode, headers)

    lonely.until(run_id, "cancelled", "stopping")


@pytest.mark.parametrize(("mode", "headers"), [("legacy", {}), ("auto", {"X-Cancel-On-Disconnect": "false"})])
def test_client_that_goes_away_leaves_its_run_alone_where_that_does_not_mean_cancel(
    lonely_server: Server, lonely: Client, mode: str, headers: dict[str, str]
):
    exposed(lonely, ECHO, "echo")

    run_id = abandoned_call(lonely_server, lonely, mode, headers)

    later = abandoned_call(lonely_server, lonely, mode, {"X-Cancel-On-Disconnect": "true"})
    lonely.until(later, "cancelled", "stopping")  # a cancel of the earlier call would have arrived before this one
    assert lonely.run(run_id)["status"] == "running"


def abandoned_call(server: Server, client: Client, mode: str, headers: dict[str, str]) -> str:
    """The run of a call whose client went away."""
    before = run_ids(client)

    async def story(mcp: McpClient) -> str:
        calling = asyncio.create_task(mcp.call_tool("echo", {"query": "x"}))
        started = await asyncio.to_thread(eventually, lambda: run_ids(client) - before, lambda new: len(new) == 1)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        return started.pop()

    return spoken_with(server, client, story, mode, headers)


def run_ids(client: Client) -> set[str]:
    return {str(run["id"]) for run in client.http.get("/api/v1/runs").json()["runs"]}


# -- in other words --------------------------------------------------------------------------------------------------
ACCEPTS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def asking(method: str, **params: Any) -> dict[str, Any]:
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


def expose(client: Client, agent: str, **given: Any) -> None:
    assert client.http.put(f"/api/v1/agents/{agent}/mcp", json=given).json()["code"] == 0


def exposed(client: Client, dsl: dict[str, Any], title: str) -> str:
    agent = client.agent(dsl, title)
    client.http.put(f"/api/v1/agents/{agent}", json={"description": "Tells the weather."})
    publish(client, agent)
    expose(client, agent)
    return agent


def spoken_with(
    server: Server,
    client: Client,
    story: Callable[[McpClient], Awaitable[T]],
    mode: str = "auto",
    headers: dict[str, str] | None = None,
) -> T:
    async def main() -> T:
        given = {"Authorization": f"Bearer {client.token}", **(headers or {})}
        async with httpx2.AsyncClient(headers=given, timeout=30) as http:
            wire = streamable_http_client(f"{server.url}/mcp", http_client=http)
            async with McpClient(wire, mode=mode) as mcp:
                return await story(mcp)

    return asyncio.run(main())


def tool_names(server: Server, client: Client) -> list[str]:
    async def story(mcp: McpClient) -> list[str]:
        return [tool.name for tool in (await mcp.list_tools()).tools]

    return spoken_with(server, client, story)


def call(server: Server, client: Client, tool: str, headers: dict[str, str] | None = None, /, **arguments: Any) -> Any:
    async def story(mcp: McpClient) -> Any:
        return await mcp.call_tool(tool, arguments)

    return spoken_with(server, client, story, headers=headers)
