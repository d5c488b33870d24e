"""Routes of an agent's conversations (`sessions` in RAGFlow's paths): list, create, get, delete."""

from datetime import UTC, datetime, timedelta

from fastapi import APIRouter
from fastapi.responses import Response

from api.agents import session_wire
from api.agents.agents import get_caller_canvas
from api.agents.cancel import cancel_open_runs
from api.http.errors import ARGUMENT, RequestRefused, not_found
from api.http.paging import ListPageDep, is_true, parse_list, parse_order
from api.http.replies import id_or_unused, json_reply, parse_canvas_id, parse_session_id, result, success
from api.http.schemas import DeleteSessionsBody, NewSessionBody
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, ignored_field_warnings, parse_body, with_query
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ, NEEDS_RUN
from canvas.errors import NotFound
from canvas.ids import CanvasId, SessionId
from store.agents import canvases, conversations, versions
from store.agents.conversations import Conversation
from store.db.transaction import Transaction
from store.tenants.audit import Action

router = APIRouter(prefix="/agents/{agent_id}/sessions", tags=["sessions"], dependencies=[NEEDS_READ])

UNKNOWN = "Session not found!"


@router.post("", openapi_extra=body_openapi(NewSessionBody), dependencies=[NEEDS_RUN])
def create_session(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    agent_id: str,
    body: SmallBody,
    once: OnceByBody,
    user_id: str = "",
    release: str = "",
) -> Response:
    """Create a conversation with the draft, or with `release` the latest published version."""
    fields = parse_body(NewSessionBody, with_query(body, user_id=user_id, release=release))
    with once.transaction(context.database) as tx:
        try:
            stored = canvases.get(tx, principal.tenant_id, CanvasId(id_or_unused(agent_id)))
        except NotFound:
            raise not_found("Agent not found.") from None
        chosen = versions.lock_latest_released if fields.release else versions.lock_draft_version
        version = chosen(tx, principal.tenant_id, stored.id)
        context.checked_versions.check(tx, context.versions, version.id)
        created = conversations.create(
            tx,
            principal.tenant_id,
            stored.id,
            version.id,
            fields.user_id or principal.user_id,
            fields.name or "",
            "agent",
            token_id=principal.own_conversations,
        )
        shown = session_wire.session_item(tx, context, conversations.get(tx, principal.tenant_id, created))
        return once.store_reply(tx, result(shown, **ignored_field_warnings(NewSessionBody, body)))


@router.get("")
def list_sessions(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    agent_id: str,
    page: ListPageDep,
    id: str = "",  # noqa: A002 - the name on the wire
    user_id: str = "",
    exp_user_id: str = "",
    keywords: str = "",
    from_date: str = "",
    to_date: str = "",
    orderby: str = "update_time",
    desc: str = "true",
    dsl: str = "true",
) -> Response:
    """List one page of an agent's conversations, by default the latest changed first.

    With `exp_user_id` only ids and names of that user's, the newest first.
    """
    with context.database.statements() as tx:  # large values are read from the storage in between
        canvas = get_caller_canvas(tx, principal, agent_id)
        found, total = conversations.page(
            tx,
            principal.tenant_id,
            canvas.id,
            conversations.ConversationFilter(
                ids=[SessionId(id_or_unused(entry)) for entry in parse_list(id)],
                user_id=exp_user_id or user_id,
                keywords=keywords,
                since=_parse_time(from_date, "from_date"),
                until=_parse_time(to_date, "to_date", is_end=True),
            ),
            order_by="create_time" if exp_user_id else parse_order(orderby, conversations.ORDERS),
            descending=bool(exp_user_id) or is_true(desc),
            limit=page.size,
            offset=page.offset,
        )
        if exp_user_id:
            return success([{"id": session.id.hex, "name": session.name} for session in found], total=total)
        spoken = session_wire.load_messages(tx, principal.tenant_id, [session.id for session in found])
        shown = [
            session_wire.session_item(tx, context, session, with_dsl=is_true(dsl), spoken=spoken[session.id])
            for session in found
        ]
    return json_reply({"code": 0, "message": "success", "data": shown, "total": total})


@router.get("/{session_id}")
def get_session(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, session_id: str) -> Response:
    """Get one conversation with its document."""
    with context.database.statements() as tx:  # large values are read from the storage in between
        return success(session_wire.session_row(tx, context, _get_session(tx, principal, agent_id, session_id)))


@router.delete("/{session_id}", dependencies=[NEEDS_EDIT])
def delete_session(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, session_id: str) -> Response:
    """Delete a conversation and cancel its open runs."""
    with context.database.transaction() as tx:
        session = _get_session(tx, principal, agent_id, session_id)
    return success(len(_delete(context, principal, session.canvas_id, [session.id])))


@router.delete("", openapi_extra=body_openapi(DeleteSessionsBody), dependencies=[NEEDS_EDIT])
def delete_sessions(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, body: SmallBody) -> Response:
    """Delete the conversations that the body names, or all, and cancel their open runs."""
    fields = parse_body(DeleteSessionsBody, body)
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
    if fields.delete_all and not fields.ids:
        _delete(context, principal, canvas.id, None)
        return result(None)
    if not fields.ids:
        return result(None)
    ids = [session_id for session_id in map(parse_session_id, fields.ids) if session_id is not None]
    return _deletion_reply(fields.ids, _delete(context, principal, canvas.id, ids))


def _deletion_reply(requested_ids: list[str], deleted: set[SessionId]) -> Response:
    """Return the reply about a deleted list, with errors for unknown and duplicate ids."""
    errors: list[str] = []
    seen: set[SessionId] = set()
    for text in requested_ids:
        session_id = parse_session_id(text)
        if session_id in seen:
            errors.append(f"Duplicate session ids: {text}")
        elif session_id is None or session_id not in deleted:
            errors.append(f"The agent doesn't own the session {text}")
        else:
            seen.add(session_id)
    if not errors:
        return result(None)
    if not deleted:
        raise not_found("; ".join(errors))
    return result({"success_count": len(deleted), "errors": errors})


def _get_session(tx: Transaction, principal: RequestPrincipal, agent_id: str, session_id: str) -> Conversation:
    canvas_id, conversation_id = parse_canvas_id(agent_id), parse_session_id(session_id)
    if canvas_id is None or conversation_id is None:
        raise not_found(UNKNOWN)
    return conversations.get(tx, principal.tenant_id, conversation_id, canvas_id)


def _delete(
    context: ApiContext, principal: RequestPrincipal, canvas_id: CanvasId, session_ids: list[SessionId] | None
) -> set[SessionId]:
    """Delete the named conversations, or all, and return their ids. Cancel runs that are accepted meanwhile too."""
    deleted = set[SessionId]()
    cancel_open_runs(context, principal, canvas_id, session_ids)
    with context.database.transaction() as tx:
        if session_ids is None:
            conversations.delete_all(tx, principal.tenant_id, canvas_id)
            details = {"agent_id": canvas_id.hex, "all": True}
            principal.record(tx, Action.SESSION_DELETED, None, **details)
        else:
            deleted = conversations.delete(tx, principal.tenant_id, canvas_id, session_ids)
            for session_id in sorted(deleted):
                principal.record(tx, Action.SESSION_DELETED, session_id, agent_id=canvas_id.hex)
    cancel_open_runs(context, principal, canvas_id, session_ids)
    return deleted


def _parse_time(text: str, name: str, *, is_end: bool = False) -> datetime | None:
    """Return a date or time of a query; for a date, the end of the day if `is_end`."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise RequestRefused(ARGUMENT, f"`{name}` must be YYYY-MM-DD or an ISO time.") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    is_day = len(text.strip()) == len("2026-01-31")
    return moment + timedelta(days=1, microseconds=-1) if is_end and is_day else moment
