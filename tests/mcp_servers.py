"""MCP servers of the official SDK on a real port, with both transports; they record their requests.

    with mcp_server() as server:
        ...  # server.url, or server.sse_url; server.calls, server.sessions

The description of its tool can be changed while it runs. `front` gets each request before the SDK, and may answer it.
"""

import asyncio
import base64
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

PIXEL = base64.b64encode(b"\x89PNG and so on").decode()
ADD = {
    "type": "object",
    "title": "addArguments",
    "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}},
    "required": ["a", "b"],
}
"""The schema of the tool `add` as the server describes it."""

Front = Callable[[Request], Awaitable[Response | None]]


@dataclass
class RunningMcpServer:
    """A running server and its recorded requests."""

    port: int = 0
    calls: list[str] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)  # method, path, headers
    description: str = "Adds two numbers."
    front: Front | None = None
    bodies: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def sse_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/sse"

    def count(self, method: str) -> int:
        return sum(1 for sent_method, _, _ in self.requests if sent_method == method)

    def headers(self) -> dict[str, str]:
        """The headers of the last request."""
        return self.requests[-1][2]


async def refuse_newer_versions(request: Request) -> Response | None:
    """A `front` that refuses protocol versions without sessions."""
    version = request.headers.get("mcp-protocol-version", "2025-06-18")
    return JSONResponse({"error": "unknown"}, 400) if version >= "2026" else None


@contextmanager
def mcp_server() -> Generator[RunningMcpServer]:
    """Run a server until the block ends."""
    serving = RunningMcpServer()
    app = _application(serving)
    config = uvicorn.Config(app, port=0, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        threading.Event().wait(0.005)
    assert server.started, "The server did not start."
    serving.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield serving
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def _application(serving: RunningMcpServer) -> Any:
    server = _Tools("tools", log_level="CRITICAL")
    server.serving = serving
    _add_tools(server, serving)
    streamable, sse = server.streamable_http_app(), server.sse_app()
    inner = Starlette(
        routes=[*streamable.routes, *sse.routes, Mount("/", streamable)], lifespan=streamable.router.lifespan_context
    )

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            received = [await receive()]
            while received[-1].get("more_body"):
                received.append(await receive())
            body = b"".join(message.get("body", b"") for message in received)
            serving.bodies.append(body.decode())
            receive = _replay(body, receive)
        if scope["type"] == "http":
            request = Request(scope, _replay(body, receive) if scope["method"] == "POST" else receive)
            serving.requests.append((request.method, request.url.path, dict(request.headers)))
            if serving.front is not None:
                answer = await serving.front(request)
                if answer is not None:
                    await answer(scope, receive, send)
                    return
        await inner(scope, receive, send)

    return application


def _replay(body: bytes, receive: Receive) -> Receive:
    """Replay a body that was read already."""
    whole = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Any:
        return whole.pop() if whole else await receive()

    return received


class _Tools(MCPServer):
    """Lists `add` with its current description."""

    serving: RunningMcpServer

    async def list_tools(self) -> list[types.Tool]:
        tools = await super().list_tools()
        return [
            tool.model_copy(update={"description": self.serving.description}) if tool.name == "add" else tool
            for tool in tools
        ]


def _add_tools(server: MCPServer, serving: RunningMcpServer) -> None:
    @server.tool(structured_output=False)
    def add(a: int, b: int) -> str:
        serving.calls.append("add")
        return str(a + b)

    @server.tool()
    def boom() -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text="boom")], is_error=True)

    @server.tool(structured_output=False)
    async def slow() -> str:
        serving.calls.append("slow")
        await asyncio.sleep(30)
        return "late"

    @server.tool(structured_output=False)
    def huge() -> str:
        return "x" * (1024 * 1024 + 1)

    @server.tool()
    def mixed() -> types.CallToolResult:
        return types.CallToolResult(
            content=[
                types.TextContent(type="text", text="Two things:"),
                types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
                types.EmbeddedResource(
                    type="resource",
                    resource=types.TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="a text"),
                ),
                types.EmbeddedResource(
                    type="resource",
                    resource=types.BlobResourceContents(uri="file:///a.bin", mime_type="a/b", blob=PIXEL),
                ),
            ]
        )

    @server.tool(structured_output=False)
    def telling() -> str:
        header = serving.headers().get("authorization", "")
        return f"I was sent {header}. Try key=value&token=other."

    @server.tool()
    def empty() -> types.CallToolResult:
        return types.CallToolResult(content=[])

    @server.tool()
    def structured() -> types.CallToolResult:
        return types.CallToolResult(content=[], structured_content={"sum": 3})
