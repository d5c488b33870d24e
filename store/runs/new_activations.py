"""What a step makes ready: written for the queue, or as claimed already by those who took the step.

Whoever reports may take one of the activations that the step with his report makes ready (docs/decisions/0019). It is
written as running, under a lease that he has registered, so that no hint is sent and nothing is to be claimed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Interval, bindparam, func, insert, literal_column, text

from canvas.routing.decision import Activation, Decision
from canvas.state.run_state import RunStatus, Status, scope_text
from store.db.transaction import PendingResult, Transaction
from store.primitives.json_codec import encode
from store.runs.activations import CLAIMED, Claim, claim_of
from store.runs.reports import ReportPayload
from store.tables.runs import activations, beginning_of

AT_ONCE_SINCE = "to_timestamp(0)"
"""What is ready and need not wait is due since ever, so that a clock that goes back keeps nobody from it."""
ACTIVATE = insert(activations).values(  # the hint follows the commit
    hinted_at=func.now(), not_before=literal_column(AT_ONCE_SINCE)
)
ACTIVATE_MANY = text(f"""
    insert into activations (run_id, activated_rev, hinted_at, not_before, id, node_id, component, scope, ordinal,
        place, region, wave, trail, limits, status, turn)
    select :run_id, :revision, now(), {AT_ONCE_SINCE}, u.id, u.node_id, u.component, u.scope, u.ordinal, u.place,
        u.region, u.wave, cast(u.trail as json), cast(u.limits as json), u.status, u.turn
    from unnest(cast(:id as uuid[]), cast(:node_id as text[]), cast(:component as text[]), cast(:scope as text[]),
        cast(:ordinal as int[]), cast(:place as bytea[]), cast(:region as bytea[]), cast(:wave as int[]),
        cast(:trail as text[]), cast(:limits as text[]), cast(:status as text[]), cast(:turn as uuid[]))
      as u(id, node_id, component, scope, ordinal, place, region, wave, trail, limits, status, turn)
""")  # noqa: S608 (constants only)
MANY = 3  # from so many on, one statement costs less than one for each
AT_ONCE = 500
ACTIVATE_TAKEN = insert(activations).values(
    attempt=1,
    lease_until=func.now() + bindparam("lease", type_=Interval),
    started_at=func.now(),
    hinted_at=func.now(),
    not_before=literal_column(AT_ONCE_SINCE),
)
PROMOTE = text(f"""
    update activations a set status = 'ready', not_before = {AT_ONCE_SINCE}, hinted_at = now()
    from (
        select id from activations where run_id = :run_id and status = 'queued'
        order by {beginning_of("place")}, place limit :most
    ) next
    where a.run_id = :run_id and a.id = next.id returning a.id, a.component
""")  # noqa: S608 (constants only)
PROMOTE_CLAIMED = text(f"""
    update activations a set status = 'running', attempt = attempt + 1, lease_id = :lease_id,
        lease_until = now() + :lease, worker = :worker, started_at = now(), hinted_at = now(),
        not_before = {AT_ONCE_SINCE}
    from (
        select id as next_id from activations where run_id = :run_id and status = 'queued'
        order by {beginning_of("place")}, place limit 1
    ) next
    where a.run_id = :run_id and a.id = next_id returning {", ".join(CLAIMED)}
""").bindparams(bindparam("lease", type_=Interval))  # noqa: S608 (constants only)


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """An activation that is ready; what Flower shows of it."""

    run_id: UUID
    activation_id: UUID
    component: str


@dataclass(frozen=True, slots=True)
class ContinuationRequest:
    """Who goes on at once with something that the step with his report makes ready.

    `take` is asked before it is written, with its id where that is known yet, and gives the lease's id; None: it is not
    wanted, and a hint is sent.
    """

    worker: str
    lease: timedelta
    take: Callable[[UUID | None], UUID | None]
    keep: Callable[[Claim | None], None] = lambda _: None  # after the commit, by whoever has stored the report


@dataclass(frozen=True, slots=True)
class InlineReport:
    """A report that rides along with the step that takes it in: its attempt's claim, and what it stores."""

    claim: Claim
    written: ReportPayload
    taker: ContinuationRequest | None = None


@dataclass(slots=True)
class ActivationResult:
    """What a step has made ready. `promoted`, and `taken` by the activation reported, are known once it was waited."""

    hints: list[TaskMessage] = field(default_factory=list[TaskMessage])
    promoted: Callable[[], list[TaskMessage]] = list
    taken: dict[UUID, Callable[[], Claim | None]] = field(default_factory=dict[UUID, Callable[[], Claim | None]])


def activate(
    tx: Transaction, row: Mapping[str, Any], revision: int, decision: Decision, owns: Sequence[InlineReport]
) -> ActivationResult:
    """Write what a decision activates and promotes. Nothing of it is waited for."""
    made = ActivationResult()
    goes_on = decision.run.status is RunStatus.RUNNING
    takers = [own for own in owns if own.taker is not None] if goes_on else []
    others: list[Activation] = []
    for new in decision.activated:
        if new.status is Status.READY and _is_taken(tx, row, revision, new, takers, made):
            continue
        others.append(new)
        if new.status is Status.READY:
            made.hints.append(TaskMessage(row["id"], new.id, new.component))
    _put(tx, row["id"], revision, others)
    _promote(tx, row, decision.promote, takers, made)
    return made


def _put(tx: Transaction, run_id: UUID, revision: int, activated: Sequence[Activation]) -> None:
    rows = [_row_of(run_id, revision, new) for new in activated]
    if len(rows) < MANY:
        tx.write_many(ACTIVATE, rows)
        return
    for at in range(0, len(rows), AT_ONCE):
        some = [
            {**row, "trail": encode(row["trail"]), "limits": encode(row["limits"]) if row["limits"] else None}
            for row in rows[at : at + AT_ONCE]
        ]
        columns = {name: [row[name] for row in some] for name in some[0] if name not in ("run_id", "activated_rev")}
        tx.write(ACTIVATE_MANY, run_id=run_id, revision=revision, **columns)


def _is_taken(
    tx: Transaction,
    row: Mapping[str, Any],
    revision: int,
    new: Activation,
    takers: list[InlineReport],
    made: ActivationResult,
) -> bool:
    own, lease_id = _who_takes(takers, new.id)
    if own is None or own.taker is None:
        return False
    taken = {**_row_of(row["id"], revision, new), "status": Status.RUNNING.value, "lease_id": lease_id}
    tx.write(ACTIVATE_TAKEN, **taken, lease=own.taker.lease, worker=own.taker.worker)
    claim = claim_of({**taken, "attempt": 1, "strikes": 0, "answers": None}, row)
    made.taken[own.claim.id] = lambda: claim
    return True


def _promote(
    tx: Transaction, row: Mapping[str, Any], most: int, takers: list[InlineReport], made: ActivationResult
) -> None:
    for _ in range(most):
        own, lease_id = _who_takes(takers, None)
        if own is None or own.taker is None:
            break
        most -= 1
        found = tx.later(
            PROMOTE_CLAIMED, run_id=row["id"], lease_id=lease_id, lease=own.taker.lease, worker=own.taker.worker
        )
        made.taken[own.claim.id] = _claimed(found, row)
    if most:
        promoted = tx.later(PROMOTE, run_id=row["id"], most=most)
        made.promoted = lambda: [TaskMessage(row["id"], found[0], found[1]) for found in promoted.rows()]


def _claimed(found: PendingResult, row: Mapping[str, Any]) -> Callable[[], Claim | None]:
    def claim() -> Claim | None:
        taken = found.one_or_none()
        return claim_of(taken, row) if taken is not None else None

    return claim


def _who_takes(takers: list[InlineReport], activation_id: UUID | None) -> tuple[InlineReport | None, UUID | None]:
    """The first of the takers who wants it, and under which lease; those who do not are asked no more."""
    while takers:
        own = takers.pop(0)
        lease_id = own.taker.take(activation_id) if own.taker is not None else None
        if lease_id is not None:
            return own, lease_id
    return None, None


def _row_of(run_id: UUID, revision: int, new: Activation) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "id": new.id,
        "node_id": new.node_id,
        "component": new.component,
        "scope": scope_text(new.scope),
        "ordinal": new.ordinal,
        "place": new.place.key,
        "region": new.place.region,
        "wave": new.place.wave,
        "trail": new.place.trail,
        "limits": new.limits or None,
        "status": new.status.value,
        "turn": new.turn,
        "activated_rev": revision,
    }
