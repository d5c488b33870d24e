"""The list of runs by key, with filters and a bounded search, and the states of the rows that a page shows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from api.http.query_values import parse_position, parse_time, split_list
from api.http.replies import id_or_unused, json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_READ, OF_ONE_AGENT
from api.runs.reply_models import RunStatesReply
from api.runs.run_wire import origin_json
from canvas.budget import usage_json
from canvas.errors import InvalidRequest
from canvas.ids import CanvasId, RunId, SessionId, VersionId
from canvas.run_warnings import has_model_error
from canvas.state.run_state import RunStatus
from scheduler.views.json_values import elapsed_ms, hex_of, iso, milliseconds
from store.agents.version_titles import chosen_title
from store.monitoring import run_list
from store.monitoring.run_list import MAX_WORDS, ListedRun, ListedState, RunFilter, RunPage
from store.primitives.ids import NO_ID
from store.runs import external_ids
from store.runs.external_ids import uuid_of

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

MAX_IDS = 100
MAX_SEARCH_LENGTH = 200  # characters of `q`


@dataclass(frozen=True, slots=True)
class KeysetQuery:
    """The parameters of a list by key. `is_used`: one was sent, so that the list is not one of numbered pages."""

    chosen: RunFilter
    before: RunId | None
    limit: int
    has_total: bool
    is_used: bool


def parse_run_filter(
    status: str = "",
    agent_id: str = "",
    session_id: str = "",
    version_id: str = "",
    user_id: str = "",
    since: Annotated[str, Query(alias="from")] = "",
    until: Annotated[str, Query(alias="to")] = "",
    trouble: Literal["", "0", "1"] = "",
    q: str = "",
    source: str = "",
    origin: Literal["", "rerun", "fork", "debug", "webhook", "mcp", "schedule", "any", "none"] = "",
) -> RunFilter:
    """Return the filter of a query. Raises InvalidRequest."""
    words = q.split()
    if len(q) > MAX_SEARCH_LENGTH or len(words) > MAX_WORDS:
        message = f'"q" may have {MAX_WORDS} words and {MAX_SEARCH_LENGTH} characters at most.'
        raise InvalidRequest(message, field="q")
    exact = uuid_of(words[0]) if len(words) == 1 else None
    return RunFilter(
        statuses=parse_statuses(status) or None,
        canvas_ids=[CanvasId(id_or_unused(each)) for each in split_list("agent_id", agent_id, MAX_IDS)] or None,
        version_id=VersionId(id_or_unused(version_id)) if version_id else None,
        session_id=SessionId(id_or_unused(session_id)) if session_id else None,
        user_id=user_id or None,
        since=parse_time("from", since) if since else None,
        until=parse_time("to", until) if until else None,
        words=words if words and exact is None else None,
        exact=exact,
        has_trouble=trouble == "1",
        source_run=RunId(id_or_unused(source)) if source else None,
        origin=origin or None,
    )


RunFilterDep = Annotated[RunFilter, Depends(parse_run_filter)]


def confine(chosen: RunFilter, principal: RequestPrincipal) -> RunFilter:
    """Return the filter as far as the caller may see runs: with a token of one agent, those of this agent."""
    if principal.agent is None:
        return chosen
    named = chosen.canvas_ids
    return replace(chosen, canvas_ids=[principal.agent if not named or principal.agent in named else CanvasId(NO_ID)])


def parse_keyset(
    chosen: RunFilterDep,
    before: str = "",
    limit: Annotated[int | None, Query(ge=1, le=100)] = None,
    total: Literal["", "0", "1"] = "",
    page: str | None = None,
    page_size: str | None = None,
    external_id: str = "",
) -> KeysetQuery:
    """Return the list that a query asks for. Raises InvalidRequest."""
    before_id = parse_position("before", before)
    new = (
        chosen.version_id, chosen.user_id, chosen.since, chosen.until, chosen.words, chosen.exact, chosen.source_run,
        chosen.origin, before_id, limit,
    )  # fmt: skip
    is_several = len(chosen.statuses or ()) > 1 or len(chosen.canvas_ids or ()) > 1
    is_used = any(each is not None for each in new) or bool(total) or chosen.has_trouble or is_several
    if is_used and (page is not None or page_size is not None or external_id):
        message = (
            "Numbered pages (`page`, `page_size`) and `external_id` go with `agent_id`, `session_id` and `status` only."
        )
        raise InvalidRequest(message, field="page" if page is not None or page_size is not None else "external_id")
    if total == "1" and (chosen.words or chosen.exact):
        raise InvalidRequest('"total" cannot be counted together with "q".', field="total")
    return KeysetQuery(chosen, RunId(before_id) if before_id else None, limit or 30, total == "1", is_used)


KeysetDep = Annotated[KeysetQuery, Depends(parse_keyset)]


@router.get("/runs/states", response_model=RunStatesReply, dependencies=[OF_ONE_AGENT])
def list_states(
    context: ApiContextDep, principal: Viewer, chosen: RunFilterDep, ids: str = "", newer_than: str = ""
) -> Response:
    """Get the states of up to 100 runs, and how many runs that a filter selects are newer than one of them."""
    run_ids = [RunId(_id("ids", each)) for each in split_list("ids", ids, MAX_IDS)]
    newest = RunId(_id("newer_than", newer_than)) if newer_than else None
    with context.database.transaction() as tx:
        if principal.agent is not None:
            run_ids = list(external_ids.filter_runs_of(tx, principal.tenant_id, run_ids, principal.agent))
        now, states = run_list.read_states(tx, principal.tenant_id, run_ids)
        shown = confine(chosen, principal)
        newer = run_list.count_newer(tx, principal.tenant_id, shown, newest) if newest is not None else None
    reply: dict[str, Any] = {"now": milliseconds(now), "runs": [_state_json(state) for state in states]}
    return json_reply(reply if newer is None else {**reply, "newer": newer})


def keyset_json(page: RunPage) -> dict[str, Any]:
    """Return a page of runs as the reply shows it."""
    counted = {} if page.total is None else {"total": page.total, "total_is_capped": page.is_capped}
    return {
        "runs": [listed_json(run) for run in page.runs],
        "next": page.next_id.hex if page.next_id is not None else None,
        "searched_until": iso(page.searched_until),
        "now": milliseconds(page.now),
        **counted,
    }


def listed_json(run: ListedRun) -> dict[str, Any]:
    """Return a run as a row of a list."""
    state = run.state
    return {
        "id": state.id.hex,
        "external_id": run.external_id,
        "agent_id": hex_of(run.canvas_id),
        "agent_title": run.agent_title,
        "version_id": hex_of(run.version_id),
        "version_title": chosen_title(run.version_title),
        "version_number": run.version_number,
        "session_id": hex_of(run.conversation_id),
        "conversation_name": run.conversation_name,
        "message_id": None if state.status == RunStatus.REFUSED else run.message_id.hex,
        "user_id": run.user_id,
        "query": run.query,
        "status": state.status,
        "error": state.error or None,
        "failed_node": run.failed_node,
        "has_model_error": has_model_error(state.usage),
        "usage": usage_json(state.usage),
        "waits": state.waits_for,
        "progress": _progress(state),
        "last_event": run.last_event,
        "created_at": iso(run.created_at),
        "started_at": iso(state.started_at),
        "finished_at": iso(state.finished_at),
        "elapsed_ms": elapsed_ms(state.started_at, state.finished_at),
        "origin": origin_json(run.origin),
    }


def parse_statuses(written: str) -> list[str]:
    """Return the statuses of a comma list. Raises InvalidRequest for an unknown one."""
    known = [known.value for known in RunStatus]
    entries = split_list("status", written, MAX_IDS)
    for each in entries:
        if each not in known:
            raise InvalidRequest(f'"status" is {each[:64]!r}. Use one of: {", ".join(known)}.', field="status")
    return entries


def _state_json(state: ListedState) -> dict[str, Any]:
    return {
        "id": state.id.hex,
        "status": state.status,
        "finished_at": iso(state.finished_at),
        "elapsed_ms": elapsed_ms(state.started_at, state.finished_at),
        "progress": _progress(state),
        "usage": usage_json(state.usage),
        "waits": state.waits_for,
        "error": state.error or None,
    }


def _progress(state: ListedState) -> Mapping[str, int]:
    return {"activated": state.activated, "active": state.active, "queued": state.queued}


def _id(field: str, written: str) -> UUID:
    parsed = parse_id(written)
    if parsed is None:
        raise InvalidRequest(f'"{field}" has {written[:64]!r}, which is not the id of a run.', field=field)
    return parsed
