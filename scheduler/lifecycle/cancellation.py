"""Cancel several runs by their ids or external ids, and report about each."""

from collections.abc import Sequence
from dataclasses import dataclass

from canvas.ids import CanvasId, RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.lifecycle.lifecycle import Lifecycle, RunNotFound
from store.runs import external_ids, run_queries
from store.tenants.audit import Actor


@dataclass(frozen=True, slots=True)
class CancelledRun:
    """What became of one id. `run_id` and `status` (after the cancel) are None for an id that names no run."""

    written: str
    run_id: RunId | None = None
    status: RunStatus | None = None
    was_over: bool = False  # before the cancel, which then changed nothing


def cancel_runs(
    lifecycle: Lifecycle,
    tenant_id: TenantId,
    written: Sequence[str],
    *,
    canvas_id: CanvasId | None = None,
    by: Actor | None = None,
) -> list[CancelledRun]:
    """Cancel a tenant's runs; return what became of each id, in the order of the ids and without repetitions.

    `canvas_id`: runs of other agents are unknown. `by`: whom the audit log names.

    Queued runs are cancelled first, so that none of them starts when the run before it ends. Each cancel is a
    transaction of its own: after an error some runs are cancelled, and the call can be repeated.
    """
    named = list(dict.fromkeys(written))
    with lifecycle.coordinator.database.statements() as tx:
        found = external_ids.find_runs(tx, tenant_id, named)
        if canvas_id is not None:
            own = external_ids.filter_runs_of(tx, tenant_id, set(found.values()), canvas_id)
            found = {each: run_id for each, run_id in found.items() if run_id in own}
        before = run_queries.statuses_of(tx, tenant_id, set(found.values()))
    after: dict[RunId, RunStatus] = {}
    for run_id in sorted(before, key=lambda each: before[each] is not RunStatus.QUEUED):
        status = before[run_id] if before[run_id].is_over else _cancel(lifecycle, tenant_id, run_id, by)
        if status is not None:
            after[run_id] = status
    return [_report(each, found.get(each), before, after) for each in named]


def _cancel(lifecycle: Lifecycle, tenant_id: TenantId, run_id: RunId, by: Actor | None) -> RunStatus | None:
    try:
        return lifecycle.cancel_run(tenant_id, run_id, by=by)
    except RunNotFound:  # deleted since its status was read
        return None


def _report(
    written: str, run_id: RunId | None, before: dict[RunId, RunStatus], after: dict[RunId, RunStatus]
) -> CancelledRun:
    status = after.get(run_id) if run_id is not None else None
    if run_id is None or status is None:
        return CancelledRun(written)
    has_ended_otherwise = status not in (RunStatus.CANCELLED, RunStatus.STOPPING)
    return CancelledRun(written, run_id, status, before[run_id].is_over or has_ended_otherwise)
