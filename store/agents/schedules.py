"""Schedules of agents, and what came of their slots.

A sweeper locks a due schedule, and writes it, the row of the slot and the run in one transaction. So a slot has one
row and one run, however many sweepers there are. Times are the database's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, Uuid, bindparam, delete, func, literal_column, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert

from canvas.errors import Conflict, NotFound
from canvas.ids import CanvasId, RunId, SessionId, TenantId
from canvas.state.run_state import RunStatus
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID
from store.tables.runs import runs
from store.tables.schedules import schedule_fires as fires
from store.tables.schedules import schedules

MAX_SCHEDULES = 1000  # of a tenant
KEPT_FIRES = 100  # rows of a schedule; those of open runs are kept besides

STARTED, SKIPPED, REFUSED, MISSED = "started", "skipped", "refused", "missed"
"""Outcomes of a slot."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored. `spec` and `start` as in scheduler/schedules/changes.py."""

    id: UUID
    tenant_id: TenantId
    canvas_id: CanvasId
    name: str
    spec: Mapping[str, Any]
    start: Mapping[str, Any]
    session: str
    overlap: str
    catch_up_window: timedelta
    catch_up_at_most: int
    end_at: datetime | None
    max_runs: int | None
    paused: bool
    paused_reason: str
    next_at: datetime | None
    due_at: datetime | None
    waiting_since: datetime | None
    last_at: datetime | None
    last_run: RunId | None
    started: int
    refusals: int
    conversation_id: SessionId | None
    token_id: UUID | None
    created_at: datetime
    updated_at: datetime

    @property
    def has_ended(self) -> bool:
        """Whether no slot is left, and it is not paused."""
        return not self.paused and self.next_at is None


@dataclass(frozen=True, slots=True)
class Fire:
    """What came of a slot. `slots`: how many missed slots the row stands for. `by_hand`: it was triggered."""

    slot: datetime
    outcome: str
    run_id: RunId | None
    reason: str
    slots: int
    by_hand: bool
    created_at: datetime


_columns = tuple(schedules.c[name] for name in Schedule.__dataclass_fields__)
_of_tenant = schedules.c.tenant_id == bindparam("of_tenant")
_is_it = (_of_tenant, schedules.c.id == bindparam("of_schedule"))
_now = func.coalesce(bindparam("at", type_=DateTime(timezone=True)), func.now())

INSERT = insert(schedules).values({name: bindparam(name) for name in (
    "id", "tenant_id", "canvas_id", "name", "spec", "start", "session", "overlap", "catch_up_window",
    "catch_up_at_most", "end_at", "max_runs", "paused", "paused_reason", "next_at", "due_at", "token_id",
)}).returning(*_columns)  # fmt: skip
READ = select(*_columns).where(*_is_it)
LOCK = READ.with_for_update()
COUNT = select(func.count()).select_from(schedules).where(_of_tenant)
LIST = (
    select(*_columns)
    .where(
        _of_tenant,
        schedules.c.id > bindparam("after"),
        or_(
            bindparam("of_canvas", type_=schedules.c.canvas_id.type).is_(None),
            schedules.c.canvas_id == bindparam("of_canvas", type_=schedules.c.canvas_id.type),
        ),
    )
    .order_by(schedules.c.id)
    .limit(bindparam("most"))
)
_MUTABLE = tuple(
    name
    for name in Schedule.__dataclass_fields__
    if name not in ("id", "tenant_id", "canvas_id", "token_id", "created_at")
)
SAVE = (
    update(schedules)
    .where(*_is_it)
    .values({name: bindparam(f"new_{name}", type_=schedules.c[name].type) for name in _MUTABLE})
)
DELETE = delete(schedules).where(*_is_it)
DELETE_OF_CANVAS = delete(schedules).where(_of_tenant, schedules.c.canvas_id == bindparam("of_canvas"))

NEXT_DUE = select(func.min(schedules.c.due_at) - _now)
"""The only statement of an idle sweeper; it reads the first entry of a partial index."""
CLAIM = (
    select(*_columns, _now.label("clock"))
    .where(schedules.c.due_at <= _now)
    .order_by(schedules.c.due_at)
    .limit(1)
    .with_for_update(skip_locked=True)
)

ADD_FIRE = (
    insert(fires)
    .values(
        schedule_id=bindparam("of_schedule"),
        slot=bindparam("slot"),
        tenant_id=bindparam("of_tenant"),
        outcome=bindparam("outcome"),
        run_id=bindparam("started_run"),
        is_over=bindparam("is_over"),
        reason=bindparam("reason"),
        slots=bindparam("slots"),
        by_hand=bindparam("by_hand"),
    )
    .on_conflict_do_nothing()
)
_of_schedule = (fires.c.tenant_id == bindparam("of_tenant"), fires.c.schedule_id == bindparam("of_schedule"))
LIST_FIRES = (
    select(*(fires.c[name] for name in Fire.__dataclass_fields__))
    .where(
        *_of_schedule,
        or_(
            bindparam("before", type_=DateTime(timezone=True)).is_(None),
            fires.c.slot < bindparam("before", type_=DateTime(timezone=True)),
        ),
    )
    .order_by(fires.c.slot.desc())
    .limit(bindparam("most"))
)
FIRES_NOT_OVER = select(fires.c.run_id).where(*_of_schedule, ~fires.c.is_over)
_open = [literal_column(f"'{status}'") for status in RunStatus if not status.is_over]
OPEN_RUNS = select(runs.c.id, runs.c.status).where(
    runs.c.tenant_id == bindparam("of_tenant"),
    runs.c.id == func.any(bindparam("run_ids", type_=ARRAY(Uuid))),
    runs.c.status.in_(_open),
)
MARK_OVER = (
    update(fires)
    .where(*_of_schedule, fires.c.run_id == func.any(bindparam("over", type_=ARRAY(Uuid))))
    .values(is_over=True)
)
PRUNE = delete(fires).where(
    *_of_schedule,
    fires.c.is_over,
    fires.c.slot
    < select(fires.c.slot).where(*_of_schedule).order_by(fires.c.slot.desc()).offset(KEPT_FIRES - 1).limit(1)
    .scalar_subquery(),
)  # fmt: skip


def create(tx: Transaction, tenant_id: TenantId, schedule_id: UUID, values: Mapping[str, Any]) -> Schedule:
    """Store a schedule; `values` has its columns. Raises Conflict for a tenant with MAX_SCHEDULES of them."""
    if tx.scalar(COUNT, of_tenant=tenant_id) >= MAX_SCHEDULES:
        raise Conflict(f"There are {MAX_SCHEDULES} schedules, which is the most. Delete one of them first.")
    row = tx.one_or_none(INSERT, id=schedule_id, tenant_id=tenant_id, **values)
    assert row is not None
    return Schedule(**row)


def get(tx: Transaction, tenant_id: TenantId, schedule_id: UUID) -> Schedule:
    """Return a schedule. Raises NotFound."""
    return _require(tx.one_or_none(READ, of_tenant=tenant_id, of_schedule=schedule_id), schedule_id)


def lock(tx: Transaction, tenant_id: TenantId, schedule_id: UUID) -> Schedule:
    """Return a schedule that no other transaction changes or fires until this one ends. Raises NotFound."""
    return _require(tx.one_or_none(LOCK, of_tenant=tenant_id, of_schedule=schedule_id), schedule_id)


def list_schedules(
    tx: Transaction, tenant_id: TenantId, *, canvas_id: CanvasId | None, after: UUID = NO_ID, most: int
) -> list[Schedule]:
    """Return the tenant's schedules, or those of one agent, the oldest first."""
    rows = tx.rows(LIST, of_tenant=tenant_id, of_canvas=canvas_id, after=after, most=most)
    return [Schedule(**row._asdict()) for row in rows]


def save(tx: Transaction, schedule: Schedule) -> None:
    """Write the columns of a schedule that may change. This transaction has locked it."""
    values = {f"new_{name}": getattr(schedule, name) for name in _MUTABLE}
    tx.execute(SAVE, of_tenant=schedule.tenant_id, of_schedule=schedule.id, **values)


def delete_schedule(tx: Transaction, tenant_id: TenantId, schedule_id: UUID) -> None:
    """Delete a schedule with the rows of its slots. Its runs stay. Raises NotFound."""
    if not tx.execute(DELETE, of_tenant=tenant_id, of_schedule=schedule_id):
        raise _not_found(schedule_id)


def delete_of_agent(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> None:
    """Delete the schedules of an agent, before its row is locked: a slot that is fired locks them in this order."""
    tx.execute(DELETE_OF_CANVAS, of_tenant=tenant_id, of_canvas=canvas_id)


# -- firing ------------------------------------------------------------------------------------------------------------
def time_until_due(tx: Transaction, at: datetime | None = None) -> timedelta | None:
    """Return how long no schedule of any tenant is due, 0 or less for a due one; None if none will ever be.

    `at`: the time in place of the database's, for tests.
    """
    return tx.scalar(NEXT_DUE, at=at)


def claim_due(tx: Transaction, at: datetime | None = None) -> tuple[Schedule, datetime] | None:
    """Lock the schedule of any tenant that has been due for longest, and return it with the time.

    None: none is due that another process has not locked.
    """
    row = tx.one_or_none(CLAIM, at=at)
    if row is None:
        return None
    columns = dict(row)
    clock: datetime = columns.pop("clock")
    return Schedule(**columns), clock


def add_fire(
    tx: Transaction,
    schedule: Schedule,
    slot: datetime,
    outcome: str,
    *,
    run_id: RunId | None = None,
    reason: str = "",
    slots: int = 1,
    by_hand: bool = False,
) -> None:
    """Store what came of a slot of a locked schedule, and delete the oldest such rows beyond KEPT_FIRES."""
    whose = {"of_tenant": schedule.tenant_id, "of_schedule": schedule.id}
    tx.execute(
        ADD_FIRE,
        **whose,
        slot=slot,
        outcome=outcome,
        started_run=run_id,
        is_over=run_id is None,
        reason=reason,
        slots=slots,
        by_hand=by_hand,
    )
    tx.execute(PRUNE, **whose)


def open_runs(tx: Transaction, schedule: Schedule) -> dict[RunId, RunStatus]:
    """Return the runs of a locked schedule that are not over, with their status."""
    whose = {"of_tenant": schedule.tenant_id, "of_schedule": schedule.id}
    started = [run_id for (run_id,) in tx.rows(FIRES_NOT_OVER, **whose)]
    if not started:
        return {}
    rows = tx.rows(OPEN_RUNS, of_tenant=schedule.tenant_id, run_ids=started)
    found = {RunId(run_id): RunStatus(status) for run_id, status in rows}
    over = [run_id for run_id in started if run_id not in found]
    if over:
        tx.execute(MARK_OVER, **whose, over=over)
    return found


def list_fires(
    tx: Transaction, tenant_id: TenantId, schedule_id: UUID, *, before: datetime | None = None, most: int
) -> list[Fire]:
    """Return what came of the slots of a schedule before a moment, the latest first."""
    rows = tx.rows(LIST_FIRES, of_tenant=tenant_id, of_schedule=schedule_id, before=before, most=most)
    return [Fire(**row._asdict()) for row in rows]


def _require(row: Mapping[str, Any] | None, schedule_id: UUID) -> Schedule:
    if row is None:
        raise _not_found(schedule_id)
    return Schedule(**row)


def _not_found(schedule_id: UUID) -> NotFound:
    return NotFound(f"There is no schedule {schedule_id.hex}.", schedule_id=schedule_id.hex)
