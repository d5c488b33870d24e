"""What a decision writes: activations, scopes, turns, events and the run's row, together, under the run's lock.

Nothing of it is waited for before the commit. So what must be as the decision has seen it the server checks itself.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, literal_column, select, text, update

from canvas.events.run_events import Event
from canvas.routing.decision import Decision
from canvas.state.checkpoint import run_to_json
from canvas.state.run_state import RunStatus, Status
from store.db.guards import Guard, expect_rows, failed_guard
from store.db.transaction import AfterCommitQuery, Transaction
from store.primitives.json_codec import decode, encode
from store.runs import events, message_streams, reports, scopes, values
from store.runs.activations import Claim
from store.runs.new_activations import AT_ONCE_SINCE, InlineReport, TaskMessage, activate
from store.tables.runs import activations, runs

MOST_REMEMBERED = 8  # open scopes; of a run with more, what the next step needs is read

MOVE = text(f"""
    with moved as (
        update activations a set status = m.status, folded_rev = :revision
        from unnest(cast(:ids as uuid[]), cast(:statuses as text[])) as m(id, status)
        where a.run_id = :run_id and a.id = m.id and a.status in ('reported', 'saying', 'open', 'waiting')
        returning 1
    )
    select {expect_rows(Guard.ACTIVATIONS_UNCHANGED, "cardinality(cast(:ids as uuid[]))")} from moved
""")  # noqa: S608 (constants only)
RETRY = text(f"""
    update activations set status = 'ready', lease_id = null, lease_until = null, outcome = null,
        not_before = {AT_ONCE_SINCE}, hinted_at = now()
    where run_id = :run_id and id = any(cast(:ids as uuid[])) and status = 'ready'
    returning id, component
""")  # noqa: S608 (constants only)
POSTPONE = text("""
    update activations a set lease_id = null, lease_until = null, hinted_at = null,
        not_before = now() + make_interval(secs => m.seconds)
    from unnest(cast(:ids as uuid[]), cast(:seconds as float8[])) as m(id, seconds)
    where a.run_id = :run_id and a.id = m.id and a.status = 'ready'
""")  # what it waits for stays in its outcome, for people; the sweeper sends it when it is due
ANSWER = text(f"""
    update activations set answers = :answers, lease_id = null, lease_until = null, not_before = {AT_ONCE_SINCE},
        hinted_at = now()
    where run_id = :run_id and id = any(cast(:ids as uuid[])) and status = 'ready'
    returning id, component
""").bindparams(  # noqa: S608
    bindparam("answers", type_=activations.c.answers.type)
)
CALL_OFF_ITEMS = text("""
    update activations a
    set called_off = true, status = 'reported', finished_at = now(),
        outcome = json_build_object('is', 'Failed', 'error', 'An earlier item has failed.', 'code', 'called_off',
            'used', json_build_object())
    from (
        select id from activations
        where run_id = :run_id and status = 'running' and case when starts_with(scope, :entry || '.')
          then split_part(substr(scope, length(:entry) + 2), '/', 1)::int > :item end
        order by id for no key update
    ) working
    where a.run_id = :run_id and a.id = working.id and a.status = 'running'
""")
_at = (
    select(runs.c.id)
    .where(
        runs.c.id == bindparam("of_run"),
        runs.c.revision == bindparam("old_revision"),
        runs.c.budgeted == bindparam("was_budgeted"),  # a budget is set without a step
    )
    .with_for_update(key_share=True, skip_locked=True)
    .subquery("at")
)
_saved = (
    update(runs)
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
)
SAVE = _saved.where(runs.c.id == bindparam("of_run"), runs.c.revision == bindparam("old_revision"))
IS_SAVED = expect_rows(Guard.RUN_UNCHANGED)
SAVE_AS_LEFT = _saved.where(runs.c.id == bindparam("of_run"), runs.c.id == _at.c.id)
"""Of a run that was not taken before: it is taken with this, unless somebody holds it."""
IS_AS_LEFT = expect_rows(Guard.CACHE_FRESH)


@dataclass(frozen=True, slots=True)
class CachedRun:
    """A run as a step has left it: all that the next one reads of it, if it does not move on meanwhile."""

    row: Mapping[str, Any]
    scopes: scopes.PrefetchedScopes


@dataclass(slots=True)
class AppliedDecision:
    """What a fold has written that others should hear of after its commit.

    `taken`: what those go on with who have reported, by the id of the activation that they reported; after the commit.
    """

    run_id: UUID
    hints: list[TaskMessage] = field(default_factory=list[TaskMessage])
    events: list[tuple[int, Event]] = field(default_factory=list[tuple[int, Event]])
    is_over: bool = False
    status: str = ""
    next_run: UUID | None = None  # the conversation's next run, now to be set going
    conversation_id: UUID | None = None
    calls_off: bool = False  # attempts are at work that are to stop
    reported: AfterCommitQuery | None = None  # what was reported meanwhile, asked behind the commit
    promoted: Callable[[], list[TaskMessage]] = list  # further hints, known after the commit
    taken: dict[UUID, Callable[[], Claim | None]] = field(default_factory=dict[UUID, Callable[[], Claim | None]])
    left: CachedRun | None = None  # for the step behind it
    is_last_at_work: bool = False  # nothing is at work or ready but what was taken, so nobody can report meanwhile
    rewrites: bool = False  # whether outputs were written that are not those of the reports
    forget_names: Callable[[], None] | None = None  # forgets cancel keys of the external ids of a run that is over

    def merge(self, later: "AppliedDecision") -> None:
        """Add what a later decision of the same transaction has written."""
        self.hints += later.hints
        self.promoted = self.promoted if later.promoted is list else later.promoted
        self.events += later.events
        self.is_over = self.is_over or later.is_over
        self.status = later.status or self.status
        self.conversation_id = later.conversation_id or self.conversation_id
        self.next_run = later.next_run or self.next_run
        self.calls_off = self.calls_off or later.calls_off
        self.forget_names = later.forget_names or self.forget_names


def apply(
    tx: Transaction,
    row: Mapping[str, Any],
    decision: Decision,
    *,
    usage: Mapping[str, int],
    form_expiry: timedelta,
    answers: Any = None,
    owns: Sequence[InlineReport] = (),
    is_taken: bool = True,
) -> AppliedDecision:
    """Write a decision under the run's lock: activations, scopes, turns, events and the run's row together.

    `usage` is what the run has used so far, these reports included; `owns` are reports that are stored with it.
    `is_taken`: the run is locked; else it is taken here, if nobody holds it and it is at the row's revision. Whoever
    waits next finds out (`has_moved_on`).
    Nothing of it is waited for. If a row is not as the decision has seen it, the server refuses it and the commit.
    """
    run_id, revision, before = row["id"], row["revision"] + 1, row["last_event"]
    status = decision.run.status
    applied = AppliedDecision(run_id, status=status.value, is_over=status.is_over)
    after = _save(tx, row, decision, usage, form_expiry, is_taken=is_taken)
    for own in owns:
        reports.complete(tx, own.claim, own.written, decision.moved[own.claim.id].value, revision)
    applied.hints += _move(tx, run_id, revision, decision, answers, owns)
    made = activate(tx, row, revision, decision, owns)
    applied.hints += made.hints
    applied.promoted, applied.taken = made.promoted, made.taken
    for failed in decision.inheriting:
        values.copy_previous_outputs(tx, run_id, failed)
    for activation, (node_id, error) in decision.errors.items():
        values.put_error(tx, run_id, activation, node_id, error)
    for entry, item in decision.called_off.items():
        tx.later(CALL_OFF_ITEMS, run_id=run_id, entry=entry, item=item)
    if status.is_over and status is not RunStatus.SUCCEEDED:
        scopes.discard_deferred(tx, run_id)
    scopes.put(tx, run_id, decision)
    _put_turns(tx, run_id, before, decision)
    events.append(tx, run_id, before + 1, decision.events)
    applied.events += [(before + offset, event) for offset, event in enumerate(decision.events, start=1)]
    applied.rewrites = bool(decision.inheriting or decision.errors)
    if applied.taken and decision.run.live == 1:
        applied.is_last_at_work = not decision.promote
        if len(decision.run.scopes) <= MOST_REMEMBERED:
            left = {**row, **after, "state": decode(encode(after["state"]))}
            applied.left = CachedRun(left, scopes.scopes_after(decision))
    return applied


def is_stale_cache(error: BaseException) -> bool:
    """Whether a run was held by somebody, or not as it was left."""
    return failed_guard(error) is Guard.CACHE_FRESH


def _save(
    tx: Transaction,
    row: Mapping[str, Any],
    decision: Decision,
    usage: Mapping[str, int],
    form_expiry: timedelta,
    *,
    is_taken: bool,
) -> Mapping[str, Any]:
    """Write the run's row, before anything else: if it may not be written, nothing is. What it is then."""
    status = decision.run.status
    after = {
        "revision": row["revision"] + 1,
        "last_event": row["last_event"] + len(decision.events),
        "turn": decision.run.turn,
        "state": run_to_json(decision.run),
        "usage": dict(usage),
        "error": decision.error or row["error"],
    }
    was = {} if is_taken else {"was_budgeted": row["budgeted"]}
    tx.write(
        SAVE if is_taken else SAVE_AS_LEFT,
        IS_SAVED if is_taken else IS_AS_LEFT,
        of_run=row["id"],
        old_revision=row["revision"],
        new_status=status.value,
        new_last_event=after["last_event"],
        new_turn=after["turn"],
        new_state=after["state"],
        new_usage=after["usage"],
        new_error=after["error"],
        is_over=status.is_over,
        is_waiting=status is RunStatus.WAITING,
        form_expiry=min((own or form_expiry for own in decision.expiries), default=form_expiry),
        **was,
    )
    return after


def _move(
    tx: Transaction, run_id: UUID, revision: int, decision: Decision, answers: Any, owns: Sequence[InlineReport]
) -> list[TaskMessage]:
    """Move activations that were folded; hints for those that are ready again."""
    fresh = {new.id for new in decision.activated} | {own.claim.id for own in owns}
    moved = {activation: status for activation, status in decision.moved.items() if activation not in fresh}
    ids = sorted(moved)
    if ids:
        statuses = [moved[activation].value for activation in ids]
        tx.later(MOVE, run_id=run_id, revision=revision, ids=ids, statuses=statuses)
    again: list[Any] = []
    if decision.retried:
        again += tx.rows(RETRY, run_id=run_id, ids=decision.retried)
    if decision.postponed:
        waits = decision.postponed
        tx.later(POSTPONE, run_id=run_id, ids=sorted(waits), seconds=[waits[found] for found in sorted(waits)])
    if answers is not None:
        retried = {*decision.retried, *decision.postponed}
        answered = [found for found, status in moved.items() if status is Status.READY and found not in retried]
        again += tx.rows(ANSWER, run_id=run_id, ids=answered, answers=answers)
    return [TaskMessage(run_id, row.id, row.component) for row in again]


def _put_turns(tx: Transaction, run_id: UUID, before: int, decision: Decision) -> None:
    for turn, offset in decision.taken_back.items():
        opened_now = turn in decision.opened
        tx.later(message_streams.TAKE_BACK, run_id=run_id, turn=turn, number=None if opened_now else before + offset)
    for turn, (node_id, said) in decision.texts.items():  # after taking back: it replaces what was said
        tx.later(message_streams.PUT_TEXT, run_id=run_id, turn=turn, node_id=node_id, said=said)
    for turn, offset in decision.opened.items():
        node_id = next((e.node_id for e in decision.events if e.activation == turn and e.node_id), "")
        tx.later(message_streams.OPEN, run_id=run_id, turn=turn, node_id=node_id, number=before + offset)
    for turn, offset in decision.closed.items():
        tx.later(message_streams.CLOSE, run_id=run_id, turn=turn, number=before + offset)
