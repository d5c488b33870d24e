"""Activations as their workers see them: claim, firm, renew, report.

A worker writes its own activation and nothing else, guarded by its lease. The WHERE clauses are the whole race.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, Interval, and_, bindparam, case, func, not_, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert

from canvas.outcome import LOST, UNKNOWN, UNKNOWN_TEXT, Failed
from canvas.place import Place
from canvas.state import Report, ScopeKey, scope_key
from store import outcomes
from store.database import Transaction
from store.schema import activations, node_values, runs, turns, variables

_mine = (activations.c.run_id == bindparam("of_run"), activations.c.id == bindparam("of_activation"))
_held = (activations.c.lease_id == bindparam("of_lease"), activations.c.status == "running")

_lease = bindparam("lease", type_=Interval)
_most_strikes = bindparam("most_strikes", type_=Integer)
_new_lease = bindparam("new_lease", type_=activations.c.lease_id.type)

_without_waiting = select(func.set_config("synchronous_commit", "off", True)).scalar_subquery() == "off"

CLAIM = (  # its commit returns before it is on disk: losing it costs a second claim
    update(activations)
    .where(
        *_mine,
        _without_waiting,
        or_(
            and_(
                activations.c.status == "ready",
                activations.c.not_before <= func.now(),
                or_(_most_strikes.is_(None), activations.c.strikes <= _most_strikes),
            ),
            and_(  # the answer to this very claim got lost
                activations.c.status == "running", activations.c.lease_id == _new_lease, not_(activations.c.called_off)
            ),
        ),
        runs.c.id == activations.c.run_id,
    )
    .values(
        status="running",
        attempt=activations.c.attempt + case((activations.c.status == "ready", 1), else_=0),
        lease_id=_new_lease,
        lease_until=func.now() + _lease,
        worker=bindparam("worker_name"),
        started_at=func.now(),
        called_off=False,
        effect=None,
    )
    .returning(
        activations,
        runs.c.tenant_id,
        runs.c.canvas_id,
        runs.c.version_id,
        runs.c.conversation_id,
        runs.c.message_id,
        runs.c.request,
        runs.c.base,
        runs.c.history_upto,
        runs.c.created_at.label("run_created_at"),
    )
)

IS_READY = select(activations.c.id).where(
    *_mine, activations.c.status == "ready", activations.c.not_before <= func.now()
)

FIRM = update(activations).where(*_mine, *_held).values(lease_until=func.now() + _lease)
ACT = (
    update(activations)
    .where(*_mine, *_held)
    .values(lease_until=func.now() + _lease, effect=bindparam("new_effect"))
    .returning(activations.c.called_off)
)

RENEW = text("""
    update activations a set lease_until = now() + :lease
    from (
        select o.run_id, o.id from activations o
        join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as m(run_id, id, lease_id)
          on o.run_id = m.run_id and o.id = m.id and o.lease_id = m.lease_id
        where o.status = 'running' and not o.called_off
        order by o.run_id, o.id for no key update of o skip locked
    ) mine
    where a.run_id = mine.run_id and a.id = mine.id
    returning a.lease_id
""")
STILL_HELD = text("""
    select o.lease_id from activations o
    join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as m(run_id, id, lease_id)
      on o.run_id = m.run_id and o.id = m.id and o.lease_id = m.lease_id
    where o.status = 'running' and not o.called_off
""")

CALLED_OFF = text("""
    select o.lease_id from activations o
    join unnest(cast(:run_ids as uuid[]), cast(:ids as uuid[]), cast(:leases as uuid[])) as m(run_id, id, lease_id)
      on o.run_id = m.run_id and o.id = m.id and o.lease_id = m.lease_id
    where o.status = 'running' and o.called_off
""")

REPORT = (
    update(activations)
    .where(*_mine, *_held)
    .values(
        status="reported",
        outcome=bindparam("new_outcome"),
        usage=bindparam("new_usage"),
        strikes=activations.c.strikes + bindparam("new_strikes"),
        finished_at=func.now(),
    )
)

TELL = (
    update(activations)
    .where(*_mine, activations.c.status == "reported")
    .values(outcome=bindparam("new_outcome"), finished_at=func.now())
)

WAS_STORED = select(activations.c.id).where(
    *_mine, activations.c.lease_id == bindparam("of_lease"), activations.c.status != "running"
)

_values = insert(node_values)
PUT_VALUES = _values.on_conflict_do_update(  # a form writes twice: when it asks, and when it is answered
    index_elements=["run_id", "activation_id", "node_id"],
    set_={name: _values.excluded[name] for name in ("outputs", "inputs", "names")},
)
_turn = insert(turns)
PUT_TURN = _turn.on_conflict_do_update(
    index_elements=["run_id", "id"],
    set_={name: _turn.excluded[name] for name in ("text", "speaker", "epoch", "keep")},
)
PUT_TURN_ANEW = _turn.on_conflict_do_update(  # its speaker could not read the epoch
    index_elements=["run_id", "id"],
    set_={**{name: _turn.excluded[name] for name in ("text", "speaker", "keep")}, "epoch": turns.c.epoch + 1},
)
_variables = insert(variables)
PUT_VARIABLES = _variables.on_conflict_do_update(
    index_elements=["run_id", "activation_id", "name"], set_={"value": _variables.excluded["value"]}
)

REPORTED = (
    select(
        activations.c.id,
        activations.c.node_id,
        activations.c.scope,
        activations.c.ordinal,
        activations.c.wave,
        activations.c.trail,
        activations.c.region,
        activations.c.outcome,
        activations.c.usage,
        activations.c.strikes,
        activations.c.effect,
        activations.c.turn,
    )
    .where(activations.c.run_id == bindparam("of_run"), activations.c.status == "reported")
    .order_by(activations.c.id)
)

HAS_REPORTED = (
    select(activations.c.id)
    .where(activations.c.run_id == bindparam("of_run"), activations.c.status == "reported")
    .limit(1)
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A lease on an activation, and what of its run the attempt needs."""

    run_id: UUID
    id: UUID
    lease_id: UUID
    node_id: str
    component: str
    scope: ScopeKey
    ordinal: int
    place: Place
    limits: tuple[tuple[bytes, int], ...]  # (region, revision) of what it may read
    activated_rev: int
    attempt: int
    strikes: int
    turn: UUID | None
    answers: Any
    tenant_id: UUID
    canvas_id: UUID
    version_id: UUID
    conversation_id: UUID
    message_id: UUID  # of the current turn
    request: Mapping[str, Any]
    base: Mapping[str, Any]
    history_upto: int
    run_created_at: datetime


@dataclass(frozen=True, slots=True)
class Written:
    """Everything one report stores."""

    outcome: Mapping[str, Any]  # store/outcomes.py
    usage: Mapping[str, int]
    values: Sequence[Mapping[str, Any]]  # rows of node_values
    variables: Sequence[Mapping[str, Any]]
    turn: Mapping[str, Any] | None = None  # row of turns: the whole text; epoch None: one more than what is there
    strikes: int = 0


def claim(
    tx: Transaction,
    run_id: UUID,
    activation_id: UUID,
    *,
    lease_id: UUID,
    lease: timedelta,
    worker: str,
    most_strikes: int | None = None,
) -> Claim | None:
    """Take the lease on an activation; None if it is taken, over, not yet due or has had more strikes than asked for.

    A message delivered twice claims once. A claim whose answer got lost is sent again under the same lease id.
    """
    row = tx.one_or_none(
        CLAIM,
        of_run=run_id,
        of_activation=activation_id,
        new_lease=lease_id,
        lease=lease,
        worker_name=worker,
        most_strikes=most_strikes,
    )
    return _claim(row) if row else None


def is_ready(tx: Transaction, run_id: UUID, activation_id: UUID) -> bool:
    """Whether an activation is due and nobody has it: where a claim has just failed, for its strikes."""
    return tx.scalar(IS_READY, of_run=run_id, of_activation=activation_id) is not None


def _claim(row: Mapping[str, Any]) -> Claim:
    place = _place(row)
    enclosing = tuple((bytes.fromhex(region), revision) for region, revision in row["limits"] or ())
    return Claim(
        run_id=row["run_id"],
        id=row["id"],
        lease_id=row["lease_id"],
        node_id=row["node_id"],
        component=row["component"],
        scope=scope_key(row["scope"]),
        ordinal=row["ordinal"],
        place=place,
        limits=(*enclosing, (place.region, row["activated_rev"])),
        activated_rev=row["activated_rev"],
        attempt=row["attempt"],
        strikes=row["strikes"],
        turn=row["turn"],
        answers=row["answers"],
        tenant_id=row["tenant_id"],
        canvas_id=row["canvas_id"],
        version_id=row["version_id"],
        conversation_id=row["conversation_id"],
        message_id=row["message_id"],
        request=row["request"],
        base=row["base"],
        history_upto=row["history_upto"],
        run_created_at=row["run_created_at"],
    )


def _place(row: Mapping[str, Any]) -> Place:
    return Place(row["wave"], tuple((w, p) for w, p in row["trail"]), bytes(row["region"]))


def firm(tx: Transaction, claimed: Claim, lease: timedelta) -> bool:
    """Make a claim durable before anything leaves the worker; False if the lease is gone."""
    hit = tx.run(FIRM, of_run=claimed.run_id, of_activation=claimed.id, of_lease=claimed.lease_id, lease=lease)
    return hit == 1


def act(tx: Transaction, claimed: Claim, lease: timedelta, effect: str) -> bool | None:
    """Make a claim durable, and what the attempt may do outside from now on; whether it was called off meanwhile.

    None, and nothing is written, if the lease is gone.
    """
    return tx.scalar(
        ACT,
        of_run=claimed.run_id,
        of_activation=claimed.id,
        of_lease=claimed.lease_id,
        lease=lease,
        new_effect=effect,
    )


def renew(tx: Transaction, leases: Sequence[tuple[UUID, UUID, UUID]], lease: timedelta) -> set[UUID]:
    """Renew (run, activation, lease id) together, in id order; the lease ids that still hold.

    An expired lease that nobody has swept yet revives. A row that somebody works on is not waited for, since he may
    wait for one of ours: its lease holds until the next renewal, unless it is gone already.
    """
    mine = _columns(leases)
    kept = {row[0] for row in tx.rows(RENEW, lease=lease, **mine)}
    if len(kept) < len(leases):
        kept |= {row[0] for row in tx.rows(STILL_HELD, **mine)}
    return kept


def called_off(tx: Transaction, leases: Sequence[tuple[UUID, UUID, UUID]]) -> set[UUID]:
    """Of these (run, activation, lease id), the lease ids that still hold and were called off by a cancel."""
    return {row[0] for row in tx.rows(CALLED_OFF, **_columns(leases))}


def _columns(leases: Sequence[tuple[UUID, UUID, UUID]]) -> dict[str, list[UUID]]:
    return {
        "run_ids": [entry[0] for entry in leases],
        "ids": [entry[1] for entry in leases],
        "leases": [entry[2] for entry in leases],
    }


def report(tx: Transaction, run_id: UUID, activation_id: UUID, lease_id: UUID, written: Written) -> bool:
    """Store an attempt's report, guarded by its lease; False, and nothing stored, if the lease is gone."""
    hit = tx.run(
        REPORT,
        of_run=run_id,
        of_activation=activation_id,
        of_lease=lease_id,
        new_outcome=written.outcome,
        new_usage=written.usage,
        new_strikes=written.strikes,
    )
    if hit == 0:
        return False
    tx.run_many(PUT_VALUES, written.values)
    tx.run_many(PUT_VARIABLES, written.variables)
    if written.turn is not None:
        is_known = written.turn.get("epoch", 0) is not None
        tx.run(PUT_TURN, **written.turn) if is_known else tx.run(PUT_TURN_ANEW, **{**written.turn, "epoch": 1})
    return True


def tell(tx: Transaction, run_id: UUID, activation_id: UUID, outcome: Mapping[str, Any]) -> None:
    """What came of an activation that its worker cannot tell any more; the caller holds the run."""
    tx.run(TELL, of_run=run_id, of_activation=activation_id, new_outcome=outcome)


def was_stored(tx: Transaction, run_id: UUID, activation_id: UUID, lease_id: UUID) -> bool:
    """Whether a report under this lease is there already (its commit's answer got lost)."""
    return tx.scalar(WAS_STORED, of_run=run_id, of_activation=activation_id, of_lease=lease_id) is not None


def reported(tx: Transaction, run_id: UUID) -> list[Report]:
    """The reports that no fold has seen. Ask in a later statement than the one that locked the run."""
    found: list[Report] = []
    for row in tx.rows(REPORTED, of_run=run_id):
        fields = row._mapping
        told = outcomes.from_column(fields["outcome"])
        outcome = told.outcome
        if isinstance(outcome, Failed) and outcome.code == LOST and fields["effect"] == "unsafe":
            outcome = Failed(UNKNOWN_TEXT, UNKNOWN)  # told by a sweeper of an earlier release, which knows no effects
        found.append(
            Report(
                activation=fields["id"],
                node_id=fields["node_id"],
                scope=scope_key(fields["scope"]),
                ordinal=fields["ordinal"],
                place=_place(dict(fields)),
                outcome=outcome,
                error=told.error,
                strikes=fields["strikes"],
                turn=fields["turn"],
                retake=told.retake,
                spoke=told.spoke,
                usage=fields["usage"] or {},
            )
        )
    return found


def has_reported(tx: Transaction, run_id: UUID) -> bool:
    """The look: whether a report of the run waits to be folded."""
    return tx.scalar(HAS_REPORTED, of_run=run_id) is not None


PLACES = select(activations.c.place, activations.c.region).where(*_mine)


def put_variables(tx: Transaction, run_id: UUID, activation_id: UUID, values: Mapping[str, Any]) -> None:
    """Write variables in an activation's name, under the run's lock (a new turn's globals)."""
    row = tx.rows(PLACES, of_run=run_id, of_activation=activation_id)[0]
    tx.run_many(
        PUT_VARIABLES,
        [
            {
                "run_id": run_id,
                "activation_id": activation_id,
                "name": name,
                "place": row.place,
                "region": row.region,
                "value": value,
            }
            for name, value in values.items()
        ],
    )
