"""Sessions with MCP servers of the official SDK, on both transports."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.mcp import session as mcp_session
from providers.mcp.session import SSE, STREAMABLE, McpServer, McpSession, McpUnreachable
from tests.mcp_servers import ADD, RunningMcpServer, mcp_server, refuse_newer_versions

BOTH = pytest.mark.parametrize("transport", [STREAMABLE, SSE])
LOCAL = Guard.parse(allowed="127.0.0.1")
SECRET = "a-token-that-is-long"


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningMcpServer]:
    with mcp_server() as serving:
        yield serving


@BOTH
def test_a_tool_is_called_and_answers_in_text(shared: RunningMcpServer, transport: str):
    assert call_tool(shared, transport, "add", {"a": 1, "b": 2}) == "3"


@BOTH
@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ("boom", "MCP server error: boom"),
        ("empty", "MCP server returned empty content."),
        ("structured", '{"sum": 3}'),
        ("mixed", "Two things:\n[image: image/png, 14 bytes]\na text\n[resource: a/b, 14 bytes]"),
    ],
)
def test_every_kind_of_tool_result_becomes_text(shared: RunningMcpServer, transport: str, tool: str, text: str):
    assert call_tool(shared, transport, tool) == text


@BOTH
def test_slow_tool_call_times_out(shared: RunningMcpServer, transport: str):
    assert call_tool(shared, transport, "slow", seconds=0.3) == "Timeout calling tool 'slow' (timeout=0.3)."


@BOTH
def test_a_result_that_is_too_large_is_an_error(shared: RunningMcpServer, transport: str):
    text = call_tool(shared, transport, "huge")

    assert text.startswith("Error calling tool 'huge': ")
    assert len(text) < 1000


@BOTH
def test_calls_share_one_session_and_fail_after_it_is_closed(transport: str):
    with mcp_server() as serving:

        async def use(session: McpSession) -> list[str]:
            calls = [session.call("add", {"a": number, "b": 1}) for number in range(4)]
            answers = await asyncio.gather(*calls)
            await session.close()
            return [*answers, await session.call("add", {"a": 1, "b": 1})]

        answers = with_session(serving, transport, use)

    assert answers == ["1", "2", "3", "4", "Error: Session is closed"]
    assert serving.calls == ["add"] * 4
    assert serving.count("GET") == (1 if transport == SSE else 0)


def test_session_with_a_server_that_requires_a_handshake_is_deleted_at_its_end():
    with mcp_server() as serving:
        serving.front = refuse_newer_versions

        answer = call_tool(serving, STREAMABLE, "add", {"a": 1, "b": 2})

    assert answer == "3"
    assert serving.count("DELETE") == 1


def test_tools_are_listed_as_the_server_describes_them(shared: RunningMcpServer):
    async def use(session: McpSession) -> dict[str, mcp_session.LiveTool]:
        return dict(await session.tools())

    tools = with_session(shared, STREAMABLE, use)

    assert (tools["add"].description, tools["add"].schema) == ("Adds two numbers.", ADD)
    assert {"boom", "slow", "huge"} <= tools.keys()


@BOTH
def test_headers_with_variables_are_sent_with_every_request(transport: str):
    with mcp_server() as serving:
        serving.front = require_token

        answer = call_tool(
            serving,
            transport,
            "add",
            {"a": 1, "b": 2},
            headers={"Authorization": "Bearer ${authorization_token}"},
            variables={"authorization_token": SECRET},
        )

    assert answer == "3"
    assert {headers.get("authorization") for _, _, headers in serving.requests} == {f"Bearer {SECRET}"}


def test_header_values_are_redacted_in_results_and_other_text_is_not():
    with mcp_server() as serving:
        text = call_tool(serving, STREAMABLE, "telling", headers={"Authorization": f"Bearer {SECRET}"})

    assert text == "I was sent [REDACTED]. Try key=value&token=other."


@BOTH
def test_connection_fails_if_the_server_refuses_the_credentials(transport: str):
    with mcp_server() as serving:
        serving.front = require_token

        with pytest.raises(McpUnreachable, match=r"^Connection failed \(possibly due to auth error\)\. Please check"):
            call_tool(serving, transport, "add", headers={"Authorization": "Bearer ${missing}"})

    assert all("authorization" not in headers for _, _, headers in serving.requests)


@BOTH
def test_connection_to_a_closed_port_fails(transport: str):
    closed_server = RunningMcpServer(port=1)

    with pytest.raises(
        McpUnreachable, match=r"^Connection failed: http://127\.0\.0\.1:1: cannot connect: .* Check that"
    ):
        call_tool(closed_server, transport, "add")


@BOTH
def test_a_redirect_is_not_followed_even_on_the_same_server(transport: str):
    with mcp_server() as serving:
        serving.front = redirect

        with pytest.raises(McpUnreachable, match="redirects are not followed"):
            call_tool(serving, transport, "add", headers={"Authorization": f"Bearer {SECRET}"})

    assert {path for _, path, _ in serving.requests} <= {"/mcp", "/sse"}


@BOTH
def test_non_public_address_is_refused_before_a_request_is_sent(shared: RunningMcpServer, transport: str):
    before = len(shared.requests)

    with pytest.raises(McpUnreachable, match=r"^URL resolves to a non-public address \(127\.0\.0\.1\)"):
        call_tool(shared, transport, "add", guard=Guard())

    assert len(shared.requests) == before


def test_connection_times_out_if_the_server_does_not_answer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_session, "OPEN_TIMEOUT", 0.2)
    with mcp_server() as serving:
        serving.front = answer_late

        with pytest.raises(McpUnreachable, match=r"^Timeout initializing client_session for server s1$"):
            call_tool(serving, STREAMABLE, "add")


def test_unsupported_server_type_is_refused(shared: RunningMcpServer):
    with pytest.raises(McpUnreachable, match=r"^Unsupported MCP server type: stdio$"):
        call_tool(shared, "stdio", "add")


def test_a_session_whose_caller_is_cancelled_still_closes(shared: RunningMcpServer):
    async def use(session: McpSession) -> bool:
        call = asyncio.create_task(session.call("slow", {}))
        while "slow" not in shared.calls:
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await session.close()
        return call.cancelled() and session.is_over

    assert with_session(shared, STREAMABLE, use)


# -- helpers ---------------------------------------------------------------------------------------------------------
def call_tool(
    serving: RunningMcpServer,
    transport: str,
    tool: str,
    arguments: dict[str, int] | None = None,
    *,
    seconds: float = 10,
    headers: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    guard: Guard = LOCAL,
) -> str:
    async def use(session: McpSession) -> str:
        return await session.call(tool, arguments or {})

    fields = {"headers": headers or {}, "variables": variables or {}, "call_seconds": seconds}
    return with_session(serving, transport, use, guard=guard, **fields)


def with_session(
    serving: RunningMcpServer,
    transport: str,
    use: Callable[[McpSession], Awaitable[object]],
    *,
    guard: Guard = LOCAL,
    **fields,
):
    fields = {"headers": {}, "variables": {}, **fields}
    server = McpServer.of("s1", "Tools", serving.sse_url if transport == SSE else serving.url, transport, **fields)

    async def main() -> object:
        http = HttpClient(guard)
        session = McpSession(server, http)
        try:
            return await use(session)
        finally:
            await session.close()
            await http.aclose()

    return asyncio.run(main())


async def require_token(request: Request) -> Response | None:
    is_known = request.headers.get("authorization") == f"Bearer {SECRET}"
    return None if is_known else JSONResponse({"error": "who are you?"}, 401)


async def redirect(request: Request) -> Response | None:
    return RedirectResponse("/elsewhere", 307)


async def answer_late(request: Request) -> Response | None:
    await asyncio.sleep(2)
    return None
