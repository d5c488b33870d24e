"""The facts about a run that `easel explain` shows, as of one moment: its rows, its conversation and its queue."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Uuid, bindparam, text

from canvas.events.explain import BlockingRun, OpenActivation, WaitFacts
from canvas.ids import ActivationId, RunId, SessionId, TenantId, VersionId
from canvas.state.checkpoint import fill_run
from canvas.state.run_state import ActivationStatus, RunState, RunStatus
from store.db.transaction import USE_SNAPSHOT, Transaction
from store.monitoring import queue_probes

MAX_ACTIVATIONS = 200  # activations that are listed one by one

RUN = text("""
    select id, version_id, conversation_id, status, rules_version, cancel_requested, error, state, created_at,
        finished_at, expires_at, now() as now
    from runs where id = :run_id and tenant_id = :tenant_id
""")
COUNTS = text("""
    select status, count(*) from activations
    where run_id = :run_id and status not in ('done', 'closed') group by status
""")
OPEN_ACTIVATIONS = text("""
    select id, node_id, component, scope, status, attempt, crash_count, worker, lease_until, not_before, enqueued_at,
        created_at, started_at, finished_at,
        case when status = 'ready' and not_before > now() then outcome ->> 'error' end as postponed
    from activations
    where run_id = :run_id and status in ('running', 'reported', 'ready', 'queued', 'waiting')
        and (cast(:only as uuid) is null or id = :only)
    order by array_position(array['running', 'reported', 'ready', 'waiting', 'queued'], status), order_key, id
    limit :most
""").bindparams(bindparam("only", type_=Uuid))
BLOCKING_RUN = text("""
    select r.id, r.status from conversations c join runs r on r.conversation_id = c.id
    where c.id = :conversation_id and r.status in ('queued', 'running', 'waiting', 'stopping')
    order by r.id <> coalesce(c.active_run, r.id), r.id limit 1
""")


def load_facts(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, activation_id: ActivationId | None = None
) -> tuple[WaitFacts, VersionId] | None:
    """Return the facts about a run, or about one activation of it, and its version; None if there is no such run.

    Call it first in a transaction: it reads everything in one snapshot. Otherwise a run that ends between two
    statements would look as if nothing moved it.
    """
    tx.execute(USE_SNAPSHOT)
    row = tx.one_or_none(RUN, run_id=run_id, tenant_id=tenant_id)
    if row is None:
        return None
    status = RunStatus(row["status"])
    state = fill_run(RunState(run_id, status), row["state"])
    sight = queue_probes.last_observation(tx)
    return WaitFacts(
        run_id=run_id,
        status=status,
        rules_version=row["rules_version"],
        is_cancel_requested=row["cancel_requested"],
        error=row["error"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        expires_at=row["expires_at"],
        now=row["now"],
        max_running=state.max_running,
        forms={activation: (form.inputs, form.tips) for activation, form in state.forms.items()},
        open_activations=_load_open(tx, run_id, activation_id) if not status.is_over else (),
        counts=_load_counts(tx, run_id) if not status.is_over else {},
        blocking_run=_blocking_run(tx, row["conversation_id"]) if status is RunStatus.QUEUED else None,
        last_probe_at=queue_probes.latest_return(tx, "nodes"),
        swept_since=sight.since if sight else None,
        swept_at=sight.until if sight else None,
    ), row["version_id"]


def _load_open(tx: Transaction, run_id: RunId, only: ActivationId | None) -> list[OpenActivation]:
    rows = tx.rows(OPEN_ACTIVATIONS, run_id=run_id, only=only, most=MAX_ACTIVATIONS)
    return [_open_activation(row._asdict()) for row in rows]


def _load_counts(tx: Transaction, run_id: RunId) -> dict[ActivationStatus, int]:
    return {ActivationStatus(name): number for name, number in tx.rows(COUNTS, run_id=run_id)}


def _open_activation(row: Mapping[str, Any]) -> OpenActivation:
    fields: dict[str, Any] = {**row, "status": ActivationStatus(row["status"])}
    return OpenActivation(**fields)


def _blocking_run(tx: Transaction, conversation_id: SessionId) -> BlockingRun | None:
    rows = tx.rows(BLOCKING_RUN, conversation_id=conversation_id)
    return BlockingRun(rows[0][0], RunStatus(rows[0][1])) if rows else None
