"""Routes of the A2A protocol (agent to agent): the card of a published agent, and its JSON-RPC endpoint.

    GET  /api/v1/a2a/{agent_id}/.well-known/agent-card.json
    POST /api/v1/a2a/{agent_id}     {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": {…}}}

Errors before the call is known (token, agent) are HTTP errors; those of a call are JSON-RPC errors with status 200.
"""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from api.a2a.card import agent_card
from api.a2a.messages import SentMessage, parse_message
from api.a2a.protocol import VERSION_HEADER, CallRefused, Method, ProtocolVersion, RpcErrorCode, as_result, method_of
from api.a2a.tasks import TaskHead, state_of_run, state_of_turn, task_events, task_json
from api.events.event_stream import KEEPALIVE
from api.http.errors import RequestRefused, TokenEnded, TooManyRequests
from api.http.replies import json_reply, parse_canvas_id, parse_id, root_of
from api.http.reply_styles import OwnRoute
from api.requests.auth import AnyTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.request_bodies import body_openapi, chat_body
from api.requests.scopes import NEEDS_READ, NEEDS_RUN
from api.runs import openai_wire
from api.runs.openai_schemas import OpenAITurnBody
from api.runs.openai_wire import Question
from api.runs.turn import ActiveTurn, TurnStreamResponse, begin, begin_stream, follow, gather, id_headers
from api.runs.turn_loading import as_started, load_turn
from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.ids import CanvasId, RunId
from canvas.state.run_state import RunStatus
from store.agents import canvases, conversations, versions
from store.agents.canvases import StoredCanvas
from store.agents.versions import Version
from store.primitives.json_codec import encode
from store.runs import run_queries
from store.runs.passwords import load_mask
from store.runs.run_queries import RunSummary

router = APIRouter(tags=["A2A"], dependencies=[NEEDS_RUN], route_class=OwnRoute)

ROUTE = "a2a"  # of idempotency keys

_PUSH = (Method.SET_PUSH, Method.GET_PUSH, Method.LIST_PUSH, Method.DELETE_PUSH)


class CallBody(BaseModel):
    """A call of JSON-RPC."""

    jsonrpc: str = Field(description="2.0")
    id: str | int | None = None
    method: str
    params: dict[str, Any] = Field(default_factory=dict[str, Any])


@router.get("/a2a/{agent_id}/.well-known/agent-card.json", dependencies=[NEEDS_READ])
def get_card(request: Request, context: ApiContextDep, principal: AnyTokenCaller, agent_id: str) -> Response:
    """Get the card of a published agent: what it does, where it is called, and how a client signs in."""
    agent, version = _find_agent(context, principal, agent_id)
    return json_reply(agent_card(root_of(request), agent, version))


@router.post("/a2a/{agent_id}", openapi_extra=body_openapi(CallBody))
async def call(request: Request, context: ApiContextDep, principal: AnyTokenCaller, agent_id: str) -> Response:
    """Call a published agent by JSON-RPC: send it a message, and get, follow or cancel its tasks."""
    agent, _ = await run_in_thread(lambda: _find_agent(context, principal, agent_id))
    call_id: Any = None
    try:
        body = await _read_body(request, context)
        call_id = body.get("id")
        if not isinstance(call_id, str | int | None) or isinstance(call_id, bool):
            call_id = None
            raise CallRefused(RpcErrorCode.INVALID_REQUEST, "`id` must be a text, a whole number or null.")
        if body.get("jsonrpc") != "2.0":
            raise CallRefused(RpcErrorCode.INVALID_REQUEST, '`jsonrpc` must be "2.0".')
        params = body.get("params") or {}
        if not isinstance(params, dict):
            raise CallRefused(RpcErrorCode.INVALID_PARAMS, "`params` must be an object.")
        version = _version_of(request)
        method = method_of(body.get("method"), version)
        return await _Call(request, context, principal, agent.id, version, call_id, params).answer(method)
    except CallRefused as refused:
        return json_reply(_error_json(call_id, refused))
    except (InvalidRequest, RequestRefused) as refused:
        if isinstance(refused, TooManyRequests):
            raise
        return json_reply(_error_json(call_id, _refusal_of(refused)))


class _Call:
    """A call of one agent."""

    def __init__(
        self,
        request: Request,
        context: ApiContext,
        principal: RequestPrincipal,
        agent_id: CanvasId,
        version: ProtocolVersion,
        call_id: Any,
        params: Mapping[str, Any],
    ) -> None:
        self._request, self._context, self._principal = request, context, principal
        self._agent_id, self._version, self._call_id, self._params = agent_id, version, call_id, params

    async def answer(self, method: Method) -> Response:
        """Answer the call. Raises CallRefused, and what the start of a turn raises."""
        match method:
            case Method.SEND:
                return await self._send(is_stream=False)
            case Method.STREAM:
                return await self._send(is_stream=True)
            case Method.GET:
                return await self._get()
            case Method.CANCEL:
                return await self._cancel()
            case Method.SUBSCRIBE:
                return await self._subscribe()
            case Method.LIST:
                message = "Tasks cannot be listed here. GET /api/v1/runs lists the runs of an agent."
                raise CallRefused(RpcErrorCode.UNSUPPORTED_OPERATION, message)
            case Method.EXTENDED_CARD:
                raise CallRefused(RpcErrorCode.NO_EXTENDED_CARD, "The card of an agent is the same for every caller.")
            case each if each in _PUSH:
                message = "Push notifications are not supported. Stream, or poll the task."
                raise CallRefused(RpcErrorCode.PUSH_NOT_SUPPORTED, message)
            case _:
                raise AssertionError(method)

    async def _send(self, *, is_stream: bool) -> Response:
        sent = parse_message(self._params, self._version)
        session = await run_in_thread(lambda: self._find_session(sent))
        fields = OpenAITurnBody(inputs=dict(sent.inputs) or None, session_id=session, release=True)
        metadata = self._metadata()
        start = await openai_wire.choose(
            self._request,
            self._context,
            self._principal,
            self._agent_id.hex,
            fields,
            Question(sent.text, sent.attached),
            ROUTE,
            {"metadata": metadata} if metadata else None,
        )
        accept = begin_stream if is_stream else begin
        talk = await accept(self._context, self._principal.tenant_id, start, token_id=self._principal.token_id)
        head = self._head(talk, metadata)
        if is_stream:
            return TurnStreamResponse(talk, self._lines(talk, head))
        if sent.is_awaited:
            turn_result = await gather(talk, self._request)
            if turn_result.last:
                task = task_json(head, turn_result, state_of_turn(turn_result))
                return self._reply(as_result("task", task, self._version), id_headers(talk))
        await talk.close()
        task = await self._load_task(talk.started.run_id)
        return self._reply(as_result("task", task, self._version), id_headers(talk))

    async def _get(self) -> Response:
        run = await self._require_run()
        length = self._params.get("historyLength")
        task = await self._load_task(run.id, has_question=isinstance(length, int) and length > 0)
        return self._reply(self._as_task(task))

    async def _cancel(self) -> Response:
        run = await self._require_run()
        if state_of_run(run).is_over:
            message = f"Task {run.id.hex} is {state_of_run(run).value} already."
            raise CallRefused(RpcErrorCode.TASK_NOT_CANCELABLE, message)
        await run_in_thread(lambda: self._context.lifecycle.cancel_run(self._principal.tenant_id, run.id))
        return self._reply(self._as_task(await self._load_task(run.id)))

    async def _subscribe(self) -> Response:
        run = await self._require_run()
        if state_of_run(run).is_over:
            message = f"Task {run.id.hex} is {state_of_run(run).value} already: get it."
            raise CallRefused(RpcErrorCode.UNSUPPORTED_OPERATION, message)
        token_id = self._principal.token_id
        close = self._context.rate_limits.open_stream(token_id)
        try:
            talk = await follow(
                self._context, self._principal.tenant_id, run.id, lambda: as_started(run), token_id=token_id
            )
        except BaseException:
            close()
            raise
        talk.stack.callback(close)
        return TurnStreamResponse(talk, self._lines(talk, self._head(talk, _metadata_of(run))))

    async def _lines(self, talk: ActiveTurn, head: TaskHead) -> AsyncGenerator[bytes]:
        updates = task_events(talk, head)
        try:
            async for update in updates:
                yield KEEPALIVE if update is None else self._line({"result": update})
        except TokenEnded as ended:
            refused = CallRefused(RpcErrorCode.INTERNAL, ended.message, {"run_id": head.run_id.hex})
            yield self._line({"error": _error_body(refused)})
        finally:
            await updates.aclose()

    def _line(self, body: Mapping[str, Any]) -> bytes:
        return f"data: {encode({'jsonrpc': '2.0', 'id': self._call_id, **body})}\n\n".encode()

    def _reply(self, result: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
        return json_reply({"jsonrpc": "2.0", "id": self._call_id, "result": result}, headers=headers)

    def _as_task(self, task: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a task as the result of a method that returns nothing else."""
        return as_result("task", task, self._version) if self._version is ProtocolVersion.V0_3 else task

    def _head(self, talk: ActiveTurn, metadata: Mapping[str, Any]) -> TaskHead:
        ids = talk.started
        return TaskHead(ids.run_id, ids.conversation_id, root_of(self._request), self._version, metadata)

    def _metadata(self) -> dict[str, Any]:
        """Return the metadata of the call and of its message, as it is stored with the run."""
        message = self._params.get("message")
        of_message = message.get("metadata") if isinstance(message, Mapping) else None
        found = [each for each in (self._params.get("metadata"), of_message) if isinstance(each, Mapping)]
        return {name: value for each in found for name, value in each.items()}

    def _find_session(self, sent: SentMessage) -> str | None:
        """Return the session that a message continues. Raises CallRefused."""
        if sent.task_id is None:
            return sent.session_id.hex if sent.session_id is not None else None
        run = self._find_run(sent.task_id)
        if run is None:
            raise _task_not_found(sent.task_id.hex)
        if sent.session_id is not None and sent.session_id != run.conversation_id:
            raise CallRefused(RpcErrorCode.INVALID_PARAMS, "`message.contextId` is not the context of the task.")
        if run.status != RunStatus.WAITING:
            message = (
                f"Task {run.id.hex} is {state_of_run(run).value} and takes no message. Leave out `message.taskId`, "
                "and send `message.contextId` to go on in its context."
            )
            raise CallRefused(RpcErrorCode.UNSUPPORTED_OPERATION, message)
        return run.conversation_id.hex

    async def _load_task(self, run_id: RunId, *, has_question: bool = False) -> dict[str, Any]:
        run = await run_in_thread(lambda: self._find_run(run_id))
        if run is None:
            raise _task_not_found(run_id.hex)
        loaded = await load_turn(self._context, self._principal.tenant_id, run)
        run = loaded.run
        head = TaskHead(run.id, run.conversation_id, root_of(self._request), self._version, _metadata_of(run))
        question = await run_in_thread(lambda: self._read_question(run)) if has_question else None
        return task_json(head, loaded.turn_result, state_of_run(run), run.error, question)

    def _read_question(self, run: RunSummary) -> str | None:
        """Return the user's text of the present turn, with passwords masked; None for a query that is no text."""
        with self._context.database.transaction() as tx:
            canvas = self._context.versions.get_or_empty(tx, run.version_id).canvas
            query = load_mask(tx, canvas, self._principal.tenant_id, run.id).value(run.request.get("query"))
        return query if isinstance(query, str) else None

    async def _require_run(self) -> RunSummary:
        written = self._params.get("id")
        found = parse_id(written)
        run = await run_in_thread(lambda: self._find_run(RunId(found))) if found is not None else None
        if run is None:
            raise _task_not_found(str(written))
        return run

    def _find_run(self, run_id: RunId) -> RunSummary | None:
        """Return a run of the agent; a share link has the runs of its sessions."""
        link = self._principal.link
        with self._context.database.statements() as tx:
            run = run_queries.get_summary(tx, self._principal.tenant_id, run_id)
            if run is None or run.status == RunStatus.REFUSED or run.canvas_id != self._agent_id:
                return None
            if link is not None and not conversations.is_of_link(tx, self._principal.tenant_id, run.id, link.token_id):
                return None
        return run


# -- the request ------------------------------------------------------------------------------------------------------
async def _read_body(request: Request, context: ApiContext) -> dict[str, Any]:
    try:
        return await chat_body(request, context)
    except InvalidRequest as refused:
        raise CallRefused(RpcErrorCode.PARSE, refused.message) from None


def _version_of(request: Request) -> ProtocolVersion:
    """Return the version of the protocol that a request names; 0.3 if it names none. Raises CallRefused."""
    written = request.headers.get(VERSION_HEADER, "").strip() or ProtocolVersion.V0_3.value
    for version in ProtocolVersion:
        if written == version.value or written.startswith(f"{version.value}."):
            return version
    raise CallRefused(RpcErrorCode.VERSION_NOT_SUPPORTED, f"Version {written[:64]!r} is not supported. Use 1.0 or 0.3.")


def _find_agent(context: ApiContext, principal: RequestPrincipal, written: str) -> tuple[StoredCanvas, Version]:
    """Return an agent that the caller may use, and its version that was published last. Raises NotFound."""
    unknown = NotFound(f"There is no published agent {written[:64]}.")
    canvas_id = parse_canvas_id(written)
    if canvas_id is None or not principal.may_use(canvas_id):
        raise unknown
    try:
        with context.database.transaction() as tx:
            return (
                canvases.get(tx, principal.tenant_id, canvas_id),
                versions.lock_latest_released(tx, principal.tenant_id, canvas_id),
            )
    except NotFound:
        raise unknown from None


def _metadata_of(run: RunSummary) -> Mapping[str, Any]:
    return (run.request.get("options") or {}).get("metadata") or {}


# -- errors -----------------------------------------------------------------------------------------------------------
def _task_not_found(written: str) -> CallRefused:
    return CallRefused(RpcErrorCode.TASK_NOT_FOUND, f"There is no task {written[:64]} of this agent.")


def _refusal_of(error: InvalidRequest | RequestRefused) -> CallRefused:
    """Return the error of a call that Easel has refused."""
    if isinstance(error, Conflict):
        return CallRefused(RpcErrorCode.UNSUPPORTED_OPERATION, error.message, dict(error.details))
    data = dict(error.details) if isinstance(error, InvalidRequest) else None
    return CallRefused(RpcErrorCode.INVALID_PARAMS, error.message, data or None)


def _error_body(refused: CallRefused) -> dict[str, Any]:
    data = {"data": [dict(refused.data)]} if refused.data else {}
    return {"code": refused.code.value, "message": refused.message, **data}


def _error_json(call_id: Any, refused: CallRefused) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": call_id, "error": _error_body(refused)}
