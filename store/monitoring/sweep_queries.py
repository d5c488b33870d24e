"""The sweeper's queries: rows that wait for a process that is gone or a message that is lost.

Each statement reads a partial index.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from sqlalchemy import Interval, bindparam, text

from canvas.ids import RunId, SessionId, TenantId
from canvas.outcome import LOST, UNKNOWN_OUTCOME, UNKNOWN_TEXT
from store.db.transaction import Transaction
from store.runs.new_activations import TaskMessage

BATCH = 500
MAX_LEASE_AHEAD = timedelta(minutes=15)  # the settings of all processes limit leases to 10 minutes

TRY_SWEEP = text("select pg_try_advisory_xact_lock(hashtextextended('easel:sweeper', 0)), now()")

EXPIRE_LEASES = text(f"""
    update activations a
    set status = 'reported', crash_count = crash_count + 1, finished_at = now(),
        outcome = case when effect = 'unsafe'
          then json_build_object('is', 'Failed', 'error', '{UNKNOWN_TEXT}', 'code', '{UNKNOWN_OUTCOME}',
            'used', json_build_object())
          else json_build_object('is', 'Failed', 'error', 'The worker was lost.', 'code', '{LOST}', 'retryable', true,
            'used', json_build_object())
        end
    from (
        select run_id, id from activations
        where status = 'running' and (lease_until < now() or lease_until > now() + :longest)
        order by run_id, id limit :most for no key update skip locked
    ) silent
    where a.run_id = silent.run_id and a.id = silent.id and a.status = 'running'
    returning a.run_id, a.id
""").bindparams(bindparam("longest", type_=Interval))  # noqa: S608 (constants only)
"""A lease further ahead than `longest` cannot be right: the clock was ahead when its worker last renewed it."""

REDISPATCH_UNCLAIMED = text("""
    update activations a set enqueued_at = now()
    from (
        select run_id, id from activations
        where status = 'ready' and not_before <= now()
          and (enqueued_at is null or enqueued_at < :sent_before or enqueued_at > now() + interval '15 s')
        order by enqueued_at nulls first limit :most for no key update skip locked
    ) waiting
    where a.run_id = waiting.run_id and a.id = waiting.id
    returning a.run_id, a.id, a.component, a.node_id
""")
"""A message time in the future (by more than a transaction takes) was written while the clock was ahead: send again."""

UNAPPLIED = text("select distinct run_id from activations where status = 'reported' limit :most")

STUCK_QUEUED = text("""
    select r.id from runs r left join conversations c on c.id = r.conversation_id
    where r.status = 'queued' and (c.active_run is null or c.active_run = r.id) order by r.created_at limit :most
""")
INTERRUPTED = text("""
    select earlier.id from runs r join runs earlier on earlier.conversation_id = r.conversation_id
    where r.status in ('queued', 'running', 'waiting', 'stopping')
        and r.request -> 'options' ->> 'on_busy' = 'interrupt'
        and earlier.status in ('queued', 'running', 'waiting', 'stopping') and not earlier.cancel_requested
        and earlier.created_at < r.created_at
    order by earlier.created_at desc limit :most
""")
EXPIRED_FORMS = text("select id, tenant_id from runs where status = 'waiting' and expires_at < now() limit :most")
STOPPING = text("select id from runs where status = 'stopping' limit :most")
STALLED = text("""
    select id from runs r
    where status in ('running', 'stopping')
        and not exists (select from activations a where a.run_id = r.id and a.status = 'running')
        and not exists (select from activations a where a.run_id = r.id and a.status = 'ready')
        and not exists (select from activations a where a.run_id = r.id and a.status = 'reported')
        and not exists (select from activations a where a.run_id = r.id and a.status = 'queued')
    order by id limit :most
""")  # a separate subquery for each status, so that each reads its partial index
OPEN = text("""
    select r.id, r.conversation_id, r.external_id,
      array(select x.key from external_ids x where x.run_id = r.id) as keys
    from runs r where r.status in ('queued', 'running', 'waiting', 'stopping') limit :most
""")


def try_sweep(tx: Transaction) -> tuple[bool, datetime]:
    """Return whether this sweeper may do this tick (False: another sweeper works), and the database's time."""
    row = tx.rows(TRY_SWEEP)[0]
    return row[0], row[1]


def expire_leases(tx: Transaction, most: int = BATCH, longest: timedelta = MAX_LEASE_AHEAD) -> list[RunId]:
    """Report lost workers on their behalf; return the runs concerned.

    `longest`: longer than any worker's lease may last.
    """
    return list(dict.fromkeys(row[0] for row in tx.rows(EXPIRE_LEASES, most=most, longest=longest)))


def redispatch_unclaimed(tx: Transaction, sent_before: datetime, most: int = BATCH) -> Sequence[TaskMessage]:
    """Return the ready activations whose task message is lost or was never sent, and mark them as sent now."""
    return [TaskMessage(*row) for row in tx.rows(REDISPATCH_UNCLAIMED, sent_before=sent_before, most=most)]


def runs_with_unapplied_reports(tx: Transaction, most: int = BATCH) -> set[RunId]:
    """Return the runs that have a report that no advance has applied."""
    return {row[0] for row in tx.rows(UNAPPLIED, most=most)}


def stuck_runs(tx: Transaction, most: int = BATCH) -> list[RunId]:
    """Return queued runs whose conversation is free or deleted, and stopping runs; an advance continues them."""
    return [row[0] for row in (*tx.rows(STUCK_QUEUED, most=most), *tx.rows(STOPPING, most=most))]


def runs_to_interrupt(tx: Transaction, most: int = BATCH) -> list[RunId]:
    """Return runs that are still to be cancelled, in this order, because a later run interrupts them.

    The process that accepted the later run died before it cancelled them.
    """
    return [row[0] for row in tx.rows(INTERRUPTED, most=most)]


def expired_forms(tx: Transaction, most: int = BATCH) -> list[tuple[RunId, TenantId]]:
    """Return the runs whose forms were not answered in time, as (run, tenant)."""
    return [(row[0], row[1]) for row in tx.rows(EXPIRED_FORMS, most=most)]


def stalled_runs(tx: Transaction, most: int = BATCH) -> list[RunId]:
    """Return runs that claim to go on although nothing in them moves or can be moved by a message: a bug.

    One statement, and so one snapshot, in which a run's row and its activations belong together.
    """
    return [row[0] for row in tx.rows(STALLED, most=most)]


def open_runs(tx: Transaction, most: int = 10_000) -> dict[RunId, tuple[SessionId, Collection[str]]]:
    """Return the open runs with their conversations and the external ids that started them or answered their forms."""
    return {
        run_id: (conversation_id, {*keys, external_id} if external_id is not None else keys)
        for run_id, conversation_id, external_id, keys in tx.rows(OPEN, most=most)
    }
