"""One turn with an agent: start or resume a run, then follow it as a stream or to the end of the turn.

The run's id is chosen here, and the subscription to it begins before the start, so no event is missed. If a client
disconnects, its run continues unless the client requested a cancel.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import structlog
from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.events.event_dialects import RAGFLOW, StreamDialect, is_think_tag, message_text
from api.events.event_stream import HEADERS, KEEPALIVE, MEDIA_TYPE, Envelope, StreamEnd
from api.http.errors import DATA, FORBIDDEN, RequestRefused, TokenEnded, no_access, not_found
from api.http.replies import parse_canvas_id, parse_session_id
from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext, run_in_thread
from api.requests.idempotency import find_key
from canvas.errors import NotAllowed, NotFound
from canvas.events import run_events
from canvas.events.stream_sequencer import Position
from canvas.ids import CanvasId, RunId, TenantId
from scheduler.callbacks.options import parse_callbacks
from scheduler.lifecycle.accept import Start, Started
from scheduler.lifecycle.start_options import ROUTE, find_first_response, parse_start
from scheduler.messaging.subscriptions import Subscription
from store.agents import canvases, conversations
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tenants import callbacks, sealed_headers
from store.tenants.callbacks import RunCallback
from store.tenants.viewer_sessions import Credential

log = structlog.get_logger()

TurnToStart = Start | Started
"""The turn that a request wants: a start, or the run of an earlier request with the same key."""

_COMPACT = frozenset({run_events.MESSAGE, run_events.MESSAGE_END, run_events.MESSAGE_RESET, run_events.NODE_FINISHED})


@dataclass(slots=True)
class ActiveTurn:
    """An accepted turn, with the subscription that follows it."""

    context: ApiContext
    tenant_id: TenantId
    started: Started
    subscription: Subscription
    stack: AsyncExitStack
    token_id: UUID | None  # the stream ends with this token; None: there was no token
    stops_with_client: bool = False
    has_ended: bool = False
    is_closed: bool = False

    async def envelopes(self, *, with_audio: bool = False) -> AsyncGenerator[Envelope | None]:
        """Yield the turn's envelopes; None when a keep-alive comment is due. Raises TokenEnded."""
        after = Position(self.started.after)
        credential = Credential(self.token_id) if self.token_id is not None else None
        frames = self.context.streams.follow(
            self.tenant_id, self.subscription, after, StreamEnd.TURN, credential=credential, with_audio=with_audio
        )
        try:
            async for wired in frames:
                yield wired
            self.has_ended = True
        finally:
            await frames.aclose()
            await self.close()

    async def close(self) -> None:
        """End the subscription. Cancel the run if the client has disconnected and requested that."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.stops_with_client and not self.has_ended:
            self.context.background.start(self._cancel())
        await self.stack.aclose()

    async def _cancel(self) -> None:
        log.info("client_disconnected", run_id=self.started.run_id.hex)
        await run_in_thread(lambda: self.context.lifecycle.cancel_run(self.tenant_id, self.started.run_id))


@dataclass(slots=True)
class TurnResult:
    """A turn that is collected from its envelopes, for a client without a stream."""

    last: dict[str, Any] = field(default_factory=dict[str, Any])
    name: str = ""
    texts: dict[str, list[tuple[int, str]]] = field(default_factory=dict[str, list[tuple[int, str]]])
    reference: dict[str, Any] = field(default_factory=dict[str, Any])
    structured: dict[str, Any] = field(default_factory=dict[str, Any])
    trace: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def add(self, wired: Envelope) -> None:
        """Add the next envelope."""
        data = wired.body["data"]
        match wired.name:
            case run_events.MESSAGE:
                self.texts.setdefault(wired.body["turn"], []).append((wired.body["offset"], message_text(data)))
            case run_events.MESSAGE_RESET:
                said, keep = self.texts.get(data["turn"], []), data["keep"]
                self.texts[data["turn"]] = [(at, _truncate(text, keep - at)) for at, text in said if at < keep]
            case run_events.MESSAGE_END:
                _merge(self.reference, data.get("reference") or {})
            case run_events.NODE_FINISHED:
                self._add_finished(data)
            case run_events.USER_INPUTS | run_events.WORKFLOW_FINISHED | run_events.RUN_FAILED:
                self.last, self.name = wired.body, wired.name
            case _:
                pass

    @property
    def was_cancelled(self) -> bool:
        """Whether the run was cancelled before the end of the turn."""
        data = self.last.get("data")
        return isinstance(data, Mapping) and data.get("outputs") == run_events.CANCELLED_TEXT

    @property
    def content(self) -> str:
        """The whole text, with think tags."""
        return "".join(text for parts in self.texts.values() for _, text in parts)

    def body(self, *, return_trace: bool, with_tags: bool = True) -> dict[str, Any]:
        """Return the last event, with the data of the whole turn merged into it."""
        texts = (text for parts in self.texts.values() for _, text in parts if with_tags or not is_think_tag(text))
        merged = {**self.last["data"], "content": "".join(texts), "reference": self.reference}
        if self.structured:
            merged["structured"] = self.structured
        if return_trace and self.trace:
            merged["trace"] = self.trace
        return {**self.last, "data": merged}

    def _add_finished(self, data: Mapping[str, Any]) -> None:
        node = data["component_id"]
        if structured := data["outputs"].get("structured"):
            self.structured[node] = structured
        known = next((item for item in self.trace if item["component_id"] == node), None)
        if known is None:
            self.trace.append(known := {"component_id": node, "trace": []})
        known["trace"].append(data)


def _truncate(text: str, length: int) -> str:
    """Return the first `length` code points of a text, where a think tag counts as one."""
    return text if is_think_tag(text) else text[:length]


def _merge(known: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, members in more.items():
        known[name] = {**known.get(name, {}), **members}


# -- beginning --------------------------------------------------------------------------------------------------------


def choose_turn(
    context: ApiContext,
    principal: RequestPrincipal,
    canvas_id: Any,
    options: Mapping[str, Any],
    route: str = ROUTE,
    *,
    custom_header: Mapping[str, Any] | None = None,
) -> TurnToStart:
    """Return the turn to start for these options.

    Raises RequestRefused for canvases and sessions of others, InvalidCanvas for a version that cannot run.
    `route` is the route of idempotency keys. `custom_header` is for MCP servers, and is encrypted here. A share link
    starts the published version of its agent, or continues a session that began by the link.
    """
    agent = parse_canvas_id(canvas_id)
    tenant_id, link = principal.tenant_id, principal.link
    if agent is not None and not principal.may_use(agent):
        raise no_access()
    if link is not None:
        if options.get("version"):
            raise RequestRefused(FORBIDDEN, "A share link runs the published version. Leave out `version`.", data=False)
        if options.get("callbacks"):
            raise NotAllowed("A share link has no callbacks. Leave out `callbacks`.", field="callbacks")
        options = {**options, "release": True}
    route = principal.key_route(route)
    headers = encrypt_headers(context, principal, custom_header)
    options = {**options, "user_id": str(options.get("user_id") or principal.user_id)}
    if headers:  # distinguishes requests with the same key
        options["custom_header_sha256"] = _digest_of(custom_header)
    with context.database.transaction() as tx:
        first = find_first_response(tx, tenant_id, agent, options, route) if agent is not None else None
        if first is not None:
            return first
        if options.get("session_id"):
            session_id = parse_session_id(options["session_id"])
            if session_id is None:
                raise not_found("Session not found!")
            session = conversations.get(tx, tenant_id, session_id)
            if link is not None and session.token_id != link.token_id:
                raise not_found("Session not found!")
            if session.canvas_id != agent:
                raise RequestRefused(FORBIDDEN, "Session does not belong to the requested agent.", data=False)
        if agent is None:
            raise no_access()
        start = _start_of(context, tx, tenant_id, agent, options, route)
        context.checked_versions.check(tx, context.versions, start.version_id)
    extra = {name: options[name] for name in ("cancel_on_disconnect",) if options.get(name)}
    extra |= headers
    return replace(start, request=replace(start.request, options=extra), token_id=principal.own_conversations)


def encrypt_headers(
    context: ApiContext, principal: RequestPrincipal, custom_header: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the option with a caller's encrypted headers for MCP servers; {} without headers.

    Raises NotAllowed for a share link: its headers would replace those of the tenant.
    """
    if not custom_header:
        return {}
    if principal.link is not None:
        message = "A share link sends no headers to MCP servers. Leave out `custom_header`."
        raise NotAllowed(message, field="custom_header")
    return sealed_headers.seal_headers(context.encryption_key, principal.tenant_id, custom_header)


def _digest_of(custom_header: Mapping[str, Any] | None) -> str:
    """Return the SHA-256 of a caller's headers, whose values are only stored encrypted."""
    return hashlib.sha256(json.dumps(custom_header, sort_keys=True).encode()).hexdigest()


def seal_callbacks(context: ApiContext, tenant_id: TenantId, given: Sequence[RunCallback]) -> tuple[RunCallback, ...]:
    """Return callbacks of a run with their own secrets encrypted."""
    return tuple(
        replace(
            each,
            secret=None,
            sealed_secret=callbacks.seal_secret(context.encryption_key, tenant_id, each.id, each.secret),
        )
        if each.secret is not None
        else each
        for each in given
    )


def with_callbacks(
    context: ApiContext, tenant_id: TenantId, start: TurnToStart, written: Sequence[Any] | None
) -> TurnToStart:
    """Return a start with callbacks as a caller has written them. Raises InvalidRequest and NotFound."""
    if not isinstance(start, Start) or not written:
        return start
    with context.database.transaction() as tx:
        parsed = parse_callbacks(tx, tenant_id, written, context.lifecycle.coordinator.callback_guard)
    return replace(start, callbacks=seal_callbacks(context, tenant_id, parsed))


def _start_of(
    context: ApiContext, tx: Transaction, tenant_id: TenantId, agent: CanvasId, options: Mapping[str, Any], route: str
) -> Start:
    """Return a Start.

    Raises RequestRefused if the canvas does not exist, without an extra statement for other starts.
    """
    if options.get("session_id"):
        _must_exist(tx, tenant_id, agent)
    try:
        guard = context.lifecycle.coordinator.callback_guard
        start = parse_start(tx, tenant_id, RunId(new_id()), agent, options, route, guard=guard)
        return replace(start, callbacks=seal_callbacks(context, tenant_id, start.callbacks))
    except NotFound:
        _must_exist(tx, tenant_id, agent)
        raise


def _must_exist(tx: Transaction, tenant_id: TenantId, agent: CanvasId) -> None:
    try:
        canvases.get(tx, tenant_id, agent)
    except NotFound:
        raise no_access() from None


def with_idempotency_key(request: Request, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a request with its `Idempotency-Key`. Raises InvalidRequest for an invalid key."""
    key = find_key(request, options.get("idempotency_key"))
    return {**options, "idempotency_key": key} if key is not None else options


async def begin_stream(
    context: ApiContext, tenant_id: TenantId, turn: TurnToStart, *, token_id: UUID | None
) -> ActiveTurn:
    """Accept a turn, as `begin` does, that is streamed. Raises TooManyRequests if its token has too many streams."""
    close = context.rate_limits.open_stream(token_id)
    try:
        talk = await begin(context, tenant_id, turn, token_id=token_id)
    except BaseException:
        close()
        raise
    talk.stack.callback(close)
    return talk


async def begin(context: ApiContext, tenant_id: TenantId, turn: TurnToStart, *, token_id: UUID | None) -> ActiveTurn:
    """Accept a turn: subscribe to its run, then start it, or resume the run that waits for this turn.

    A turn that was accepted before is followed from its beginning. The stream ends when the token does.
    """
    if isinstance(turn, Started):
        return await follow(context, tenant_id, turn.run_id, lambda: turn, token_id=token_id)
    assert turn.run_id is not None
    return await follow(context, tenant_id, turn.run_id, lambda: context.lifecycle.start_run(turn), token_id=token_id)


async def follow(
    context: ApiContext, tenant_id: TenantId, run_id: RunId, act: Callable[[], Started], *, token_id: UUID | None
) -> ActiveTurn:
    """Subscribe to a run, then call `act`, which starts the run or answers its forms.

    The stream ends when the token does.
    """
    async with AsyncExitStack() as stack:
        subscription = await stack.enter_async_context(context.streams.subscribe(run_id))
        started = await run_in_thread(act)
        if started.run_id != run_id:  # another run continues: subscribe to it now; its rows have the events before
            await stack.aclose()
            subscription = await stack.enter_async_context(context.streams.subscribe(started.run_id))
        return ActiveTurn(context, tenant_id, started, subscription, stack.pop_all(), token_id)
    raise AssertionError  # the context managers above swallow no exceptions


# -- answering --------------------------------------------------------------------------------------------------------


def ignored_headers(names: Sequence[str]) -> dict[str, str]:
    """Return the header that lists parameters without an effect; {} if there are none."""
    return {"X-Ignored-Parameters": ", ".join(names)} if names else {}


class TurnStreamResponse(StreamingResponse):
    """A streaming reply that ends its subscription however it ends, also before its first line."""

    def __init__(
        self, talk: ActiveTurn, lines: AsyncGenerator[bytes], headers: Mapping[str, str] | None = None
    ) -> None:
        whole = {**HEADERS, **id_headers(talk), **(headers or {})}
        super().__init__(lines, headers=whole, media_type=MEDIA_TYPE)
        self._talk = talk

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._talk.close()


def stream_reply(
    talk: ActiveTurn,
    *,
    compact: bool = False,
    return_trace: bool = False,
    headers: Mapping[str, str] | None = None,
    dialect: StreamDialect = RAGFLOW,
) -> TurnStreamResponse:
    """Return the reply that streams the turn as it happens."""
    return TurnStreamResponse(talk, _lines(talk, compact, return_trace, dialect), headers)


async def _lines(talk: ActiveTurn, compact: bool, return_trace: bool, dialect: StreamDialect) -> AsyncGenerator[bytes]:
    turn_result = TurnResult()
    is_silent = True
    envelopes = talk.envelopes(with_audio=True)
    try:
        async for wired in envelopes:
            if wired is None:
                yield KEEPALIVE
                continue
            is_silent = False
            if return_trace:
                turn_result.add(wired)
            if not compact:
                yield dialect.event(wired)
            elif (short := compact_envelope(wired, turn_result.trace if return_trace else None)) is not None:
                yield dialect.event(short)
        if is_silent:  # clients expect at least one frame
            yield dialect.empty(talk.started.conversation_id.hex)
        yield dialect.done
    except TokenEnded as error:
        yield dialect.ended(error, talk.started.run_id)
        yield dialect.done
    finally:
        await envelopes.aclose()


def compact_envelope(wired: Envelope, trace: list[dict[str, Any]] | None) -> Envelope | None:
    """Return an envelope for RAGFlow's compact mode, or None if that mode leaves it out."""
    data: dict[str, Any] = {}
    if wired.name in _COMPACT or wired.name in (run_events.USER_INPUTS, run_events.RUN_FAILED):
        if wired.name != run_events.NODE_FINISHED or trace is None:
            return wired
        data = {**wired.body["data"], "trace": trace}
    elif wired.name == run_events.WORKFLOW_FINISHED:
        data = {"usage": wired.body["data"]["usage"]}
    else:
        return None
    return replace(wired, body={**wired.body, "data": data})


async def gather(talk: ActiveTurn, request: Request | None = None) -> TurnResult:
    """Follow the turn to its end. With a request, stop when the client disconnects."""
    gathering = asyncio.create_task(_gather(talk))
    leaving = asyncio.create_task(_wait_for_disconnect(request)) if request is not None else None
    try:
        await asyncio.wait({gathering, leaving} if leaving else {gathering}, return_when=asyncio.FIRST_COMPLETED)
        if not gathering.done():
            raise RequestRefused(DATA, "The client has disconnected.", status=499)  # for the log only
        return gathering.result()
    finally:
        gathering.cancel()
        if leaving is not None:
            leaving.cancel()
        await asyncio.gather(gathering, return_exceptions=True)


async def _gather(talk: ActiveTurn) -> TurnResult:
    turn_result = TurnResult()
    envelopes = talk.envelopes()
    try:
        async for wired in envelopes:
            if wired is not None:
                turn_result.add(wired)
    finally:
        await envelopes.aclose()
    return turn_result


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def id_headers(talk: ActiveTurn) -> dict[str, str]:
    """Return headers with the ids of the run and its session, which reach clients before the body."""
    return {"X-Run-Id": talk.started.run_id.hex, "X-Session-Id": talk.started.conversation_id.hex}
