"""Activations as workers see them: claim, make durable, renew. `store/runs/reports.py` has their reports.

A worker writes its own activation and nothing else, guarded by its lease. The WHERE clauses decide every race.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Executable,
    Integer,
    Interval,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    not_,
    or_,
    select,
    text,
    update,
)

from canvas.ids import ActivationId, CanvasId, LeaseId, RunId, SessionId, TenantId, VersionId
from canvas.state.order_key import OrderKey
from canvas.state.run_state import ScopeKey, scope_key
from store.db.transaction import Transaction
from store.tables.runs import activations, runs

STATUS_IS = {  # as literals: a plan for any status cannot use a partial index
    status: activations.c.status == literal_column(f"'{status}'") for status in ("ready", "running", "reported")
}
BY_KEY = (activations.c.run_id == bindparam("of_run"), activations.c.id == bindparam("of_activation"))
BY_LEASE = (activations.c.lease_id == bindparam("of_lease"), STATUS_IS["running"])
IS_UNCLAIMED = and_(STATUS_IS["ready"], activations.c.attempt == 0)
BY_LEASE_OR_UNCLAIMED = or_(and_(*BY_LEASE), IS_UNCLAIMED)
"""The guard of an attempt whose claim is deferred: its first write claims the activation, unless it was claimed before.
"""

_lease = bindparam("lease", type_=Interval)
_max_crash_count = bindparam("most_crashes", type_=Integer)
_new_lease = bindparam("new_lease", type_=activations.c.lease_id.type)

_async_commit = select(func.set_config("synchronous_commit", "off", True)).scalar_subquery() == "off"

CLAIM_COLUMNS = (
    "run_id", "id", "lease_id", "node_id", "component", "scope", "ordinal", "level", "trail", "region", "limits",
    "activated_rev", "attempt", "crash_count", "stream_id", "answers", "usage",
)  # fmt: skip
CLAIM = (  # its commit does not wait for the disk: a claim that is lost is made again
    update(activations)
    .where(
        *BY_KEY,
        _async_commit,
        or_(
            and_(
                STATUS_IS["ready"],
                activations.c.not_before <= func.now(),
                or_(_max_crash_count.is_(None), activations.c.crash_count <= _max_crash_count),
            ),
            and_(  # this claim was made before, and its answer was lost
                STATUS_IS["running"],
                activations.c.lease_id == _new_lease,
                not_(activations.c.cancel_requested),
            ),
        ),
        runs.c.id == activations.c.run_id,
    )
    .values(
        status="running",
        attempt=activations.c.attempt + case((STATUS_IS["ready"], 1), else_=0),
        lease_id=_new_lease,
        lease_until=func.now() + _lease,
        worker=bindparam("worker_name"),
        started_at=func.now(),
        cancel_requested=False,
        effect=None,
    )
    .returning(
        *(activations.c[name] for name in CLAIM_COLUMNS),
        runs.c.tenant_id,
        runs.c.canvas_id,
        runs.c.version_id,
        runs.c.conversation_id,
        runs.c.message_id,
        runs.c.first_event,
        runs.c.history_upto,
        runs.c.budgeted,
        runs.c.created_at.label("run_created_at"),
    )
)

CLAIM_BATCH = text(f"""
    update activations a set status = 'running', attempt = a.attempt + 1, lease_id = m.lease_id,
        lease_until = now() + :lease, worker = :worker, started_at = now(), cancel_requested = false, effect = null
    from (
        select o.run_id, o.id, u.lease_id from activations o
        join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as u(run_id, id, lease_id)
          on o.run_id = u.run_id and o.id = u.id
        where o.status = 'ready' and o.not_before <= now() and o.crash_count <= :most_crashes
        order by o.run_id, o.id for no key update of o skip locked
    ) m join runs r on r.id = m.run_id
    where a.run_id = m.run_id and a.id = m.id
      and (select set_config('synchronous_commit', 'off', true)) = 'off'
    returning {", ".join(f"a.{name}" for name in CLAIM_COLUMNS)},
        r.tenant_id, r.canvas_id, r.version_id, r.conversation_id,
        r.message_id, r.first_event, r.history_upto, r.budgeted, r.created_at as run_created_at
""").bindparams(bindparam("lease", type_=Interval))  # noqa: S608 (constants only)

CLAIM_DEFERRED = text("""
    update activations a set status = 'running', attempt = 1, lease_id = m.lease_id, lease_until = now() + :lease,
        worker = :worker, started_at = now() - make_interval(secs => m.elapsed)
    from (
        select o.run_id, o.id, u.lease_id, u.elapsed from activations o
        join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[]), cast(:elapsed as float8[]))
          as u(run_id, id, lease_id, elapsed) on o.run_id = u.run_id and o.id = u.id
        where o.status = 'ready' and o.attempt = 0
        order by o.run_id, o.id for no key update of o skip locked
    ) m
    where a.run_id = m.run_id and a.id = m.id
""").bindparams(bindparam("lease", type_=Interval))
FIND_DEFERRED = text("""
    select m.lease_id, o.status = 'running' from activations o
    join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as m(run_id, id, lease_id)
      on o.run_id = m.run_id and o.id = m.id
    where o.lease_id = m.lease_id or o.status = 'ready' and o.attempt = 0
""")

FIND_BY_LEASE = select(activations.c.id).where(
    activations.c.run_id == bindparam("of_run"), STATUS_IS["running"], activations.c.lease_id == bindparam("of_lease")
)

IS_HELD_OR_UNCLAIMED = select(activations.c.id).where(*BY_KEY, BY_LEASE_OR_UNCLAIMED)

IS_READY = select(activations.c.id).where(*BY_KEY, STATUS_IS["ready"], activations.c.not_before <= func.now())

MAKE_DURABLE = update(activations).where(*BY_KEY, *BY_LEASE).values(lease_until=func.now() + _lease)
RECORD_EFFECT = (
    update(activations)
    .where(*BY_KEY, *BY_LEASE)
    .values(lease_until=func.now() + _lease, effect=bindparam("new_effect"))
    .returning(activations.c.cancel_requested)
)

RENEW = text("""
    update activations a set lease_until = now() + :lease
    from (
        select o.run_id, o.id from activations o
        join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as m(run_id, id, lease_id)
          on o.run_id = m.run_id and o.id = m.id and o.lease_id = m.lease_id
        where o.status = 'running' and not o.cancel_requested
        order by o.run_id, o.id for no key update of o skip locked
    ) mine
    where a.run_id = mine.run_id and a.id = mine.id
    returning a.lease_id
""")
FIND_VALID = text("""
    select o.lease_id from activations o
    join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as m(run_id, id, lease_id)
      on o.run_id = m.run_id and o.id = m.id and o.lease_id = m.lease_id
    where o.status = 'running' and not o.cancel_requested
""")

FIND_CANCELLED = text("""
    select o.lease_id from activations o
    join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as m(run_id, id, lease_id)
      on o.run_id = m.run_id and o.id = m.id and o.lease_id = m.lease_id
    where o.status = 'running' and o.cancel_requested
""")


@dataclass(frozen=True, slots=True)
class Deferral:
    """What an attempt stores with its claim if it began before the claim was written."""

    worker: str
    began: float  # time.monotonic() of this process

    @property
    def age(self) -> float:
        """Seconds since the attempt began."""
        return time.monotonic() - self.began


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease on an activation, with the columns of its run that the attempt needs."""

    run_id: RunId
    id: ActivationId
    lease_id: LeaseId
    node_id: str
    component: str
    scope: ScopeKey
    ordinal: int
    order_key: OrderKey
    limits: tuple[tuple[bytes, int], ...]  # (isolation region, revision) up to which it may read
    activated_rev: int
    attempt: int
    crash_count: int
    stream_id: ActivationId | None
    answers: Any
    tenant_id: TenantId
    canvas_id: CanvasId
    version_id: VersionId
    conversation_id: SessionId
    message_id: UUID  # of the current turn
    first_event: int  # of the current turn
    history_upto: int
    run_created_at: datetime
    budgeted: bool = False  # whether model calls reserve from a budget (store/tenants/budgets.py)
    reported_usage: Mapping[str, int] = field(default_factory=dict[str, int])  # of earlier attempts that have reported
    deferral: Deferral | None = None  # None: the claim was written before the attempt began


def claim(
    tx: Transaction,
    run_id: RunId,
    activation_id: ActivationId,
    *,
    lease_id: LeaseId,
    lease: timedelta,
    worker: str,
    max_crash_count: int | None = None,
) -> Claim | None:
    """Acquire the lease on an activation; return None if another attempt has it, or it is over or not yet due.

    Also None if its crash count is above `max_crash_count`. A message that is delivered twice claims once. A claim
    whose answer was lost is sent again under the same lease id.
    """
    row = tx.one_or_none(
        CLAIM,
        of_run=run_id,
        of_activation=activation_id,
        new_lease=lease_id,
        lease=lease,
        worker_name=worker,
        most_crashes=max_crash_count,
    )
    return claim_from_rows(row, {**row, "created_at": row["run_created_at"]}) if row else None


def claim_batch(
    tx: Transaction,
    tasks: Sequence[tuple[RunId, ActivationId, LeaseId]],
    *,
    lease: timedelta,
    worker: str,
    max_crash_count: int,
) -> dict[LeaseId, Claim]:
    """Acquire leases on (run, activation, lease id) in one statement; return the claims by lease id.

    Activations that are claimed, locked, not yet due or have a higher crash count are left out. `claim` tells which.
    """
    values = {"lease": lease, "worker": worker, "most_crashes": max_crash_count}
    found = [row._asdict() for row in _rows_by_week(tx, CLAIM_BATCH, tasks, **values)]
    return {row["lease_id"]: claim_from_rows(row, {**row, "created_at": row["run_created_at"]}) for row in found}


def claim_deferred(
    tx: Transaction,
    attempts: Sequence[tuple[RunId, ActivationId, LeaseId, float]],
    *,
    lease: timedelta,
    worker: str,
) -> tuple[set[LeaseId], set[LeaseId]]:
    """Write the deferred claims of attempts at (run, activation) under a lease id, begun some seconds ago.

    Returns the lease ids whose claim is written, now or by an earlier call without an answer, and those that must stop:
    their activation was claimed by another attempt, or closed. One that is locked, or reported under its lease, is in
    neither.
    """
    found: dict[LeaseId, bool] = {}
    for some in tx.pruning.group_by_week(attempts):
        keys = _columns([entry[:3] for entry in some])
        tx.send(CLAIM_DEFERRED, lease=lease, worker=worker, elapsed=[entry[3] for entry in some], **keys)
        found |= {row[0]: row[1] for row in tx.rows(FIND_DEFERRED, **keys)}
    return {each for each, is_running in found.items() if is_running}, {entry[2] for entry in attempts} - found.keys()


def is_held(tx: Transaction, claimed: Claim) -> bool:
    """Whether an attempt may still report: its activation is running under its lease, or its claim is deferred."""
    if claimed.deferral is None:
        return find_by_lease(tx, claimed.run_id, claimed.lease_id) is not None
    keys = {"of_run": claimed.run_id, "of_activation": claimed.id, "of_lease": claimed.lease_id}
    return tx.scalar(IS_HELD_OR_UNCLAIMED, **keys) is not None


def find_by_lease(tx: Transaction, run_id: RunId, lease_id: LeaseId) -> ActivationId | None:
    """Return the activation that is running under a lease. A commit whose answer was lost may have claimed it."""
    return tx.scalar(FIND_BY_LEASE, of_run=run_id, of_lease=lease_id)


def is_ready(tx: Transaction, run_id: RunId, activation_id: ActivationId) -> bool:
    """Whether an activation is ready and due. If a claim of it has just failed, its crash count was the reason."""
    return tx.scalar(IS_READY, of_run=run_id, of_activation=activation_id) is not None


def claim_from_rows(row: Mapping[str, Any], run: Mapping[str, Any], deferral: Deferral | None = None) -> Claim:
    """Return the claim of an activation's row; `run`: the columns of its run that a claim carries."""
    order_key = order_key_from_row(row)
    enclosing = tuple((bytes.fromhex(region), revision) for region, revision in row["limits"] or ())
    return Claim(
        run_id=row["run_id"],
        id=row["id"],
        lease_id=row["lease_id"],
        node_id=row["node_id"],
        component=row["component"],
        scope=scope_key(row["scope"]),
        ordinal=row["ordinal"],
        order_key=order_key,
        limits=(*enclosing, (order_key.region, row["activated_rev"])),
        activated_rev=row["activated_rev"],
        attempt=row["attempt"],
        crash_count=row["crash_count"],
        stream_id=row["stream_id"],
        answers=row["answers"],
        tenant_id=run["tenant_id"],
        canvas_id=run["canvas_id"],
        version_id=run["version_id"],
        conversation_id=run["conversation_id"],
        message_id=run["message_id"],
        first_event=run["first_event"],
        history_upto=run["history_upto"],
        run_created_at=run["created_at"],
        budgeted=run["budgeted"],
        reported_usage=row.get("usage") or {},
        deferral=deferral,
    )


def order_key_from_row(row: Mapping[str, Any]) -> OrderKey:
    """Return the order key in an activation's columns."""
    return OrderKey(row["level"], tuple((w, p) for w, p in row["trail"]), bytes(row["region"]))


def make_claim_durable(tx: Transaction, claimed: Claim, lease: timedelta) -> bool:
    """Make a claim durable before anything leaves the worker; return False if the lease is gone."""
    count = tx.execute(
        MAKE_DURABLE, of_run=claimed.run_id, of_activation=claimed.id, of_lease=claimed.lease_id, lease=lease
    )
    return count == 1


def record_effect(tx: Transaction, claimed: Claim, lease: timedelta, effect: str) -> bool | None:
    """Make a claim durable, with the effect class of what may leave from now on; return whether a cancel is requested.

    If the lease is gone, nothing is written and the result is None.
    """
    return tx.scalar(
        RECORD_EFFECT,
        of_run=claimed.run_id,
        of_activation=claimed.id,
        of_lease=claimed.lease_id,
        lease=lease,
        new_effect=effect,
    )


def renew(tx: Transaction, leases: Sequence[tuple[RunId, ActivationId, LeaseId]], lease: timedelta) -> set[LeaseId]:
    """Renew leases of (run, activation, lease id) in id order; return the lease ids that are still valid.

    An expired lease that was not swept yet is valid again. Locked rows are skipped, because their transaction may wait
    for a row locked here; their leases are only checked, and renewed the next time.
    """
    valid = {row[0] for row in _rows_by_week(tx, RENEW, leases, lease=lease)}
    if len(valid) < len(leases):
        valid |= {row[0] for row in _rows_by_week(tx, FIND_VALID, leases)}
    return valid


def find_cancelled(tx: Transaction, leases: Sequence[tuple[RunId, ActivationId, LeaseId]]) -> set[LeaseId]:
    """Return the lease ids, of (run, activation, lease id), that are valid and whose cancel is requested."""
    return {row[0] for row in _rows_by_week(tx, FIND_CANCELLED, leases)}


def _rows_by_week(
    tx: Transaction, statement: Executable, leases: Sequence[tuple[RunId, ActivationId, LeaseId]], **values: Any
) -> list[Any]:
    """Send a statement for the leases of each week, nearly always one; wait for all, and return their rows.

    Each statement names the partitions of its week (`store.db.pruning`).
    """
    sent = [tx.send(statement, **values, **_columns(some)) for some in tx.pruning.group_by_week(leases)]
    return [row for each in sent for row in each.rows()]


def _columns(leases: Sequence[tuple[RunId, ActivationId, LeaseId]]) -> dict[str, list[UUID]]:
    return {
        "run_ids": [entry[0] for entry in leases],
        "ids": [entry[1] for entry in leases],
        "leases": [entry[2] for entry in leases],
    }
