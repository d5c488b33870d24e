"""Maintenance: creates partitions for the coming weeks, and deletes what is older than its retention time.

Nothing here is urgent, and all of it may be done twice. Each piece of work is a transaction of its own, so that other
transactions do not wait long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from store.agents import versions
from store.db.database import Database
from store.db.transaction import Transaction
from store.files.blobs import Blobs
from store.maintenance import partitions, retention
from store.maintenance.retention import LargeAnswersPending, UnneededFiles
from store.monitoring import queue_probes
from store.primitives.ids import first_id_at
from store.primitives.weeks import Week
from store.runs import external_ids
from store.tables.runs import PARTITIONED, WITH_OWN_RETENTION
from store.tenants import (
    audit,
    budgets,
    callback_deliveries,
    callbacks,
    idempotency,
    run_shares,
    viewer_sessions,
)

log = structlog.get_logger()
T = TypeVar("T")

MAX_BATCHES = 100  # of expired keys that one maintenance deletes; only above 14 new keys a second they accumulate
NO_ID = UUID(int=0)
LAST_ID = UUID(int=(1 << 128) - 1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEAD_TIME = timedelta(days=2)  # before a week begins; no run of it is started yet


@dataclass(frozen=True, slots=True)
class Retention:
    """How long runs are kept, and the storage of their files (None: this process has no access to it)."""

    period: timedelta
    blobs: Blobs | None = None


def run_exclusive_maintenance(
    database: Database,
    now: datetime,
    policy: Retention | None = None,
    call_period: timedelta | None = None,
    audit_period: timedelta | None = None,
    callback_period: timedelta | None = None,
) -> bool:
    """Run the maintenance; return False if another sweeper is running it."""
    claimed_at = _run_logged(lambda: _in_transaction(database, queue_probes.claim_maintenance), None)
    if claimed_at is None:
        return False
    try:
        run_maintenance(database, now, policy, call_period, audit_period, callback_period)
    finally:
        _run_logged(
            lambda: _in_transaction(database, lambda tx: queue_probes.release_maintenance(tx, claimed_at)), None
        )
    return True


def run_maintenance(
    database: Database,
    now: datetime,
    policy: Retention | None = None,
    call_period: timedelta | None = None,
    audit_period: timedelta | None = None,
    callback_period: timedelta | None = None,
) -> None:
    """Run the maintenance. What fails is logged, and repeated next time.

    Without `policy` runs are never deleted; without `call_period` model calls are deleted with their runs only;
    without `audit_period` the audit log is never deleted.
    without `callback_period` deliveries of callbacks are never deleted.
    """
    made = [
        name
        for table in PARTITIONED
        for name in _run_logged(lambda table=table: _create_partitions(database, now, table), ())
    ]
    forgotten = _run_logged(
        lambda: _in_batches(database, idempotency.delete_expired, idempotency.BATCH, MAX_BATCHES), 0
    )
    signed_out = _delete_over(database)
    if policy is not None:
        before, blobs = now - policy.period, policy.blobs
        _run_logged(
            lambda: _in_batches(database, lambda tx: budgets.delete_old(tx, before), budgets.BATCH, MAX_BATCHES), 0
        )
        _run_logged(lambda: apply_retention(database, before, blobs, now), None)
    if call_period is not None:
        _run_logged(lambda: delete_old_calls(database, now - call_period), None)
    if audit_period is not None:
        _run_logged(lambda: delete_old_audit_log(database, now - audit_period), None)
    if callback_period is not None:
        _run_logged(lambda: delete_old_deliveries(database, now - callback_period), None)
    if made or forgotten or signed_out:
        log.info("maintenance_done", partitions=made, idempotency_keys=forgotten, sign_ins=signed_out)


def _delete_over(database: Database) -> int:
    """Delete sign-ins, one-time codes and shares of runs that are over; return the number of sign-ins."""
    for work, size in (
        (viewer_sessions.delete_old_codes, viewer_sessions.BATCH),
        (run_shares.delete_over, run_shares.BATCH),
    ):
        _run_logged(lambda work=work, size=size: _in_batches(database, work, size, MAX_BATCHES), 0)
    return _run_logged(
        lambda: _in_batches(database, viewer_sessions.delete_over, viewer_sessions.BATCH, MAX_BATCHES), 0
    )


def _run_logged(work: Callable[[], T], otherwise: T) -> T:
    """Do a piece of work and return its result; if it fails, log that and return `otherwise`."""
    try:
        return work()
    except (SQLAlchemyError, OSError) as error:
        log.warning("maintenance_failed", error=str(error).splitlines()[0])
        return otherwise


def _create_partitions(database: Database, now: datetime, table: str) -> Sequence[str]:
    """Create the missing partitions of a table; return their names. One that would block others is only logged."""
    with database.transaction() as tx:
        partitions.drop_exclusion_checks(tx, table)
        lacking = partitions.missing_weeks(tx, table, now)
    made: list[str] = []
    for week in lacking:
        reason = _run_logged(lambda week=week: _create_partition(database, now, table, week), "see maintenance_failed")
        if reason is None:
            made.append(week.partition(table))
        else:
            log.warning("partition_not_created", table=table, week=week.name, reason=reason)
    return made


def _create_partition(database: Database, now: datetime, table: str, week: Week) -> str | None:
    """Create the partition of a week; return None, or the reason if that would block others for more than a moment."""
    with database.transaction() as tx:
        is_small, rows = partitions.is_small(tx, table), partitions.count_rows_to_move(tx, table, week)
    if rows > partitions.MAX_ROWS_TO_MOVE:
        return f"{table}_default has more than {partitions.MAX_ROWS_TO_MOVE} rows of this week"
    if is_small:
        with database.transaction() as tx:
            partitions.create(tx, table, week)
        return None
    if rows:
        return f"{table}_default has rows of this week, and is too large to be scanned while others wait"
    if week.begins_at < now + LEAD_TIME:
        return f"{table}_default is too large to be scanned while others wait; later weeks need no scan"
    try:
        for work in (partitions.add_exclusion_check, partitions.validate_exclusion_check, partitions.attach):
            with database.transaction() as tx:
                work(tx, table, week)
    except SQLAlchemyError:
        with database.transaction() as tx:
            partitions.drop_exclusion_checks(tx, table)
        raise
    return None


def delete_old_calls(database: Database, before: datetime) -> None:
    """Delete model calls older than `before`: those of whole weeks of runs."""
    with database.transaction() as tx:
        weeks = partitions.weeks_of_calls_ended_by(tx, before)
    dropped: list[str] = []
    for week in weeks:
        for table in WITH_OWN_RETENTION:
            with database.transaction() as tx:
                name = partitions.drop_calls(tx, table, week)
            dropped += [name] if name is not None else []
    strays = _in_batches(
        database, lambda tx: partitions.delete_stray_calls(tx, before), partitions.CALL_BATCH, MAX_BATCHES
    )
    if dropped or strays:
        log.info("model_calls_deleted", partitions=dropped, strays=strays)


def delete_old_audit_log(database: Database, before: datetime) -> None:
    """Delete rows of the audit log older than `before`."""
    deleted = _in_batches(database, lambda tx: audit.delete_old(tx, before), audit.BATCH, MAX_BATCHES)
    if deleted:
        log.info("audit_log_deleted", rows=deleted)


def delete_old_deliveries(database: Database, before: datetime) -> None:
    """Delete deliveries of callbacks that ended before, then callbacks of runs that are over and have none left."""
    for work, size in (
        (callback_deliveries.delete_old, callback_deliveries.BATCH),
        (callbacks.delete_of_old_runs, callbacks.BATCH),
    ):
        _in_batches(database, lambda tx, work=work: work(tx, before), size, MAX_BATCHES)


def apply_retention(database: Database, before: datetime, blobs: Blobs | None, now: datetime | None = None) -> None:
    """Delete what is older than `before`: whole weeks of runs, and the data that depends on them."""
    now = now or datetime.now(UTC)
    with database.transaction() as tx:
        weeks = partitions.weeks_ended_by(tx, before)
    dropped = [name for week in weeks for name in _drop(database, week, before)]
    strays = _delete_strays(database, before)
    names = _in_batches(database, lambda tx: external_ids.delete_orphaned(tx, before), external_ids.BATCH)
    unused = _in_batches(database, lambda tx: retention.delete_unused(tx, before), retention.BATCH)
    orphans = _in_batches(database, versions.delete_orphans, versions.BATCH)
    deleted = _delete_files(database, blobs, before, now) if blobs is not None else 0
    with database.statements() as tx:
        cleared = retention.clear_values(tx, before, now)
    if dropped or strays or names or unused or orphans or deleted or cleared:
        gone = {"partitions": dropped, "strays": strays, "external_ids": names, "unused_conversations": unused}
        gone |= {"versions": orphans}
        log.info("retention_applied", **gone, files=deleted, large_values=cleared)


def _drop(database: Database, week: Week, before: datetime) -> list[str]:
    """Drop the partitions of a week, unless one of its runs is still needed; return the names of those dropped."""
    with database.transaction() as tx:
        is_open = partitions.has_open_run(tx, week)
    if is_open or not _detach_week(database, week, before):
        return []
    dropped: list[str] = []
    for table in PARTITIONED:  # runs first
        with database.transaction() as tx:
            name = partitions.drop(tx, table, week)
        if name is not None:
            dropped.append(name)
    return dropped


def _detach_week(database: Database, week: Week, before: datetime) -> bool:
    """Detach the runs of a week from their conversations; return False as soon as one of them is still needed."""
    first: UUID | None = week.first_id
    while first is not None:
        parted = _detach_batch(database, lambda tx, first=first: retention.detach_runs(tx, first, week.end_id, before))
        if not parted.can_be_deleted:
            return False
        first = parted.next
    return True


def _delete_strays(database: Database, before: datetime) -> int:
    """Delete expired runs outside of all weekly partitions, in batches; return the number of runs."""
    after: tuple[datetime, UUID] | None = (EPOCH, NO_ID)
    while after is not None:
        after = _detach_batch(database, lambda tx, after=after: retention.detach_strays(tx, after, before))
    gone = _in_batches(database, lambda tx: partitions.delete_strays(tx, before), partitions.STRAY_BATCH)
    for table in PARTITIONED:
        if table != "runs":
            _in_batches(database, lambda tx, table=table: partitions.delete_orphaned_rows(tx, table, before), 1)
    return gone


def _delete_files(database: Database, blobs: Blobs, before: datetime, now: datetime) -> int:
    """Delete files of deleted runs; return their number. If the storage is unreachable, their rows remain.

    Ids with a time in the future belong to runs of earlier releases and contain no time: for these the creation time of
    the file counts.
    """
    if not blobs.is_reachable():
        log.warning("file_storage_missing")
        return 0
    deleted = 0
    beyond = first_id_at(now + LEAD_TIME)
    for first, end, made_before in ((NO_ID, first_id_at(before), now + LEAD_TIME), (beyond, LAST_ID, before)):
        after: tuple[UUID, UUID] | None = (first, NO_ID)
        while after is not None:
            with database.statements() as tx:
                found = retention.find_unneeded_files(tx, after, end, made_before)
            deleted += _delete_batch(database, blobs, found)
            after = found.last
    return deleted


def _delete_batch(database: Database, blobs: Blobs, found: UnneededFiles) -> int:
    """Delete the bytes of files outside of a transaction, then their rows; return the number of files.

    Bytes that were just stored again remain, with their row, until the next time. If the storage fails, the rows of the
    files deleted so far are deleted before the error is raised.
    """
    discarded: list[bytes] = []
    try:
        for sha256 in found.deletable_contents:
            if blobs.discard(sha256):
                discarded.append(sha256)
    finally:
        with database.transaction() as tx:
            deleted = retention.delete_files(tx, found, discarded)
    return deleted


def _detach_batch(database: Database, part: Callable[[Transaction], T]) -> T:
    """Detach a batch of runs from their conversations; large answers are moved first, outside of the transaction."""
    while True:
        try:
            return _in_transaction(database, part)
        except LargeAnswersPending as left:
            retention.copy_large_answers(database, left)


def _in_transaction(database: Database, work: Callable[[Transaction], T]) -> T:
    with database.transaction() as tx:
        return work(tx)


def _in_batches(database: Database, work: Callable[[Transaction], int], size: int, most: int | None = None) -> int:
    """Repeat work until a batch is not full, each in a transaction of its own; return the total count."""
    done, batches = 0, 0
    while most is None or batches < most:
        with database.transaction() as tx:
            batch = work(tx)
        done, batches = done + batch, batches + 1
        if batch < size:
            break
    return done
