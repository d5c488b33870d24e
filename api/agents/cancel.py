"""Cancel a run or session that a caller names, or all open runs of an agent or of some of its sessions."""

from collections.abc import Sequence
from contextlib import suppress

from api.http.replies import parse_session_id
from api.requests.auth import RequestPrincipal
from api.requests.dependencies import ApiContext
from canvas.errors import NotFound
from canvas.ids import CanvasId, RunId, SessionId
from store.agents import conversations
from store.runs import external_ids, run_queries


def cancel(context: ApiContext, principal: RequestPrincipal, task: str, canvas_id: CanvasId | None = None) -> None:
    """Cancel a run, or all open and queued runs of a session, if it belongs to the caller.

    `task` is the id of a session or a run, or the external id of a run. With `canvas_id`, it must belong to that agent.
    An unknown id, a run that is over and one of another tenant are ignored without an error.
    """
    session_id = _session(context, principal, task, canvas_id)
    if session_id is not None:
        with suppress(NotFound):
            context.lifecycle.cancel_session(principal.tenant_id, session_id, by=principal.actor)
        return
    run_id = _run(context, principal, task, canvas_id)
    if run_id is not None:
        with suppress(NotFound):
            context.lifecycle.cancel_run(principal.tenant_id, run_id, by=principal.actor)


def cancel_open_runs(
    context: ApiContext,
    principal: RequestPrincipal,
    canvas_id: CanvasId,
    session_ids: Sequence[SessionId] | None = None,
) -> None:
    """Cancel every open run of an agent, or those of some of its sessions."""
    with context.database.transaction() as tx:
        not_over = conversations.list_open_runs(tx, principal.tenant_id, canvas_id, session_ids)
    for run_id in not_over:
        context.lifecycle.cancel_run(principal.tenant_id, run_id, by=principal.actor)


def _session(
    context: ApiContext, principal: RequestPrincipal, task: str, canvas_id: CanvasId | None
) -> SessionId | None:
    """Return the id of the caller's session, if there is one and it belongs to the agent."""
    session_id = parse_session_id(task)
    if session_id is None:
        return None
    try:
        with context.database.statements() as tx:
            session = conversations.get(tx, principal.tenant_id, session_id)
    except NotFound:
        return None
    return session_id if canvas_id in (None, session.canvas_id) else None


def _run(context: ApiContext, principal: RequestPrincipal, task: str, canvas_id: CanvasId | None) -> RunId | None:
    """Return the id of the caller's run, if there is one and it belongs to the agent."""
    with context.database.statements() as tx:
        run_id = external_ids.find_run(tx, principal.tenant_id, task)
        if run_id is None or canvas_id is None:
            return run_id
        run = run_queries.get_summary(tx, principal.tenant_id, run_id)
    return run_id if run is not None and run.canvas_id == canvas_id else None
