"""Deliveries of callbacks: one row per callback and occurrence, inserted with the advance of the run that it is about.

A sender claims what is due for a minute, sends it, and records the result under the number of its attempt. If the
sender dies, the delivery is due again after that minute. A delivery ends as `delivered` or `dead`; a replay makes it
`pending` again, with the same id and body.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, bindparam, func, insert, or_, select, text, tuple_

from canvas.errors import NotFound
from canvas.ids import CanvasId, RunId, SessionId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID
from store.primitives.json_codec import encode
from store.tables.callbacks import callback_deliveries as deliveries

CLAIMED_FOR = timedelta(minutes=1)
"""Longer than an attempt may take; then another sender tries."""
MAX_ATTEMPTS_SHOWN = 30
LOOK_AT = 500  # due deliveries among which a claim chooses
BATCH = 500


class DeliveryStatus(StrEnum):
    """Whether a delivery is still to be sent, was accepted, or was given up."""

    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery as its owner sees it. `latest_attempts`: the newest, [{at, status, ms, error}]."""

    id: UUID
    callback_id: UUID
    event: str
    run_id: RunId | None
    canvas_id: CanvasId | None
    status: str
    attempt: int
    latest_attempts: Sequence[Mapping[str, Any]] | None
    occurred_at: datetime
    due_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery that the caller has claimed, with what its callback needs. `url` None: the callback was deleted.

    `facts` are those of the run when it happened; `body` is None until it is written.
    """

    id: UUID
    tenant_id: TenantId
    callback_id: UUID
    event: str
    include: Sequence[str]
    run_id: RunId | None
    canvas_id: CanvasId | None
    conversation_id: SessionId | None
    facts: Mapping[str, Any] | None
    body: str | None
    attempt: int
    tries: int
    occurred_at: datetime
    round_at: datetime
    now: datetime
    url: str | None
    is_disabled: bool
    sealed_secret: bytes | None
    sealed_former: bytes | None
    former_until: datetime | None

    @property
    def secret_columns(self) -> Mapping[str, Any]:
        """Return the columns that have the secrets of its callback."""
        return {name: getattr(self, name) for name in ("sealed_secret", "sealed_former", "former_until")}


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came of an attempt. `status`: the code of the answer; None if there was none."""

    status: int | None
    elapsed_ms: int
    error: str


CLAIM = text("""
    with due as materialized (
        select id, row_number() over (partition by callback_id order by due_at) as place from (
            select id, callback_id, due_at from callback_deliveries
            where status = 'pending' and due_at <= now() and callback_id <> all(cast(:busy as uuid[]))
            order by due_at limit :look_at
        ) oldest
    ), chosen as materialized (
        select d.id from callback_deliveries d
        where d.id in (select id from due where place <= :most_of_each order by place limit :most)
            and d.status = 'pending' and d.due_at <= now()
        for no key update skip locked
    ), claimed as (
        update callback_deliveries d set due_at = now() + :claimed_for, attempt = attempt + 1, tries = tries + 1
        from chosen where d.id = chosen.id returning d.*
    )
    select d.id, d.tenant_id, d.callback_id, d.event, d.include, d.run_id, d.canvas_id, d.conversation_id, d.facts,
        d.body, d.attempt, d.tries, d.occurred_at, d.round_at, now() as now, c.url, c.disabled_at is not null
        as is_disabled, c.sealed_secret, c.sealed_former, c.former_until
    from claimed d left join callbacks c on c.id = d.callback_id and c.tenant_id = d.tenant_id
    order by d.occurred_at, d.id
""").bindparams(bindparam("claimed_for", type_=Interval))
PUT_BODY = text("update callback_deliveries set body = :body where tenant_id = :tenant_id and id = :id")
RECORD = text("""
    update callback_deliveries set status = :status, due_at = now() + :wait,
        ended_at = case when :status <> 'pending' then now() end,
        latest_attempts = (select json_agg(a order by n) from (
            select a, n from json_array_elements(
                cast(coalesce(cast(latest_attempts as jsonb), '[]') || cast(:result as jsonb) as json)
            ) with ordinality as each(a, n) order by n desc limit :shown) newest)
    where tenant_id = :tenant_id and id = :id and attempt = :attempt and status = 'pending'
""").bindparams(bindparam("wait", type_=Interval))
_listed = tuple(deliveries.c[name] for name in Delivery.__dataclass_fields__)
_of_tenant = deliveries.c.tenant_id == bindparam("of_tenant")
GET = select(*_listed).where(_of_tenant, deliveries.c.id == bindparam("of_delivery"))
_after = select(deliveries.c.occurred_at, deliveries.c.id).where(_of_tenant, deliveries.c.id == bindparam("before"))
LIST = (
    select(*_listed)
    .where(
        _of_tenant,
        deliveries.c.status == func.any(bindparam("statuses", type_=deliveries.c.include.type)),
        or_(bindparam("any_run"), deliveries.c.run_id == bindparam("chosen_run")),
        or_(bindparam("any_callback"), deliveries.c.callback_id == bindparam("of_callback")),
        or_(
            bindparam("is_first"),
            tuple_(deliveries.c.occurred_at, deliveries.c.id) < _after.scalar_subquery(),
        ),
    )
    .order_by(deliveries.c.occurred_at.desc(), deliveries.c.id.desc())
    .limit(bindparam("most"))
)
REPLAY = text("""
    update callback_deliveries set status = 'pending', due_at = now(), round_at = now(), tries = 0, ended_at = null
    where tenant_id = :tenant_id and id = :id
""")
INSERT = insert(deliveries)
HAS_DUE = text("select exists (select from callback_deliveries where status = 'pending' and due_at <= now())")
DELETE_OLD = text("""
    delete from callback_deliveries where id in (
        select id from callback_deliveries where ended_at < :before limit :most for update skip locked)
""")


def claim_due(tx: Transaction, *, most: int, most_of_each: int, busy: Collection[UUID] = ()) -> list[DueDelivery]:
    """Claim deliveries that are due, the oldest first: `most` in all, and `most_of_each` of one callback.

    Those of the callbacks in `busy`, and those that another sender claims at the same time, are left out.
    """
    limits = {"most": most, "most_of_each": most_of_each, "look_at": LOOK_AT, "busy": list(busy)}
    rows = tx.rows(CLAIM, **limits, claimed_for=CLAIMED_FOR)
    return [DueDelivery(**row._asdict()) for row in rows]


def put_body(tx: Transaction, tenant_id: TenantId, delivery_id: UUID, body: str) -> None:
    """Store the body of a delivery; every attempt sends the same."""
    tx.execute(PUT_BODY, tenant_id=tenant_id, id=delivery_id, body=body)


def record(
    tx: Transaction,
    tenant_id: TenantId,
    delivery_id: UUID,
    attempt: int,
    result: AttemptResult,
    *,
    at: datetime,
    status: DeliveryStatus,
    wait: timedelta = timedelta(0),
) -> bool:
    """Record an attempt, and what the delivery is afterwards; `wait`: until its next attempt.

    Returns False if a later attempt has begun meanwhile: then nothing is written.
    """
    entry = {
        "at": at.isoformat(timespec="milliseconds"),
        "status": result.status,
        "ms": result.elapsed_ms,
        "error": result.error or None,
    }
    return bool(
        tx.execute(
            RECORD,
            tenant_id=tenant_id,
            id=delivery_id,
            attempt=attempt,
            status=status.value,
            wait=wait,
            result=encode([entry]),
            shown=MAX_ATTEMPTS_SHOWN,
        )
    )


def list_deliveries(
    tx: Transaction,
    tenant_id: TenantId,
    *,
    statuses: Collection[str] = tuple(DeliveryStatus),
    run_id: RunId | None = None,
    callback_id: UUID | None = None,
    before: UUID | None = None,
    limit: int,
) -> list[Delivery]:
    """Return deliveries of a tenant, the newest first: those before one of them, if given."""
    rows = tx.rows(
        LIST,
        of_tenant=tenant_id,
        statuses=[str(each) for each in statuses],
        any_run=run_id is None,
        chosen_run=run_id or NO_ID,
        any_callback=callback_id is None,
        of_callback=callback_id or NO_ID,
        is_first=before is None,
        before=before or NO_ID,
        most=limit,
    )
    return [Delivery(*row) for row in rows]


def get(tx: Transaction, tenant_id: TenantId, delivery_id: UUID) -> Delivery:
    """Return a delivery. Raises NotFound."""
    row = tx.one_or_none(GET, of_tenant=tenant_id, of_delivery=delivery_id)
    if row is None:
        raise not_found(delivery_id.hex)
    return Delivery(**row)


def replay(tx: Transaction, tenant_id: TenantId, delivery_id: UUID) -> Delivery:
    """Make a delivery due now, whatever its status, with all its retries. Raises NotFound."""
    tx.execute(REPLAY, tenant_id=tenant_id, id=delivery_id)
    return get(tx, tenant_id, delivery_id)


def put_test(tx: Transaction, tenant_id: TenantId, delivery_id: UUID, callback_id: UUID, event: str) -> Delivery:
    """Insert a delivery that is about no run; return it."""
    tx.send(INSERT, id=delivery_id, tenant_id=tenant_id, callback_id=callback_id, event=event)
    return get(tx, tenant_id, delivery_id)


def has_due(tx: Transaction) -> bool:
    """Whether any delivery is due."""
    return bool(tx.scalar(HAS_DUE))


def delete_old(tx: Transaction, before: datetime) -> int:
    """Delete up to 500 deliveries that ended before; return how many."""
    return tx.execute(DELETE_OLD, before=before, most=BATCH)


def not_found(written: str) -> NotFound:
    """Return the error for a delivery that the tenant does not have."""
    return NotFound(f"There is no delivery {written[:64]}.")
