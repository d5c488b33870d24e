"""What is deleted with old runs, and what is kept (docs/operations.md, "Retention").

A conversation is deleted when nothing was said in it for the time that runs are kept. A conversation that goes on keeps
its messages: before a week is dropped, the answers of its runs are copied into the messages that showed them. A file
that a run produced is deleted when both the run and the conversation that showed the file are deleted. Each function
processes a bounded batch, for a transaction of its own.

The file storage is not used inside a transaction, because a slow bucket could take longer than a transaction may be
idle. Content is deleted before the rows that name it, so that a crash leaves a row for the next time, and no content
without a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import text

from canvas.errors import ValueGone
from canvas.ids import RunId, SessionId
from store.db.database import Database
from store.db.transaction import Transaction
from store.primitives.json_codec import encode

log = structlog.get_logger()

BATCH = 500
FAR_AHEAD = timedelta(weeks=2)  # ids of runs that are accepted today contain no such time

RUNS = text("select id, conversation_id from runs where id >= :first and id < :end order by id limit :most")
STRAY_RUNS = text("""
    select id, conversation_id, created_at from runs_default
    where created_at < :before and (created_at, id) > (:after, :id) order by created_at, id limit :most
""")
IDLE_CONVERSATIONS = text("""
    select id from conversations c
    where id = any(cast(:ids as uuid[])) and updated_at < :before and active_run is null
      and not exists (
        select from runs r where r.conversation_id = c.id and r.status in ('queued', 'running', 'waiting', 'stopping')
      )
    order by id for update skip locked
""")
UNUSED_CONVERSATIONS = text("""
    select id from conversations where last_run is null and active_run is null and created_at < :before
      and updated_at < :before
    order by created_at limit :most for update skip locked
""")
DELETE_CONVERSATIONS = text("delete from conversations where id = any(cast(:ids as uuid[]))")
COPY_ANSWERS = text("""
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
COPY_ANSWER = text("""
    update conversation_messages set content = cast(:content as json), activation_id = null, node_id = null
    where conversation_id = :conversation_id and number = :number and content is null
""")
TENANTS = text("select id from tenants")
HAS_RUNS = text("select exists (select from runs where id >= :first and id < :end)")
ARE_CONTINUED = text("""
    select exists (
        select from conversations
        where id = any(cast(:conversations as uuid[])) and last_run = any(cast(:ids as uuid[]))
    )
""")
HAS_OPEN_COPIES = text("""
    select exists (
        select from runs where source_run = any(cast(:sources as uuid[]))
          and status in ('queued', 'running', 'waiting', 'stopping')
    )
""")
IS_KEPT_BY_COPY = text("""
    select exists (
        select from runs where source_run is not null and origin::jsonb -> 'weeks' ? :week
    )
""")
FILES_OF_RUNS = text("""
    select f.id, f.run_id, f.sha256,
      exists (select from runs r where r.id = f.run_id)
      or exists (select from conversation_messages m where m.run_id = f.run_id)
      or exists (select from runs r where r.source_run = f.run_id)
    from files f
    where f.run_id is not null and f.run_id < :end and (f.run_id, f.id) > (:last_run, :last_file)
      and f.created_at < :made_before
    order by f.run_id, f.id limit :most
""")
SHARED_CONTENTS = text("""
    select distinct sha256 from files where sha256 = any(cast(:hashes as bytea[])) and id <> all(cast(:ids as uuid[]))
""")
DELETE_FILES = text("delete from files where id = any(cast(:ids as uuid[]))")
DELETE_SHARED_FILES = text("""
    delete from files f where f.id = any(cast(:ids as uuid[]))
      and exists (select from files o where o.sha256 = f.sha256 and o.id <> all(cast(:ids as uuid[])))
""")


@dataclass(frozen=True, slots=True)
class DetachedBatch:
    """The result of a batch: where the next one begins (None: nowhere), and whether all its runs can be deleted."""

    next: UUID | None
    can_be_deleted: bool


class LargeAnswersPending(Exception):
    """Conversations that go on show answers that are in the file storage: call `copy_large_answers` first."""

    def __init__(self, conversations: Sequence[SessionId], run_ids: Sequence[RunId]) -> None:
        super().__init__(f"{len(conversations)} conversations show large answers of {len(run_ids)} runs.")
        self.conversations = conversations
        self.run_ids = run_ids


@dataclass(frozen=True, slots=True)
class UnneededFiles:
    """Files of a batch that cannot be requested any more.

    `last`: the last (run, file) looked at; None: there are no more. `contents`: the files' ids by the hash of their
    content. `shared`: the hashes that other files have as well.
    """

    last: tuple[UUID, UUID] | None
    contents: Mapping[bytes, Sequence[UUID]]
    shared: frozenset[bytes]

    @property
    def deletable_contents(self) -> Sequence[bytes]:
        """Return the hashes whose content may be deleted."""
        return sorted(self.contents.keys() - self.shared)


def detach_runs(tx: Transaction, first: UUID, end: UUID, before: datetime) -> DetachedBatch:
    """Detach up to 500 runs of a range from their conversations.

    Conversations that were not used since `before` are deleted; others get copies of their answers. A run cannot be
    deleted while its conversation would begin its next turn from the run's state, or a fork of it is not over. Raises
    LargeAnswersPending.
    """
    batch = tx.rows(RUNS, first=first, end=end, most=BATCH)
    if not batch:
        return DetachedBatch(None, True)
    can_go = _detach(tx, [(run_id, conversation_id) for run_id, conversation_id in batch], before)
    return DetachedBatch(UUID(int=batch[-1][0].int + 1) if len(batch) == BATCH else None, can_go)


def detach_strays(tx: Transaction, after: tuple[datetime, UUID], before: datetime) -> tuple[datetime, UUID] | None:
    """Detach up to 500 runs that no week covers, accepted before `before`; return where the next batch begins.

    None: there are no more. Their ids contain no useful time, so they are ordered by acceptance. Raises
    LargeAnswersPending.
    """
    batch = tx.rows(STRAY_RUNS, after=after[0], id=after[1], before=before, most=BATCH)
    if batch:
        _detach(tx, [(run_id, conversation_id) for run_id, conversation_id, _ in batch], before)
    return (batch[-1][2], batch[-1][0]) if len(batch) == BATCH else None


def _detach(tx: Transaction, batch: Sequence[tuple[RunId, SessionId]], before: datetime) -> bool:
    """Detach runs from their conversations; return whether all of them can be deleted. Raises LargeAnswersPending."""
    ids = [run_id for run_id, _ in batch]
    conversations = sorted({conversation_id for _, conversation_id in batch})
    idle = [conversation_id for (conversation_id,) in tx.rows(IDLE_CONVERSATIONS, ids=conversations, before=before)]
    if idle:
        tx.execute(DELETE_CONVERSATIONS, ids=idle)
    left = {row.conversation_id for row in tx.rows(LARGE_ANSWERS, conversations=conversations, ids=ids)}
    if left:
        raise LargeAnswersPending(sorted(left), ids)
    tx.execute(COPY_ANSWERS, conversations=conversations, ids=ids)
    if tx.scalar(HAS_OPEN_COPIES, sources=ids):
        return False
    return not tx.scalar(ARE_CONTINUED, conversations=conversations, ids=ids)


def copy_large_answers(database: Database, left: LargeAnswersPending) -> None:
    """Copy answers that are in the file storage into their messages, because the storage is cleared with the week.

    Each one is read outside of a transaction and written by one statement. Raises OSError if the storage cannot be
    reached. A value that is missing in the storage is also missing in the copied answer.
    """
    large = database.large
    if not large.is_reachable():
        raise OSError("The file storage is out of reach. Give the sweeper EASEL_FILES_DIR or EASEL_FILES_URL.")
    with database.statements() as tx:
        answers = tx.rows(LARGE_ANSWERS, conversations=left.conversations, ids=left.run_ids)
    for conversation_id, number, node_id, outputs, aside in answers:
        try:
            content = large.outputs(node_id, outputs, aside)
        except ValueGone as error:
            log.error("value_gone", error=error.message)
            content = outputs
        with database.statements() as tx:
            tx.execute(COPY_ANSWER, content=encode(content), conversation_id=conversation_id, number=number)


def clear_values(tx: Transaction, before: datetime, now: datetime) -> int:
    """Delete the large values of weeks that ended by `before` and have no runs any more; return how many files.

    Also of weeks far in the future, because runs of earlier releases may have ids with such a time. The values of a
    week stay as long as a fork refers to them.

    Files that no row names, since their worker died before it wrote the row, are deleted as well. Files of tenants that
    this database does not know stay: they may belong to another database with the same storage.
    """
    ahead = now + FAR_AHEAD
    ended = [week for week in tx.large.weeks() if week.ends_at <= before or week.begins_at > ahead]
    gone = [
        week
        for week in ended
        if not tx.scalar(HAS_RUNS, first=week.first_id, end=week.end_id)
        and not tx.scalar(IS_KEPT_BY_COPY, week=week.name)
    ]
    ours = {tenant_id.hex for (tenant_id,) in tx.rows(TENANTS)} if gone else set[str]()
    return sum(tx.large.clear(week, tenant) for week in gone for tenant in tx.large.tenants(week) if tenant in ours)


def delete_unused(tx: Transaction, before: datetime) -> int:
    """Delete up to 500 conversations without any message; return how many."""
    unused = [conversation_id for (conversation_id,) in tx.rows(UNUSED_CONVERSATIONS, before=before, most=BATCH)]
    return tx.execute(DELETE_CONVERSATIONS, ids=unused) if unused else 0


def find_unneeded_files(tx: Transaction, after: tuple[UUID, UUID], end: UUID, made_before: datetime) -> UnneededFiles:
    """Look at 500 files of runs below `end`, and return those that cannot be requested any more.

    Files created after `made_before` are needed.
    """
    batch = tx.rows(FILES_OF_RUNS, end=end, last_run=after[0], last_file=after[1], made_before=made_before, most=BATCH)
    contents: dict[bytes, list[UUID]] = {}
    for file_id, _, sha256, is_needed in batch:
        if not is_needed:
            contents.setdefault(bytes(sha256), []).append(file_id)
    others = frozenset[bytes]()
    if contents:
        ids = [file_id for files in contents.values() for file_id in files]
        rows = tx.rows(SHARED_CONTENTS, hashes=sorted(contents), ids=ids)
        others = frozenset(bytes(sha256) for (sha256,) in rows)
    return UnneededFiles((batch[-1][1], batch[-1][0]) if batch else None, contents, others)


def delete_files(tx: Transaction, files: UnneededFiles, discarded: Iterable[bytes]) -> int:
    """Delete the rows of files whose content is deleted or belongs to other files as well; return how many.

    `discarded`: the hashes whose content is deleted. If a shared content lost its last other file meanwhile, the row
    stays for the next time, since it is the only one that names the content now.
    """
    gone = [file_id for sha256 in discarded for file_id in files.contents[sha256]]
    shared = [file_id for sha256 in sorted(files.shared) for file_id in files.contents[sha256]]
    deleted = tx.execute(DELETE_FILES, ids=gone) if gone else 0
    return deleted + (tx.execute(DELETE_SHARED_FILES, ids=shared) if shared else 0)
