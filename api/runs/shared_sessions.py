"""Routes with which the user of a share link continues a session: read it, follow its run again, and cancel it.

A link opens the sessions that began by it, and no others; everything else looks as if it did not exist. An API token
opens all sessions of the agent.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.agents.cancel import cancel
from api.agents.session_wire import prologue_of
from api.events.counted_stream import CountedStream
from api.events.event_stream import DONE, KEEPALIVE, StreamEnd, ended_line, event_line
from api.http.errors import ARGUMENT, RequestRefused, TokenEnded, not_found
from api.http.replies import parse_canvas_id, parse_id, parse_session_id, result, success
from api.http.schemas import CancelBody
from api.requests.auth import AnyTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_READ, NEEDS_RUN
from canvas.errors import NotFound
from canvas.events.stream_sequencer import Position, audio_files, markers_to_tags
from canvas.ids import CanvasId, RunId
from scheduler.views.json_values import iso
from store.agents import canvases, conversation_turns, conversations
from store.agents.conversation_turns import ConversationTurn, TurnAnswer
from store.agents.conversations import Conversation
from store.db.transaction import Transaction
from store.runs import attempt_records, run_queries

router = APIRouter(tags=["share links"], dependencies=[NEEDS_READ])

MAX_MESSAGES = 200  # of a session that are shown
_NO_SOURCES: Mapping[str, Any] = {"chunks": {}, "doc_aggs": {}}


@router.get("/agentbots/{agent_id}/sessions/{session_id}")
def show_session(context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, session_id: str) -> Response:
    """Get a session: its turns with answers, files, sources and errors, and the run that is not over.

    `run` is null if nothing goes on; else follow its events after `run.after`, which are those of the current turn.
    """
    with context.database.statements() as tx:  # large values are read from the storage in between
        session = _get_session(tx, principal, agent_id, session_id)
        found, open_runs, is_cut = conversation_turns.read_turns(tx, principal.tenant_id, session.id, most=MAX_MESSAGES)
        run_ids = sorted({turn.run_id for turn in found if turn.run_id is not None})
        sources = attempt_records.citations_of_runs(tx, run_ids)
        document = context.versions.get_or_empty(tx, session.version_id).document
    current = next((run for run in open_runs if run.id == session.active_run), open_runs[0] if open_runs else None)
    return result(
        {
            "id": session.id.hex,
            "agent_id": session.canvas_id.hex,
            "prologue": prologue_of(document),
            "turns": [_turn_json(turn, sources) for turn in found],
            "is_cut": is_cut,
            "run": None
            if current is None
            else {"id": current.id.hex, "status": current.status, "after": str(max(current.first_event - 1, 0))},
        }
    )


@router.get("/agentbots/{agent_id}/runs/{run_id}/events", operation_id="follow_shared_run")
async def follow_run(
    request: Request, context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, run_id: str, after: str = ""
) -> Response:
    """Stream the events of a run of such a session after a position, up to its end or its next form.

    `after` and `Last-Event-ID` accept the id of any event, so a reader who lost the connection continues where it was.
    """
    position = Position.parse(request.headers.get("last-event-id") or after or "0")
    found = await run_in_thread(lambda: _get_run_id(context, principal, agent_id, run_id))
    close = context.rate_limits.open_stream(principal.stream_owner)
    return CountedStream(_lines(context, principal, found, position), close)


@router.post("/agentbots/{agent_id}/cancel", openapi_extra=body_openapi(CancelBody), dependencies=[NEEDS_RUN])
def cancel_session(context: ApiContextDep, principal: AnyTokenCaller, agent_id: str, body: SmallBody) -> Response:
    """Cancel a run, or all open runs of a session. What is over does not change."""
    fields = parse_body(CancelBody, body)
    canvas_id = _get_agent(context, principal, agent_id)
    if not fields.run_id and not fields.session_id:
        raise RequestRefused(ARGUMENT, "Name the `session_id` or the `run_id` to cancel.")
    if fields.session_id:
        with context.database.statements() as tx:
            session = _get_session(tx, principal, agent_id, fields.session_id)
        cancel(context, principal, session.id.hex, canvas_id)
    if fields.run_id:
        run_id = _get_run_id(context, principal, agent_id, fields.run_id)
        with suppress(NotFound):
            context.lifecycle.cancel_run(principal.tenant_id, run_id, by=principal.actor)
    return success(True)


async def _lines(
    context: ApiContext, principal: RequestPrincipal, run_id: RunId, after: Position
) -> AsyncGenerator[bytes]:
    async with context.streams.subscribe(run_id) as subscription:
        frames = context.streams.follow(
            principal.tenant_id, subscription, after, StreamEnd.REST, credential=principal.credential
        )
        try:
            async for wired in frames:
                yield KEEPALIVE if wired is None else event_line(wired)
        except TokenEnded as error:
            yield ended_line(error, run_id)
        finally:
            await frames.aclose()
    yield DONE


# -- what a caller may see --------------------------------------------------------------------------------------------
def _get_agent(context: ApiContext, principal: RequestPrincipal, agent_id: str) -> CanvasId:
    """Return the id of the caller's agent. Raises RequestRefused, the same for a missing one and for another's."""
    with context.database.statements() as tx:
        return _find_agent(tx, principal, agent_id)


def _find_agent(tx: Transaction, principal: RequestPrincipal, agent_id: str) -> CanvasId:
    canvas_id = parse_canvas_id(agent_id)
    if canvas_id is not None and principal.may_use(canvas_id):
        with suppress(NotFound):
            return canvases.get(tx, principal.tenant_id, canvas_id).id
    raise not_found(f"Can't find agent by ID: {agent_id[:64]}")


def _get_session(tx: Transaction, principal: RequestPrincipal, agent_id: str, written: str) -> Conversation:
    canvas_id = _find_agent(tx, principal, agent_id)
    unknown = not_found("Session not found!")
    session_id = parse_session_id(written)
    if session_id is None:
        raise unknown
    try:
        session = conversations.get(tx, principal.tenant_id, session_id, canvas_id)
    except NotFound:
        raise unknown from None
    if principal.link is not None and session.token_id != principal.link.token_id:
        raise unknown
    return session


def _get_run_id(context: ApiContext, principal: RequestPrincipal, agent_id: str, written: str) -> RunId:
    """Return the id of a run of one of the caller's sessions. Raises RequestRefused."""
    unknown = not_found("Run not found!")
    run_id = parse_id(written)
    with context.database.statements() as tx:
        canvas_id = _find_agent(tx, principal, agent_id)
        if run_id is None:
            raise unknown
        run = run_queries.get_summary(tx, principal.tenant_id, RunId(run_id))
        if run is None or run.canvas_id != canvas_id:
            raise unknown
        link = principal.link
        if link is not None and not conversations.is_of_link(tx, principal.tenant_id, run.id, link.token_id):
            raise unknown
    return run.id


# -- on the wire ------------------------------------------------------------------------------------------------------
def _turn_json(turn: ConversationTurn, sources: Mapping[RunId, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "question": turn.question,
        "answers": [_answer_json(answer) for answer in turn.answers],
        "reference": sources.get(turn.run_id, _NO_SOURCES) if turn.run_id is not None and turn.answers else _NO_SOURCES,
        "run_id": turn.run_id.hex if turn.run_id is not None else None,
        "status": turn.status,
        "error": turn.error,
        "created_at": iso(turn.created_at),
    }


def _answer_json(answer: TurnAnswer) -> dict[str, Any]:
    """Return an answer with its text as clients of RAGFlow get it, the files of its `message_end`, and its audio."""
    return {
        "id": answer.id.hex if answer.id is not None else None,
        "content": markers_to_tags(answer.text),
        "attachment": answer.end.get("attachment"),
        "downloads": answer.end.get("downloads") or [],
        "audio": audio_files(answer.text),
    }
