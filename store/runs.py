"""Runs: the row, its lock, and what a decision writes.

Only the coordinator (and the verbs of people) write a run's row, its scopes and its events, under the row's lock.
Lock first, read in a later statement (protocol.md, "Locks").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, bindparam, case, cast, func, insert, literal_column, select, text, update

from canvas.checkpoint import fill_run, run_to_json
from canvas.events import Event
from canvas.plan import Activation, Decision
from canvas.state import (
    ENGINE,
    Report,
    RunState,
    RunStatus,
    Status,
    scope_text,
)
from store import events, inbox, scopes, turns, values
from store.activations import Claim
from store.schema import activations, runs
from store.scopes import Known
from store.transaction import Behind, Later, Transaction

TRY_LOCK = (  # a row that is locked comes as it is by then, whatever the statement saw when it began
    select(*(column for column in runs.c if column.name not in ("base", "request")))
    .where(runs.c.id == bindparam("of_run"))
    .with_for_update(key_share=True, skip_locked=True)
)
WAIT_LOCK = text("select id from runs where id = :run_id for no key update")
WAIT_AT_MOST = text("select set_config('lock_timeout', :milliseconds, true)")
READ = select(runs).where(runs.c.id == bindparam("of_run"))
GIVEN = select(runs.c.request, runs.c.base).where(runs.c.id == bindparam("of_run"))
READ_OF_TENANT = READ.where(runs.c.tenant_id == bindparam("of_tenant"))


ACTIVATE = insert(activations).values(hinted_at=func.now())  # the hint follows the commit

MOVE = text("""
    with moved as (
        update activations a set status = m.status, folded_rev = :revision
        from unnest(cast(:ids as uuid[]), cast(:statuses as text[])) as m(id, status)
        where a.run_id = :run_id and a.id = m.id and a.status in ('reported', 'saying', 'open', 'waiting')
        returning 1
    )
    select case when count(*) = cardinality(cast(:ids as uuid[])) then 0
        else ('An activation was not in the state that a decision has seen; as seen: ' || count(*))::int end
    from moved
""")
RETRY = text("""
    update activations set status = 'ready', lease_id = null, lease_until = null, outcome = null,
        not_before = now(), hinted_at = now()
    where run_id = :run_id and id = any(cast(:ids as uuid[])) and status = 'ready'
    returning id, component
""")
ANSWER = text("""
    update activations set answers = :answers, lease_id = null, lease_until = null, not_before = now(),
        hinted_at = now()
    where run_id = :run_id and id = any(cast(:ids as uuid[])) and status = 'ready'
    returning id, component
""").bindparams(bindparam("answers", type_=activations.c.answers.type))
PROMOTE = text("""
    update activations a set status = 'ready', not_before = now(), hinted_at = now()
    from (
        select id from activations where run_id = :run_id and status = 'queued' order by place limit :most
    ) next
    where a.run_id = :run_id and a.id = next.id returning a.id, a.component
""")
CLOSE = text("""
    update activations a set status = 'closed', folded_rev = :revision
    from (
        select id from activations
        where run_id = :run_id and status in ('queued', 'ready', 'waiting', 'saying', 'open')
          and (status not in ('queued', 'ready', 'saying') or :wave < 0 or wave > :wave or region <> '')
          and (status <> 'open' or :all)
        order by id for no key update
    ) stopped
    where a.run_id = :run_id and a.id = stopped.id
""")
CALL_OFF = text("""
    update activations a set called_off = true
    from (
        select id from activations where run_id = :run_id and status = 'running' and not called_off
        order by id for no key update
    ) working
    where a.run_id = :run_id and a.id = working.id
""")
CLOSE_ALL = text("""
    update activations a set status = 'closed', folded_rev = :revision, called_off = true
    from (
        select id, status from activations where run_id = :run_id and status not in ('done', 'closed')
        order by id for no key update
    ) left_over
    where a.run_id = :run_id and a.id = left_over.id returning left_over.status
""")
CALL_OFF_ITEMS = text("""
    update activations a
    set called_off = true, status = 'reported', finished_at = now(),
        outcome = json_build_object('is', 'Failed', 'error', 'An earlier item has failed.', 'code', 'called_off')
    from (
        select id from activations
        where run_id = :run_id and status = 'running' and case when starts_with(scope, :entry || '.')
          then split_part(substr(scope, length(:entry) + 2), '/', 1)::int > :item end
        order by id for no key update
    ) working
    where a.run_id = :run_id and a.id = working.id and a.status = 'running'
""")
BUSY = text("""
    select count(*) filter (where status <> 'queued') as at_work, count(*) filter (where status = 'queued') as queued
    from activations
    where run_id = :run_id and status in ('queued', 'ready', 'running', 'reported')
""")

_saved = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"), runs.c.revision == bindparam("old_revision"))
    .values(
        status=bindparam("new_status"),
        revision=bindparam("old_revision") + 1,
        last_event=bindparam("new_last_event"),
        turn=bindparam("new_turn"),
        state=bindparam("new_state"),
        usage=bindparam("new_usage"),
        error=bindparam("new_error"),
        finished_at=text("case when :is_over then now() else finished_at end"),
        expires_at=text("case when :is_waiting then now() + :form_expiry else null end"),
    )
    .returning(literal_column("1"))
    .cte("saved")
)
SAVE = select(  # the commit goes out behind it, so the server itself must refuse what is not as it was
    case(
        (select(func.count()).select_from(_saved).scalar_subquery() == 1, 0),
        else_=cast(
            literal_column("'A run changed under its lock; as seen: ' || (select count(*) from saved)"), Integer
        ),
    )
)

ASK = text("update runs set asked = 'cancel' where id = :run_id")

CREATE = insert(runs).values(created_at=func.clock_timestamp())  # under the conversation's lock: order of acceptance

PUT_BASE = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(
        base=bindparam("new_base"),
        previous_run=bindparam("new_previous"),
        history_upto=bindparam("new_upto"),
        started_at=func.now(),
    )
)
NEXT_TURN = (
    update(runs)
    .where(runs.c.id == bindparam("of_run"))
    .values(
        request=bindparam("new_request"),
        message_id=bindparam("new_message"),
        history_upto=bindparam("new_upto"),
        first_event=bindparam("new_first"),
    )
)


@dataclass(frozen=True, slots=True)
class Hint:
    """An activation that is ready; what Flower shows of it."""

    run_id: UUID
    activation_id: UUID
    component: str


@dataclass(frozen=True, slots=True)
class Own:
    """A report that rides along with the step that takes it in: its attempt's claim, and what it stores."""

    claim: Claim
    written: inbox.Written


@dataclass(slots=True)
class Applied:
    """What a fold has written that others should hear of after its commit."""

    run_id: UUID
    hints: list[Hint] = field(default_factory=list[Hint])
    events: list[tuple[int, Event]] = field(default_factory=list[tuple[int, Event]])
    is_over: bool = False
    status: str = ""
    next_run: UUID | None = None  # the conversation's next run, now to be set going
    conversation_id: UUID | None = None
    calls_off: bool = False  # attempts are at work that are to stop
    reported: Behind | None = None  # what was reported meanwhile, asked behind the commit

    def merge(self, later: "Applied") -> None:
        """Add what a later decision of the same transaction has written."""
        self.hints += later.hints
        self.events += later.events
        self.is_over = self.is_over or later.is_over
        self.status = later.status or self.status
        self.conversation_id = later.conversation_id or self.conversation_id
        self.next_run = later.next_run or self.next_run
        self.calls_off = self.calls_off or later.calls_off


def create(tx: Transaction, row: Mapping[str, Any]) -> None:
    """Insert a run; the caller has chosen its id."""
    tx.run(CREATE, engine=ENGINE, usage={}, **row)


def try_lock(tx: Transaction, run_id: UUID) -> Callable[[], Mapping[str, Any] | None]:
    """Try to take a run that nobody holds; its row without `base` and `request`, as it is under the lock.

    None: it is held, unknown, or not ours to decide. What lies beside the row is read in later statements.
    """
    row = tx.later(TRY_LOCK, of_run=run_id)
    return lambda: _readable(row)


def lock(tx: Transaction, run_id: UUID, *, patience: timedelta = timedelta(seconds=2)) -> Mapping[str, Any] | None:
    """Wait for a run (the verbs of people only); None if there is no such run."""
    tx.scalar(WAIT_AT_MOST, milliseconds=str(int(patience.total_seconds() * 1000)))
    if tx.scalar(WAIT_LOCK, run_id=run_id) is None:
        return None
    return _readable(tx.later(READ, of_run=run_id))


def _readable(asked: Later) -> Mapping[str, Any] | None:
    row = asked.one_or_none()
    return row if row is not None and row["engine"] <= ENGINE else None


def read(tx: Transaction, tenant_id: UUID, run_id: UUID) -> Mapping[str, Any] | None:
    """A run's row, for its own tenant."""
    return tx.one_or_none(READ_OF_TENANT, of_run=run_id, of_tenant=tenant_id)


def state_of(
    tx: Transaction, row: Mapping[str, Any], reports: Sequence[Report], *, whole: bool, known: Known | None = None
) -> RunState:
    """The state a decision works on: the scopes that the reports name and those around them, or all (`whole`).

    `known` are scopes that were asked for ahead.
    """
    state = fill_run(
        RunState(
            run_id=row["id"],
            status=RunStatus(row["status"]),
            revision=row["revision"],
            last_event=row["last_event"],
            asked=row["asked"],
            turn=row["turn"],
        ),
        row["state"],
    )
    state.scopes = scopes.read(tx, row["id"], None if whole else scopes.around(reports), known)
    return state


def apply(
    tx: Transaction,
    row: Mapping[str, Any],
    decision: Decision,
    *,
    usage: Mapping[str, int],
    form_expiry: timedelta,
    answers: Any = None,
    own: Own | None = None,
) -> Applied:
    """Write a decision under the run's lock: activations, scopes, turns, events and the run's row together.

    `usage` is what the run has used so far, these reports included; `own` is a report that is stored together with it.
    Nothing of it is waited for. If a row is not as the decision has seen it, the server refuses it and the commit.
    """
    run_id, revision, before = row["id"], row["revision"] + 1, row["last_event"]
    applied = Applied(run_id, status=decision.run.status.value)
    if own is not None:
        inbox.settle(tx, own.claim, own.written, decision.moved[own.claim.id].value, revision)
    applied.hints += _move(tx, run_id, revision, decision, answers, own)
    tx.run_many(ACTIVATE, [_activation_row(run_id, revision, new) for new in decision.activated])
    applied.hints += [Hint(run_id, new.id, new.component) for new in decision.activated if new.status is Status.READY]
    if decision.promote:
        applied.hints += [
            Hint(run_id, found[0], found[1]) for found in tx.rows(PROMOTE, run_id=run_id, most=decision.promote)
        ]
    for failed in decision.inheriting:
        values.inherit(tx, run_id, failed)
    for activation, (node_id, error) in decision.errors.items():
        values.put_error(tx, run_id, activation, node_id, error)
    for entry, item in decision.called_off.items():
        tx.later(CALL_OFF_ITEMS, run_id=run_id, entry=entry, item=item)
    if decision.is_over and decision.run.status is not RunStatus.SUCCEEDED:
        scopes.hide_untold(tx, run_id)
    scopes.put(tx, run_id, decision)
    _put_turns(tx, run_id, before, decision)
    events.append(tx, run_id, before + 1, decision.events)
    applied.events += [(before + offset, event) for offset, event in enumerate(decision.events, start=1)]
    status = decision.run.status
    tx.later(
        SAVE,
        of_run=run_id,
        old_revision=row["revision"],
        new_status=status.value,
        new_last_event=before + len(decision.events),
        new_turn=decision.run.turn,
        new_state=run_to_json(decision.run),
        new_usage=dict(usage),
        new_error=decision.error or row["error"],
        is_over=status.is_over,
        is_waiting=status is RunStatus.WAITING,
        form_expiry=min((own or form_expiry for own in decision.expiries), default=form_expiry),
    )
    applied.is_over = status.is_over
    return applied


def _move(
    tx: Transaction, run_id: UUID, revision: int, decision: Decision, answers: Any, own: Own | None
) -> list[Hint]:
    """Move activations that were folded; hints for those that are ready again."""
    fresh = {new.id for new in decision.activated}
    moved = {activation: status for activation, status in decision.moved.items() if activation not in fresh}
    ids = sorted(activation for activation in moved if own is None or activation != own.claim.id)
    if ids:
        statuses = [moved[activation].value for activation in ids]
        tx.later(MOVE, run_id=run_id, revision=revision, ids=ids, statuses=statuses)
    again: list[Any] = []
    if decision.retried:
        again += tx.rows(RETRY, run_id=run_id, ids=decision.retried)
    if answers is not None:
        retried = set(decision.retried)
        answered = [found for found, status in moved.items() if status is Status.READY and found not in retried]
        again += tx.rows(ANSWER, run_id=run_id, ids=answered, answers=answers)
    return [Hint(run_id, row.id, row.component) for row in again]


def _activation_row(run_id: UUID, revision: int, new: Activation) -> dict[str, Any]:
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


def _put_turns(tx: Transaction, run_id: UUID, before: int, decision: Decision) -> None:
    for turn, offset in decision.taken_back.items():
        opened_now = turn in decision.opened
        tx.later(turns.TAKE_BACK, run_id=run_id, turn=turn, number=None if opened_now else before + offset)
    for turn, (node_id, said) in decision.texts.items():  # after taking back: it replaces what was said
        tx.later(turns.PUT_TEXT, run_id=run_id, turn=turn, node_id=node_id, said=said)
    for turn, offset in decision.opened.items():
        node_id = next((e.node_id for e in decision.events if e.activation == turn and e.node_id), "")
        tx.later(turns.OPEN, run_id=run_id, turn=turn, node_id=node_id, number=before + offset)
    for turn, offset in decision.closed.items():
        tx.later(turns.CLOSE, run_id=run_id, turn=turn, number=before + offset)


def ask_to_cancel(tx: Transaction, run_id: UUID) -> None:
    """Mark a locked run; the fold that follows closes what has not begun."""
    tx.later(ASK, run_id=run_id)


def close(tx: Transaction, row: Mapping[str, Any], *, after_wave: int | None, everything: bool) -> None:
    """Close what need not run any more: all that has not begun, or what comes after the failing wave."""
    tx.later(
        CLOSE,
        run_id=row["id"],
        revision=row["revision"] + 1,
        wave=-1 if after_wave is None else after_wave,
        all=everything,
    )


def call_off(tx: Transaction, run_id: UUID) -> bool:
    """Tell running attempts to stop; whether there were any that had not been told.

    In a later statement than the close, so no claim slips between.
    """
    return tx.run(CALL_OFF, run_id=run_id) > 0


def close_whatever_is_left(tx: Transaction, row: Mapping[str, Any]) -> bool:
    """Close every activation of a run that ends by force, those at work too; whether there was any at work.

    Their reports find no guard, and their next renewal finds that the lease is gone. Its scopes go unread.
    """
    tx.run(scopes.DROP_SCOPES, of_run=row["id"])
    left = tx.rows(CLOSE_ALL, run_id=row["id"], revision=row["revision"] + 1)
    return any(was == "running" for (was,) in left)


def busy(tx: Transaction, run_id: UUID) -> tuple[int, int]:
    """How many activations work for the run or have reported unseen, and how many wait for a place in it."""
    row = tx.rows(BUSY, run_id=run_id)[0]
    return row[0], row[1]


def set_base(
    tx: Transaction, run_id: UUID, *, base: Mapping[str, Any], previous_run: UUID | None, history_upto: int
) -> None:
    """Fill in what a run begins with."""
    tx.run(PUT_BASE, of_run=run_id, new_base=base, new_previous=previous_run, new_upto=history_upto)


def next_turn(
    tx: Transaction, run_id: UUID, *, request: Mapping[str, Any], message_id: UUID, history_upto: int, first_event: int
) -> None:
    """A run that waited goes on with a new turn of its conversation."""
    tx.run(
        NEXT_TURN,
        of_run=run_id,
        new_request=request,
        new_message=message_id,
        new_upto=history_upto,
        new_first=first_event,
    )


TENANT_OF = select(runs.c.tenant_id).where(runs.c.id == bindparam("of_run"))


def tenant_of(tx: Transaction, run_id: UUID) -> UUID | None:
    """Whose run it is (for keys and tasks that name only the run)."""
    return tx.scalar(TENANT_OF, of_run=run_id)
