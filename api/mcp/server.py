"""Agents as tools for MCP clients: streamable HTTP under `/mcp`, without sessions, with the official SDK.

    POST /mcp        Authorization: Bearer <API token>

A client sees the agents of its token's tenant that are published and exposed (store/mcp/agents.py), with a token of one
agent only that one. The token needs the scope `run`. A call starts a run
of the published version and answers when its turn ends; progress messages report its nodes. In the protocol of 2026, a
client cancels by closing its request, and the run is cancelled with it. In earlier versions a lost connection does not
mean that, so clients request it with the header `X-Cancel-On-Disconnect`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import structlog
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from api.http.errors import DATA, RequestRefused, Unauthorized
from api.mcp import metadata, tools
from api.mcp.tools import ToolAnswer
from api.requests import auth
from api.requests.dependencies import ApiContext, run_in_thread
from api.requests.idempotency import find_key
from api.runs.turn import ActiveTurn, TurnResult, begin, choose_turn
from canvas.errors import InvalidRequest
from canvas.events import run_events
from providers.http.client import default_user_agent
from scheduler.lifecycle.accept import MCP, Start
from store.mcp import agents
from store.mcp.agents import ExposedAgent
from store.tenants import scopes

log = structlog.get_logger()

PATH = "/mcp"
ROUTE = "mcp"  # of idempotency keys
CANCEL_HEADER = "x-cancel-on-disconnect"
FIRST_MODERN = "2026"  # versions of the protocol are dates

_PRINCIPAL = "easel.principal"
_PROGRESS_EVENTS = {run_events.NODE_STARTED: "started", run_events.NODE_FINISHED: "finished"}


class McpEndpoint:
    """The `/mcp` route, which works inside of `running`.

    The import of the SDK takes a second, so the first request does it, in a thread.
    """

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._ready: asyncio.Future[Any] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve the route until the block ends."""
        try:
            yield
        finally:
            self._leave.set()
            if self._serving is not None:
                await asyncio.gather(self._serving, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        context: ApiContext = request.app.state.context
        try:
            scope[_PRINCIPAL] = await auth.authenticate_for(request, context, scopes.TokenScope.RUN)
        except Unauthorized as refused:
            challenge = f'Bearer resource_metadata="{metadata.url_of(request)}"'
            raise Unauthorized(refused.message, challenge) from None
        manager = await self._manager()
        if manager is None:
            raise RequestRefused(DATA, "This API does not serve MCP. Run `pip install easel[mcp]`.", status=501)
        await manager.handle_request(scope, receive, send)

    async def _manager(self) -> Any:
        """Return the SDK's transport, or None if the SDK is not installed."""
        if self._ready is None:
            self._ready = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._ready))
            self._serving.add_done_callback(partial(_pass_failure, self._ready))
        return await asyncio.shield(self._ready)

    async def _serve(self, ready: asyncio.Future[Any]) -> None:
        """Run the transport in this task, since it must end in the task in which it began."""
        manager = await asyncio.to_thread(_new_manager, self._max_body_bytes)
        if manager is None:
            ready.set_result(None)
            return
        async with manager.run():
            ready.set_result(manager)
            await self._leave.wait()


def _pass_failure(ready: asyncio.Future[Any], serving: asyncio.Task[None]) -> None:
    """Fail the requests that wait for the transport, if it ended before it was ready."""
    if ready.done():
        return
    if serving.cancelled():
        ready.cancel()
    else:
        ready.set_exception(serving.exception() or RuntimeError("The MCP transport ended before it was ready."))


def _new_manager(max_body_bytes: int) -> Any:
    """Return the SDK's transport for our server, or None if the SDK is not installed."""
    try:
        from mcp.server import Server
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    except ImportError:
        return None
    # it would log messages of clients; `_log_unexpected` logs errors
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    server: Any = Server("easel", title="Easel", version=_version(), on_list_tools=_list_tools, on_call_tool=_call_tool)
    return StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=max_body_bytes)


def _version() -> str:
    return default_user_agent().partition("/")[2]


async def _list_tools(ctx: Any, params: Any) -> Any:
    from mcp.shared.exceptions import MCPError
    from mcp_types import INTERNAL_ERROR

    try:
        return await _list_exposed(ctx)
    except Exception as error:
        raise MCPError(INTERNAL_ERROR, _log_unexpected(error)) from error


async def _list_exposed(ctx: Any) -> Any:
    from mcp_types import ListToolsResult, Tool

    context, principal = _caller_of(ctx)

    def read() -> list[ExposedAgent]:
        with context.database.transaction() as tx:
            return agents.list_exposed(tx, principal.tenant_id)

    return ListToolsResult(
        tools=[
            Tool(
                name=agent.name,
                title=agent.title,
                description=tools.describe_agent(agent),
                input_schema=tools.build_schema(agent),
            )
            for agent in await run_in_thread(read)
            if principal.may_use(agent.canvas_id)
        ]
    )


async def _call_tool(ctx: Any, params: Any) -> Any:
    from mcp_types import CallToolResult, TextContent

    try:
        answer = await _answer(ctx, params.name, params.arguments or {})
    except (RequestRefused, Unauthorized, InvalidRequest) as refused:
        answer = ToolAnswer(refused.message, is_error=True)
    except Exception as error:  # noqa: BLE001 (clients get a request id instead of internal errors)
        answer = ToolAnswer(_log_unexpected(error), is_error=True)
    structured = dict(answer.structured) if answer.structured is not None else None
    text = TextContent(type="text", text=answer.text)
    return CallToolResult(content=[text], structured_content=structured, is_error=answer.is_error)


async def _answer(ctx: Any, name: str, arguments: Mapping[str, Any]) -> ToolAnswer:
    context, principal = _caller_of(ctx)

    def read() -> ExposedAgent | None:
        with context.database.transaction() as tx:
            return agents.find_exposed(tx, principal.tenant_id, name)

    agent = await run_in_thread(read)
    if agent is None or not principal.may_use(agent.canvas_id):
        raise RequestRefused(DATA, f"Unknown tool: {name}")
    options = tools.build_options(agent, arguments)
    key = find_key(ctx.request)
    if key is not None:
        options["idempotency_key"] = key
    turn = await run_in_thread(lambda: choose_turn(context, principal, agent.canvas_id.hex, options, ROUTE))
    if isinstance(turn, Start):
        turn = replace(turn, origin=MCP)
    talk = await begin(context, principal.tenant_id, turn, token_id=principal.token_id)
    talk.stops_with_client = _stops_with_client(ctx)
    try:
        turn_result = await _follow(ctx, talk)
    finally:
        with anyio.CancelScope(shield=True):
            await talk.close()
    return tools.make_answer(turn_result, talk.started.conversation_id.hex, talk.started.run_id.hex)


async def _follow(ctx: Any, talk: ActiveTurn) -> TurnResult:
    """Follow the turn to its end. If the client asked for progress, report each node that starts or finishes."""
    turn_result = TurnResult()
    progress = 0
    async with aclosing(talk.envelopes()) as envelopes:
        async for wired in envelopes:
            if wired is None:
                continue
            turn_result.add(wired)
            if (what := _PROGRESS_EVENTS.get(wired.name)) is not None:
                progress += 1
                node = wired.body["data"]
                await ctx.session.report_progress(progress, message=f"{node['component_name']} {what}")
    return turn_result


def _log_unexpected(error: Exception) -> str:
    """Log an unexpected error and return the message for the client."""
    request_id = uuid4().hex
    log.error("request_failed", request_id=request_id, path=PATH, exc_info=error)
    return f"An internal error occurred. Report it with the request id {request_id}."


def _caller_of(ctx: Any) -> tuple[ApiContext, auth.RequestPrincipal]:
    return ctx.request.app.state.context, ctx.request.scope[_PRINCIPAL]


def _stops_with_client(ctx: Any) -> bool:
    requested = str(ctx.request.headers.get(CANCEL_HEADER, "")).strip().lower()
    return requested in ("1", "true", "yes") or (not requested and str(ctx.protocol_version) >= FIRST_MODERN)
