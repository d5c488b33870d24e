"""Sessions with MCP servers of the official SDK, on both transports (tools 7)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from providers.http.address_policy import Guard
from providers.http.client import HttpClient
from providers.mcp import session as mcp_session
from providers.mcp.session import SSE, STREAMABLE, McpServer, McpSession, McpUnreachable
from tests.mcp_servers import ADD, Serving, mcp_server, of_the_handshake_era

BOTH = pytest.mark.parametrize("transport", [STREAMABLE, SSE])
LOCAL = Guard.parse(allowed="127.0.0.1")
SECRET = "a-token-that-is-long"


@pytest.fixture(scope="module")
def shared() -> Iterator[Serving]:
    with mcp_server() as serving:
        yield serving


@BOTH
def test_a_tool_is_called_and_answers_in_text(shared: Serving, transport: str):
    assert called(shared, transport, "add", {"a": 1, "b": 2}) == "3"


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
def test_whatever_a_tool_returns_becomes_text(shared: Serving, transport: str, tool: str, text: str):
    assert called(shared, transport, tool) == text


@BOTH
def test_a_slow_tool_is_given_up(shared: Serving, transport: str):
    assert called(shared, transport, "slow", seconds=0.3) == "Timeout calling tool 'slow' (timeout=0.3)."


@BOTH
def test_a_result_that_is_too_large_is_an_error(shared: Serving, transport: str):
    text = called(shared, transport, "huge")

    assert text.startswith("Error calling tool 'huge': ")
    assert len(text) < 1000


@BOTH
def test_calls_share_one_session_and_nothing_is_called_once_it_is_closed(transport: str):
    with mcp_server() as serving:

        async def story(session: McpSession) -> list[str]:
            calls = [session.call("add", {"a": number, "b": 1}) for number in range(4)]
            answers = await asyncio.gather(*calls)
            await session.close()
            return [*answers, await session.call("add", {"a": 1, "b": 1})]

        answers = with_session(serving, transport, story)

    assert answers == ["1", "2", "3", "4", "Error: Session is closed"]
    assert serving.calls == ["add"] * 4
    assert serving.count("GET") == (1 if transport == SSE else 0)


def test_a_server_of_the_handshake_era_is_told_that_its_session_is_over():
    with mcp_server() as serving:
        serving.front = of_the_handshake_era

        answer = called(serving, STREAMABLE, "add", {"a": 1, "b": 2})

    assert answer == "3"
    assert serving.count("DELETE") == 1


def test_tools_are_listed_as_the_server_tells_them(shared: Serving):
    async def story(session: McpSession) -> dict[str, mcp_session.LiveTool]:
        return dict(await session.tools())

    found = with_session(shared, STREAMABLE, story)

    assert (found["add"].description, found["add"].schema) == ("Adds two numbers.", ADD)
    assert {"boom", "slow", "huge"} <= found.keys()


@BOTH
def test_headers_are_sent_with_every_request_and_their_values_show_nowhere(transport: str):
    with mcp_server() as serving:
        serving.front = only_with_token

        answer = called(
            serving,
            transport,
            "add",
            {"a": 1, "b": 2},
            headers={"Authorization": "Bearer ${authorization_token}"},
            variables={"authorization_token": SECRET},
        )

    assert answer == "3"
    assert {headers.get("authorization") for _, _, headers in serving.requests} == {f"Bearer {SECRET}"}


def test_what_was_sent_in_confidence_is_taken_out_of_results_and_nothing_else_is():
    with mcp_server() as serving:
        text = called(serving, STREAMABLE, "telling", headers={"Authorization": f"Bearer {SECRET}"})

    assert text == "I was sent [REDACTED]. Try key=value&token=other."


@BOTH
def test_a_server_that_refuses_us_is_not_connected(transport: str):
    with mcp_server() as serving:
        serving.front = only_with_token

        with pytest.raises(McpUnreachable, match=r"^Connection failed \(possibly due to auth error\)\. Please check"):
            called(serving, transport, "add", headers={"Authorization": "Bearer ${missing}"})

    assert all("authorization" not in headers for _, _, headers in serving.requests)


@BOTH
def test_a_server_that_nobody_runs_is_not_connected(transport: str):
    nobody = Serving(port=1)

    with pytest.raises(
        McpUnreachable, match=r"^Connection failed: http://127\.0\.0\.1:1: cannot connect: .* Check that"
    ):
        called(nobody, transport, "add")


@BOTH
def test_a_redirect_is_not_followed_even_on_the_same_server(transport: str):
    with mcp_server() as serving:
        serving.front = redirecting

        with pytest.raises(McpUnreachable, match="redirects are not followed"):
            called(serving, transport, "add", headers={"Authorization": f"Bearer {SECRET}"})

    assert {path for _, path, _ in serving.requests} <= {"/mcp", "/sse"}


@BOTH
def test_an_address_that_is_not_public_is_refused_when_it_is_connected(shared: Serving, transport: str):
    before = len(shared.requests)

    with pytest.raises(McpUnreachable, match=r"^URL resolves to a non-public address \(127\.0\.0\.1\)"):
        called(shared, transport, "add", guard=Guard())

    assert len(shared.requests) == before


def test_a_server_that_does_not_answer_is_given_up_after_its_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_session, "OPEN_TIMEOUT", 0.2)
    with mcp_server() as serving:
        serving.front = silent

        with pytest.raises(McpUnreachable, match=r"^Timeout initializing client_session for server s1$"):
            called(serving, STREAMABLE, "add")


def test_another_kind_of_server_is_not_supported(shared: Serving):
    with pytest.raises(McpUnreachable, match=r"^Unsupported MCP server type: stdio$"):
        called(shared, "stdio", "add")


def test_a_session_whose_caller_is_cancelled_still_closes(shared: Serving):
    async def story(session: McpSession) -> bool:
        call = asyncio.create_task(session.call("slow", {}))
        while "slow" not in shared.calls:
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await session.close()
        return call.cancelled() and session.is_over

    assert with_session(shared, STREAMABLE, story)


# -- in other words --------------------------------------------------------------------------------------------------
def called(
    serving: Serving,
    transport: str,
    tool: str,
    arguments: dict[str, int] | None = None,
    *,
    seconds: float = 10,
    headers: dict[str, str] | None = None,
    variables: dict[str, str] | None = None,
    guard: Guard = LOCAL,
) -> str:
    async def story(session: McpSession) -> str:
        return await session.call(tool, arguments or {})

    given = {"headers": headers or {}, "variables": variables or {}, "call_seconds": seconds}
    return with_session(serving, transport, story, guard=guard, **given)


def with_session(
    serving: Serving, transport: str, story: Callable[[McpSession], Awaitable[object]], *, guard: Guard = LOCAL, **given
):
    given = {"headers": {}, "variables": {}, **given}
    server = McpServer.of("s1", "Tools", serving.sse_url if transport == SSE else serving.url, transport, **given)

    async def main() -> object:
        http = HttpClient(guard)
        session = McpSession(server, http)
        try:
            return await story(session)
        finally:
            await session.close()
            await http.aclose()

    return asyncio.run(main())


async def only_with_token(request: Request) -> Response | None:
    known = request.headers.get("authorization") == f"Bearer {SECRET}"
    return None if known else JSONResponse({"error": "who are you?"}, 401)


async def redirecting(request: Request) -> Response | None:
    return RedirectResponse("/elsewhere", 307)


async def silent(request: Request) -> Response | None:
    await asyncio.sleep(2)
    return None
