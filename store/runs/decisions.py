"""Writes a decision under the run's lock: activations, scopes, message streams, events and the run's row.

No statement waits for its result before the commit, so the server itself checks that the rows are as the decision saw
them (`store/db/guards.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, literal_column, select, text, update

from canvas.ids import ActivationId, RunId
from canvas.routing.decision import Decision
from canvas.state.checkpoint import run_to_json
from canvas.state.run_state import ActivationStatus, RunStatus
from store.db.guards import RowGuard, expect_rows, failed_guard
from store.db.transaction import Transaction
from store.primitives.json_codec import decode, encode
from store.runs import attempts, events, message_streams, reports, scopes, values
from store.runs.new_activations import (
    DUE_AT_ONCE,
    InlineReport,
    PendingClaim,
    PendingTaskMessages,
    TaskMessage,
    activate,
)
from store.runs.prepared_claims import CachedRun, may_travel
from store.runs.run_rows import RunRow
from store.tables.runs import activations, runs

MAX_CACHED_SCOPES = 8  # open scopes; of a run with more, the next advance reads the ones it needs

MOVE = text(f"""
    with moved as (
        update activations a set status = m.status, applied_rev = :revision
        from unnest(cast(:ids as uuid[]), cast(:statuses as text[])) as m(id, status)
        where a.run_id = :run_id and a.id = m.id and a.status in ('reported', 'saying', 'open', 'waiting')
        returning 1
    )
    select {expect_rows(RowGuard.ACTIVATIONS_UNCHANGED, "cardinality(cast(:ids as uuid[]))")} from moved
""")  # noqa: S608 (constants only)
RETRY = text(f"""
    update activations set status = 'ready', lease_id = null, lease_until = null, outcome = null,
        not_before = {DUE_AT_ONCE}, enqueued_at = now()
    where run_id = :run_id and id = any(cast(:ids as uuid[])) and status = 'ready'
    returning id, component, node_id
""")  # noqa: S608 (constants only)
POSTPONE = text("""
    update activations a set lease_id = null, lease_until = null, enqueued_at = null,
        not_before = now() + make_interval(secs => m.seconds)
    from unnest(cast(:ids as uuid[]), cast(:seconds as float8[])) as m(id, seconds)
    where a.run_id = :run_id and a.id = m.id and a.status = 'ready'
""")  # the outcome stays, because it tells people the reason; the sweeper sends the task message when it is due
ANSWER = text(f"""
    update activations set answers = :answers, lease_id = null, lease_until = null, not_before = {DUE_AT_ONCE},
        enqueued_at = now()
    where run_id = :run_id and id = any(cast(:ids as uuid[])) and status = 'ready'
    returning id, component, node_id
""").bindparams(  # noqa: S608
    bindparam("answers", type_=activations.c.answers.type)
)
CANCEL_ITEMS = text("""
    update activations a
    set cancel_requested = true, status = 'reported', finished_at = now(),
        outcome = json_build_object('is', 'Failed', 'error', 'An earlier item has failed.', 'code', 'cancelled',
            'used', json_build_object())
    from (
        select id from activations
        where run_id = :run_id and status = 'running' and case when starts_with(scope, :entry || '.')
          then split_part(substr(scope, length(:entry) + 2), '/', 1)::int > :item end
        order by id for no key update
    ) working
    where a.run_id = :run_id and a.id = working.id and a.status = 'running'
""")
_unchanged_run = (
    select(runs.c.id)
    .where(
        runs.c.id == bindparam("of_run"),
        runs.c.revision == bindparam("old_revision"),
        runs.c.budgeted == bindparam("was_budgeted"),  # a budget is set without an advance
    )
    .with_for_update(key_share=True, skip_locked=True)
    .subquery("at")
)
_save_run = (
    update(runs)
    .values(
        status=bindparam("new_status"),
        revision=bindparam("old_revision") + 1,
        last_event=bindparam("new_last_event"),
        open_stream=bindparam("new_open_stream"),
        state=bindparam("new_state"),
        usage=bindparam("new_usage"),
        error=bindparam("new_error"),
        finished_at=text("case when :is_over then now() else finished_at end"),
        expires_at=text("case when :is_waiting then now() + :form_expiry else null end"),
    )
    .returning(literal_column("1"))
)
SAVE_RUN = _save_run.where(runs.c.id == bindparam("of_run"), runs.c.revision == bindparam("old_revision"))
EXPECT_UNCHANGED = expect_rows(RowGuard.RUN_UNCHANGED)
SAVE_CACHED_RUN = _save_run.where(runs.c.id == bindparam("of_run"), runs.c.id == _unchanged_run.c.id)
"""Also locks the run, unless another transaction has it locked."""
EXPECT_FRESH_CACHE = expect_rows(RowGuard.CACHE_FRESH)


@dataclass(frozen=True, slots=True)
class AppliedDecision:
    """What a decision has written. After the commit it is published, and its continuations are executed."""

    run_id: RunId
    status: RunStatus
    events: range  # numbers of the events written
    task_messages: Sequence[TaskMessage]
    promoted: PendingTaskMessages | None  # further task messages
    claims: Mapping[
        ActivationId, PendingClaim
    ]  # continuations, by the id of the activation that their thread has reported
    cached_run: CachedRun | None  # for the next advance, if the run has one continuation and nothing else to execute
    is_alone: bool  # whether what it made ready is all that is ready or running, so that no other report can arrive
    rewrites_outputs: bool  # whether outputs were written beside those of the reports


@dataclass(frozen=True, slots=True)
class DecisionInput:
    """What a decision is written with, beside the decision itself."""

    usage: Mapping[str, int]  # of the run so far, these reports included
    inline: Sequence[InlineReport] = ()  # reports that are stored with the decision
    answers: Any = None  # of a person, to open forms
    is_locked: bool = True  # False: the row is a cached one, and writing it locks the run
    parent: ActivationId | None = None  # the activation whose report led to the decision; of several the first
    has_all_scopes: bool = False  # whether the decision was made with all open scopes, not only with those it names


def apply(
    tx: Transaction, row: RunRow, decision: Decision, decision_input: DecisionInput, form_expiry: timedelta
) -> AppliedDecision:
    """Write a decision under the run's lock. Waits for nothing.

    If a row is not as the decision saw it, the server refuses the statement and the commit. For a cached row it also
    refuses if another transaction has the run locked (`is_stale_cache`).
    """
    revision = row.revision + 1
    saved = _save(tx, row, decision, decision_input, form_expiry)
    for report in decision_input.inline:
        reports.report_inline(tx, report.claim, report.payload, decision.new_statuses[report.claim.id].value, revision)
    reports.write_calls(tx, row.id, (report.payload for report in decision_input.inline))
    again = _move(tx, row.id, revision, decision, decision_input)
    activated = activate(tx, row, revision, decision, decision_input.inline, decision_input.parent)
    _write_values(tx, row.id, decision)
    for entry, item in decision.cancel_items_after.items():
        tx.send(CANCEL_ITEMS, run_id=row.id, entry=entry, item=item)
    if decision.run.status.is_over and decision.run.status is not RunStatus.SUCCEEDED:
        scopes.discard_deferred(tx, row.id)
    scopes.save_changes(tx, row.id, decision)
    _write_streams(tx, row.id, row.last_event, decision)
    events.append(tx, row.id, row.last_event + 1, decision.events)
    is_single = (
        row.source_run is None and len(activated.claims) + len(activated.task_messages) == 1 == decision.run.in_flight
    )
    cached_run = _cached_run(saved, decision, decision_input) if is_single else None
    task_messages = activated.task_messages
    if task_messages and cached_run is not None and may_travel(decision.run):
        task_messages = [each.with_run(cached_run) for each in task_messages]
    return AppliedDecision(
        run_id=row.id,
        status=decision.run.status,
        events=range(row.last_event + 1, saved.last_event + 1),
        task_messages=[*again, *task_messages],
        promoted=activated.promoted,
        claims=activated.claims,
        cached_run=cached_run if activated.claims else None,
        is_alone=is_single and not decision.promote_count,
        rewrites_outputs=bool(decision.copy_outputs_for or decision.errors),
    )


def is_stale_cache(error: BaseException) -> bool:
    """Whether a cached run was refused: it had changed, or another transaction had it locked."""
    return failed_guard(error) is RowGuard.CACHE_FRESH


def _save(
    tx: Transaction, row: RunRow, decision: Decision, decision_input: DecisionInput, form_expiry: timedelta
) -> RunRow:
    """Write the run's row and return it. It comes first: if it is refused, nothing else is tried."""
    status = decision.run.status
    saved = row._replace(
        status=status,
        revision=row.revision + 1,
        last_event=row.last_event + len(decision.events),
        open_stream=decision.run.open_stream_id,
        state=run_to_json(decision.run),
        usage=dict(decision_input.usage),
        error=decision.error or row.error,
    )
    cached = {} if decision_input.is_locked else {"was_budgeted": row.budgeted}
    tx.write(
        SAVE_RUN if decision_input.is_locked else SAVE_CACHED_RUN,
        EXPECT_UNCHANGED if decision_input.is_locked else EXPECT_FRESH_CACHE,
        of_run=row.id,
        old_revision=row.revision,
        new_status=status.value,
        new_last_event=saved.last_event,
        new_open_stream=saved.open_stream,
        new_state=saved.state,
        new_usage=saved.usage,
        new_error=saved.error,
        is_over=status.is_over,
        is_waiting=status is RunStatus.WAITING,
        form_expiry=min((own or form_expiry for own in decision.form_expiries), default=form_expiry),
        **cached,
    )
    return saved


def _cached_run(saved: RunRow, decision: Decision, decision_input: DecisionInput) -> CachedRun | None:
    if len(decision.run.scopes) > MAX_CACHED_SCOPES:
        return None
    state = decode(encode(saved.state))  # as it would be read, and shared with nothing
    known = scopes.scopes_after(decision)
    return CachedRun(saved._replace(state=state), replace(known, keys=None) if decision_input.has_all_scopes else known)


def _move(
    tx: Transaction, run_id: RunId, revision: int, decision: Decision, decision_input: DecisionInput
) -> list[TaskMessage]:
    """Write the new statuses of activations; return task messages for those that are ready again."""
    written = {new.id for new in decision.activated} | {report.claim.id for report in decision_input.inline}
    moved = {activation: status for activation, status in decision.new_statuses.items() if activation not in written}
    ids = sorted(moved)
    if ids:
        statuses = [moved[activation].value for activation in ids]
        tx.send(MOVE, run_id=run_id, revision=revision, ids=ids, statuses=statuses)
    again: list[Any] = []
    if decision.retry_now:
        attempts.keep(tx, run_id, dict.fromkeys(decision.retry_now, 0.0))
        again += tx.rows(RETRY, run_id=run_id, ids=decision.retry_now)
    if decision.retry_after:
        delays = decision.retry_after
        attempts.keep(tx, run_id, delays)
        tx.send(POSTPONE, run_id=run_id, ids=sorted(delays), seconds=[delays[each] for each in sorted(delays)])
    if decision_input.answers is not None:
        retried = {*decision.retry_now, *decision.retry_after}
        answered = [each for each, status in moved.items() if status is ActivationStatus.READY and each not in retried]
        attempts.keep(tx, run_id, dict.fromkeys(answered, 0.0))
        again += tx.rows(ANSWER, run_id=run_id, ids=answered, answers=decision_input.answers)
    return [TaskMessage(run_id, row.id, row.component, row.node_id) for row in again]


def _write_values(tx: Transaction, run_id: RunId, decision: Decision) -> None:
    """Write outputs that no report has: those of an earlier iteration beside a failure, and errors."""
    for failed in decision.copy_outputs_for:
        values.copy_previous_outputs(tx, run_id, failed)
    for activation, (node_id, error) in decision.errors.items():
        values.put_error(tx, run_id, activation, node_id, error)


def _write_streams(tx: Transaction, run_id: RunId, before: int, decision: Decision) -> None:
    """Truncate, fill, open and close message streams. `before`: number of the last event before the decision's own."""
    for stream_id, offset in decision.truncated_streams.items():
        opened_now = stream_id in decision.opened_streams
        tx.send(
            message_streams.TRUNCATE, run_id=run_id, stream_id=stream_id, number=None if opened_now else before + offset
        )
    # after truncating: it replaces the text
    for stream_id, (node_id, text_of_stream) in decision.default_texts.items():
        tx.send(message_streams.PUT_TEXT, run_id=run_id, stream_id=stream_id, node_id=node_id, content=text_of_stream)
    for stream_id, offset in decision.opened_streams.items():
        node_id = next((e.node_id for e in decision.events if e.activation == stream_id and e.node_id), "")
        tx.send(message_streams.OPEN, run_id=run_id, stream_id=stream_id, node_id=node_id, number=before + offset)
    for stream_id, offset in decision.closed_streams.items():
        tx.send(message_streams.CLOSE, run_id=run_id, stream_id=stream_id, number=before + offset)
