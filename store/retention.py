"""What goes with old runs, and what stays (docs/operations.md, "Retention").

A conversation goes when nobody has spoken in it for the time that runs are kept. One that goes on keeps what was said:
before a week is dropped the answers of its runs move into the messages that showed them. A file that a run has made
goes when both its run and the conversation it was shown in are gone. Each function takes a bounded batch, for a
transaction of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import text

from canvas.errors import ValueGone
from store.blobs import Blobs
from store.encoding import encode
from store.transaction import Transaction

log = structlog.get_logger()

BATCH = 500
FAR_AHEAD = timedelta(weeks=2)  # no id of a run that is accepted today tells such a time

RUNS = text("select id, conversation_id from runs where id >= :first and id < :end order by id limit :most")
STRAY_RUNS = text("""
    select id, conversation_id, created_at from runs_default
    where created_at < :before and (created_at, id) > (:after, :id) order by created_at, id limit :most
""")
IDLE = text("""
    select id from conversations c
    where id = any(cast(:ids as uuid[])) and updated_at < :before and active_run is null
      and not exists (
        select from runs r where r.conversation_id = c.id and r.status in ('queued', 'running', 'waiting', 'stopping')
      )
    order by id for update skip locked
""")
UNUSED = text("""
    select id from conversations where last_run is null and active_run is null and created_at < :before
      and updated_at < :before
    order by created_at limit :most for update skip locked
""")
FORGET = text("delete from conversations where id = any(cast(:ids as uuid[]))")
KEEP_ANSWERS = text("""
    update conversation_messages m set content = v.outputs, activation_id = null, node_id = null
    from node_values v
    where m.conversation_id = any(cast(:conversations as uuid[])) and m.run_id = any(cast(:ids as uuid[]))
      and m.content is null and v.run_id = any(cast(:ids as uuid[]))
      and v.run_id = m.run_id and v.activation_id = m.activation_id and v.node_id = m.node_id
""")
LARGE_ANSWERS = text("""
    select m.conversation_id, m.number, v.node_id, v.outputs, v.large
    from conversation_messages m
    join node_values v on v.run_id = m.run_id and v.activation_id = m.activation_id and v.node_id = m.node_id
    where m.conversation_id = any(cast(:conversations as uuid[])) and m.run_id = any(cast(:ids as uuid[]))
      and m.content is null and v.run_id = any(cast(:ids as uuid[])) and v.large is not null
""")
KEEP_ANSWER = text("""
    update conversation_messages set content = cast(:content as json), activation_id = null, node_id = null
    where conversation_id = :conversation_id and number = :number
""")
TENANTS = text("select id from tenants")
HAS_RUNS = text("select exists (select from runs where id >= :first and id < :end)")
GO_ON = text("""
    select exists (
        select from conversations
        where id = any(cast(:conversations as uuid[])) and last_run = any(cast(:ids as uuid[]))
    )
""")
FILES_LEFT = text("""
    select f.id, f.run_id, f.sha256,
      exists (select from runs r where r.id = f.run_id)
      or exists (select from conversation_messages m where m.run_id = f.run_id)
    from files f
    where f.run_id is not null and f.run_id < :end and (f.run_id, f.id) > (:last_run, :last_file)
      and f.created_at < :made_before
    order by f.run_id, f.id limit :most
""")
DELETE_FILES = text("delete from files where id = any(cast(:ids as uuid[])) returning sha256")
STILL_NAMED = text("select distinct sha256 from files where sha256 = any(cast(:hashes as bytea[]))")


@dataclass(frozen=True, slots=True)
class Parted:
    """What became of a batch: where the next one begins (None: there are no more), and whether all its runs can go."""

    next: UUID | None
    can_go: bool


def part(tx: Transaction, first: UUID, end: UUID, before: datetime) -> Parted:
    """Part up to 500 runs of a range from their conversations.

    Conversations that nobody has touched since `before` are deleted, others take their answers over. A run cannot go
    while its conversation would begin its next turn from what it left.
    """
    found = tx.rows(RUNS, first=first, end=end, most=BATCH)
    if not found:
        return Parted(None, True)
    can_go = _part(tx, [(run_id, conversation_id) for run_id, conversation_id in found], before)
    return Parted(UUID(int=found[-1][0].int + 1) if len(found) == BATCH else None, can_go)


def part_strays(tx: Transaction, after: tuple[datetime, UUID], before: datetime) -> tuple[datetime, UUID] | None:
    """The same for up to 500 runs that no week covers and that were accepted before `before`: where the next begin.

    None: there are no more. Their ids tell no time, so they come in the order of acceptance.
    """
    found = tx.rows(STRAY_RUNS, after=after[0], id=after[1], before=before, most=BATCH)
    if found:
        _part(tx, [(run_id, conversation_id) for run_id, conversation_id, _ in found], before)
    return (found[-1][2], found[-1][0]) if len(found) == BATCH else None


def _part(tx: Transaction, found: Sequence[tuple[UUID, UUID]], before: datetime) -> bool:
    """Part runs from their conversations; whether all of these runs can go."""
    ids = [run_id for run_id, _ in found]
    conversations = sorted({conversation_id for _, conversation_id in found})
    idle = [conversation_id for (conversation_id,) in tx.rows(IDLE, ids=conversations, before=before)]
    if idle:
        tx.run(FORGET, ids=idle)
    _keep_large_answers(tx, conversations, ids)
    tx.run(KEEP_ANSWERS, conversations=conversations, ids=ids)
    return not tx.scalar(GO_ON, conversations=conversations, ids=ids)


def _keep_large_answers(tx: Transaction, conversations: Sequence[UUID], ids: Sequence[UUID]) -> None:
    """Move answers that lie in files into their messages, whole: the files go with the week.

    Raises OSError if the storage is out of reach. What is gone from it for good goes from the answer.
    """
    for conversation_id, number, node_id, outputs, large in tx.rows(
        LARGE_ANSWERS, conversations=conversations, ids=ids
    ):
        if not tx.large.is_within_reach():
            raise OSError("The file storage is out of reach. Give the sweeper EASEL_FILES_DIR or EASEL_FILES_URL.")
        try:
            content = tx.large.outputs(node_id, outputs, large)
        except ValueGone as error:
            log.error("value_gone", error=error.message)
            content = outputs
        tx.run(KEEP_ANSWER, content=encode(content), conversation_id=conversation_id, number=number)


def clear_values(tx: Transaction, before: datetime, now: datetime) -> int:
    """Delete the large values of weeks that ended by `before` and of which no run is left; how many files.

    Weeks that are far ahead of now as well: runs of earlier releases may have ids that tell such a time.

    Also those that no row has ever named, since their worker died between the file and the row. What belongs to
    tenants that this database does not know stays: another one's files may lie in the same storage.
    """
    ahead = now + FAR_AHEAD
    ended = [week for week in tx.large.weeks() if week.ends <= before or week.begins > ahead]
    gone = [week for week in ended if not tx.scalar(HAS_RUNS, first=week.first, end=week.end)]
    ours = {tenant_id.hex for (tenant_id,) in tx.rows(TENANTS)} if gone else set[str]()
    return sum(tx.large.clear(week, tenant) for week in gone for tenant in tx.large.tenants(week) if tenant in ours)


def forget_unused(tx: Transaction, before: datetime) -> int:
    """Delete up to 500 conversations in which nobody has ever spoken; how many."""
    unused = [conversation_id for (conversation_id,) in tx.rows(UNUSED, before=before, most=BATCH)]
    return tx.run(FORGET, ids=unused) if unused else 0


def delete_files(
    tx: Transaction, blobs: Blobs, after: tuple[UUID, UUID], end: UUID, made_before: datetime
) -> tuple[tuple[UUID, UUID] | None, int]:
    """Look at 500 files of runs below `end` and delete those nobody can ask for: the last one seen, and how many.

    None: there are no more. Files that were made later than `made_before` stay.

    Their bytes go before the commit: a crash in between leaves a row for the next time, not bytes without a name.
    """
    found = tx.rows(FILES_LEFT, end=end, last_run=after[0], last_file=after[1], made_before=made_before, most=BATCH)
    if not found:
        return None, 0
    gone = [file_id for file_id, _, _, is_needed in found if not is_needed]
    hashes = _deleted(tx, gone)
    for sha256 in hashes:
        blobs.discard(sha256)
    return (found[-1][1], found[-1][0]), len(gone)


def _deleted(tx: Transaction, file_ids: Sequence[UUID]) -> list[bytes]:
    """Delete files; the hashes that no other file has."""
    if not file_ids:
        return []
    hashes = {bytes(sha256) for (sha256,) in tx.rows(DELETE_FILES, ids=file_ids)}
    named = {bytes(sha256) for (sha256,) in tx.rows(STILL_NAMED, hashes=sorted(hashes))}
    return sorted(hashes - named)
