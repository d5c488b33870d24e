"""Cancelling what a caller names, and all that is not over of an agent or of some of its sessions."""

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

from api.auth import Principal
from api.edge import Edge
from canvas.errors import NotFound
from store import conversations, overview


def cancel(edge: Edge, principal: Principal, task: UUID | None, canvas_id: UUID | None = None) -> None:
    """Cancel a run, or everything of a session, also what is queued in it, if it is the caller's.

    With `canvas_id` only what belongs to that agent is cancelled. What is unknown, over or another tenant's is left
    alone, and nothing is said about it.
    """
    if task is None or (canvas_id is not None and not _is_of(edge, principal, task, canvas_id)):
        return
    try:
        edge.lifecycle.cancel_session(principal.tenant_id, task)
    except NotFound:  # then it names a run
        with suppress(NotFound):
            edge.lifecycle.cancel_run(principal.tenant_id, task)


def cancel_open_runs(
    edge: Edge, principal: Principal, canvas_id: UUID, session_ids: Sequence[UUID] | None = None
) -> None:
    """Cancel every run of an agent that is not over, or those of some of its sessions."""
    with edge.database.transaction() as tx:
        not_over = conversations.open_runs(tx, principal.tenant_id, canvas_id, session_ids)
    for run_id in not_over:
        edge.lifecycle.cancel_run(principal.tenant_id, run_id)


def _is_of(edge: Edge, principal: Principal, task: UUID, canvas_id: UUID) -> bool:
    """Whether a session or a run belongs to an agent."""
    with edge.database.transaction() as tx:
        run = overview.glance(tx, principal.tenant_id, task)
        if run is not None:
            return run.canvas_id == canvas_id
        with suppress(NotFound):
            return conversations.get(tx, principal.tenant_id, task).canvas_id == canvas_id
    return False
