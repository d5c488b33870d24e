"""A session with an MCP server, over the official SDK.

    session = McpSession(server, http)
    await session.open()
    text = await session.call("add", {"a": 1, "b": 2})
    await session.close()

The task that entered a context of the SDK must also leave it, but calls come from many tasks. So each session has a
task of its own, which opens it, waits, and closes it. Requests use our own HTTP client. Requests and notifications of
the server (sampling, elicitation, changed lists) are not answered.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2

from canvas.errors import HttpFailed, NodeFailure, ToolError
from providers.http.client import HttpClient
from providers.http.redirects import first_request, mask_secrets
from providers.interfaces import HttpCall
from providers.mcp.headers import FilledHeaders, fill_headers, secrets_of
from providers.mcp.results import text_of

OPEN_TIMEOUT = 5.0
LIST_TIMEOUT = 10.0
CALL_TIMEOUT = 10.0  # default; the stored server may set another timeout
CLOSE_TIMEOUT = 2.0
MAX_MESSAGE_BYTES = 1024 * 1024  # limit for one message of the server
MAX_TOOLS = 128
MAX_PAGES = 16  # of the tool list; a server may never return a last page

SSE, STREAMABLE = "sse", "streamable-http"
SERVER_TYPES = (SSE, STREAMABLE)
NOT_CONNECTED = "Connection failed (possibly due to auth error). Please check authentication settings first"
CLOSED = "Error: Session is closed"
MASK = "[REDACTED]"


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server with the headers for one caller. `secrets` are masked in every text."""

    id: str
    name: str
    url: str = field(repr=False)  # may contain a key
    server_type: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    call_seconds: float = CALL_TIMEOUT
    secrets: tuple[str, ...] = field(default=(), repr=False)
    dropped: tuple[str, ...] = ()  # headers that were dropped because they are empty

    @classmethod
    def of(
        cls,
        server_id: str,
        name: str,
        url: str,
        server_type: str,
        *,
        headers: Mapping[str, str],
        variables: Mapping[str, str],
        call_seconds: float = CALL_TIMEOUT,
        custom_header: Mapping[str, str] | None = None,
    ) -> "McpServer":
        """Return a stored server with its header templates filled."""
        result: FilledHeaders = fill_headers(headers, variables, custom_header or {})
        hidden = secrets_of(result.headers, variables, url)
        return cls(server_id, name, url, server_type, result.headers, call_seconds, hidden, result.dropped)

    def mask_all(self, text: str) -> str:
        """Return the text with the secrets of the server masked, including keys in URLs."""
        return mask_secrets(self.mask_secrets(text))

    def mask_secrets(self, text: str) -> str:
        """Return the text with the secrets masked that we send to the server."""
        for secret in self.secrets:
            text = text.replace(secret, MASK)
        return text


@dataclass(frozen=True, slots=True)
class LiveTool:
    """A tool as its server describes it in this session."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)


class McpUnreachable(ToolError):
    """No session with an MCP server could be opened or used; the message says why."""

    code = "mcp_unreachable"


class McpSession:
    """A session with one server. Several tasks of one event loop may open and call it concurrently."""

    def __init__(self, server: McpServer, http: HttpClient) -> None:
        self.server = server
        self._transport = http.transport(MAX_MESSAGE_BYTES)
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[Any] | None = None
        self._closing = asyncio.Event()
        self._list_lock = asyncio.Lock()
        self._tools: dict[str, LiveTool] | None = None

    @property
    def is_over(self) -> bool:
        """Return whether the session was closed or has ended by itself."""
        return self._closing.is_set() or (self._task is not None and self._task.done())

    async def open(self) -> None:
        """Open the session, if it is not open. Raises McpUnreachable, and NodeFailure if the SDK is not installed."""
        await self._client()

    async def tools(self) -> Mapping[str, LiveTool]:
        """Return the server's tools by name, at most MAX_TOOLS, listed once per session. Raises McpUnreachable."""
        client = await self._client()
        async with self._list_lock:
            if self._tools is None:
                limit = asyncio.timeout(LIST_TIMEOUT)
                try:
                    async with limit:
                        self._tools = await self._list_tools(client)
                except TimeoutError as error:
                    if not limit.expired():
                        raise
                    text = f"Timeout listing the tools of server {self.server.id} (timeout={LIST_TIMEOUT:g})."
                    raise McpUnreachable(text, retryable=True) from error
                except Exception as error:
                    text = f"Error listing the tools of server {self.server.id}: {self._error_text(error)}."
                    raise McpUnreachable(text) from error
            return self._tools

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return its result, or the error of the call, as text for a model. Raises McpUnreachable."""
        if self.is_over:
            return CLOSED
        client = await self._client()
        seconds = self.server.call_seconds
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                result = await client.call_tool(name, dict(arguments))
            content = [item.model_dump(mode="json", by_alias=True) for item in result.content]
            text = text_of(content, result.structured_content, is_error=bool(result.is_error))
        except TimeoutError:
            if not limit.expired():
                raise
            return f"Timeout calling tool '{name}' (timeout={seconds:g})."
        except Exception as error:  # noqa: BLE001 (the model reads every error of the server or the SDK)
            text = f"Error calling tool '{name}': {self._error_text(error)}."
        return self.server.mask_secrets(text)

    async def close(self) -> None:
        """Close the session, within CLOSE_TIMEOUT. Closing it again does nothing."""
        self._closing.set()
        if self._task is None or self._task.done():
            return
        try:
            await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT)
        finally:
            self._task.cancel()

    # -- the session's own task -----------------------------------------------------------------------------------
    async def _client(self) -> Any:
        if self._closing.is_set():
            raise McpUnreachable(CLOSED)
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._ready.add_done_callback(_retrieve_exception)
            self._task = asyncio.create_task(self._run(self._ready))
        return await asyncio.shield(self._ready)

    async def _run(self, ready: asyncio.Future[Any]) -> None:
        limit = asyncio.timeout(OPEN_TIMEOUT)
        try:
            # The import takes a second: it must not block the event loop, and does not count towards OPEN_TIMEOUT.
            sdk = await asyncio.to_thread(_sdk)
            async with AsyncExitStack() as stack:
                async with limit:
                    client = await stack.enter_async_context(self._sdk_client(sdk, stack))
                ready.set_result(client)
                await self._closing.wait()
        except asyncio.CancelledError:
            if not ready.done():
                ready.set_exception(McpUnreachable(CLOSED))
            raise
        except BaseException as error:  # noqa: BLE001 (also exception groups: `open` raises what ended the session)
            if not ready.done():
                ready.set_exception(self._unreachable(error, timed_out=limit.expired()))

    def _sdk_client(self, sdk: "_Sdk", stack: AsyncExitStack) -> AbstractAsyncContextManager[Any]:
        server = self.server
        if server.server_type not in SERVER_TYPES:
            raise McpUnreachable(f"Unsupported MCP server type: {server.server_type}")
        request = first_request(HttpCall("POST", server.url, headers=server.headers), "easel")
        headers = {name: value for name, value in request.headers.items() if name not in ("accept", "accept-encoding")}

        def http_client(**_: Any) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(transport=self._transport, headers=headers, timeout=None, trust_env=False)

        if server.server_type == SSE:
            wire = sdk.sse_client(str(request.url), httpx_client_factory=http_client)
            return sdk.Client(wire, mode="legacy", cache=None)
        http = http_client()
        stack.push_async_callback(http.aclose)
        wire = sdk.streamable_http_client(str(request.url), http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES)
        return sdk.Client(wire, cache=None)

    def _unreachable(self, error: BaseException, *, timed_out: bool) -> NodeFailure:
        failure = error if isinstance(error, NodeFailure) else self._transport.failure
        if isinstance(failure, NodeFailure) and not failure.retryable:  # refused, redirected, too large: clear messages
            return McpUnreachable(self.server.mask_all(failure.message))
        if timed_out:
            return McpUnreachable(f"Timeout initializing client_session for server {self.server.id}", retryable=True)
        if isinstance(failure, HttpFailed):  # no server answered, so this is not about authentication
            reason = self.server.mask_all(failure.message)
            return McpUnreachable(
                f"Connection failed: {reason} Check that the MCP server runs and that its URL is right."
            )
        return McpUnreachable(NOT_CONNECTED)

    async def _list_tools(self, client: Any) -> dict[str, LiveTool]:
        found: dict[str, LiveTool] = {}
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                if len(found) == MAX_TOOLS:
                    return found
                found.setdefault(tool.name, LiveTool(tool.name, tool.description or "", dict(tool.input_schema)))
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    def _error_text(self, error: Exception) -> str:
        """Return the message of an error with secrets masked."""
        failure = self._transport.failure
        return self.server.mask_all(failure.message if failure is not None else str(error) or type(error).__name__)


@dataclass(frozen=True, slots=True)
class _Sdk:
    """The parts of the SDK that a session uses."""

    Client: Any
    sse_client: Any
    streamable_http_client: Any


def _sdk() -> _Sdk:
    try:
        from mcp import Client
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as missing:
        raise NodeFailure("MCP servers need the SDK on every worker: pip install easel[mcp].") from missing
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)  # it logs addresses and messages, which may contain keys
    return _Sdk(Client, sse_client, streamable_http_client)


def _retrieve_exception(ready: asyncio.Future[Any]) -> None:
    """Retrieve the exception, so that the event loop logs nothing if the opener has been cancelled."""
    if not ready.cancelled():
        ready.exception()
