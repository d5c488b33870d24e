"""What goes with old runs, and what stays (docs/operations.md, "Retention").

A conversation goes when nobody has spoken in it for the time that runs are kept. One that goes on keeps what was said:
before a week is dropped the answers of its runs move into the messages that showed them. A file that a run has made
goes when both its run and the conversation it was shown in are gone. Each function takes a bounded batch, for a
transaction of its own.

Nothing here talks to the file storage inside of a transaction: a slow bucket would outlast the time that a transaction
may idle. Bytes go before the rows that name them, so that a crash leaves a row for the next time, and not bytes
without a name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy import text

from canvas.errors import ValueGone
from store.db.database import Database
from store.db.transaction import Transaction
from store.primitives.json_codec import encode

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
    where conversation_id = :conversation_id and number = :number and content is null
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
NAMED_BY_OTHERS = text("""
    select distinct sha256 from files where sha256 = any(cast(:hashes as bytea[])) and id <> all(cast(:ids as uuid[]))
""")
DELETE_FILES = text("delete from files where id = any(cast(:ids as uuid[]))")
DELETE_FILES_OF_OTHERS = text("""
    delete from files f where f.id = any(cast(:ids as uuid[]))
      and exists (select from files o where o.sha256 = f.sha256 and o.id <> all(cast(:ids as uuid[])))
""")


@dataclass(frozen=True, slots=True)
class DetachedBatch:
    """What became of a batch: where the next one begins (None: there are no more), and whether all its runs can go."""

    next: UUID | None
    can_go: bool


class LargeAnswersLeft(Exception):
    """Conversations that go on still show answers of these runs from the file storage: `keep_large_answers` first."""

    def __init__(self, conversations: Sequence[UUID], run_ids: Sequence[UUID]) -> None:
        super().__init__(f"{len(conversations)} conversations show large answers of {len(run_ids)} runs.")
        self.conversations = conversations
        self.run_ids = run_ids


@dataclass(frozen=True, slots=True)
class UnneededFiles:
    """Files of a batch that nobody can ask for. `last`: (run, file) that was seen last; None: there are no more.

    `contents`: their ids by the hash of their bytes. `shared`: the hashes that other files have as well.
    """

    last: tuple[UUID, UUID] | None
    contents: Mapping[bytes, Sequence[UUID]]
    shared: frozenset[bytes]

    @property
    def unnamed(self) -> Sequence[bytes]:
        """The hashes whose bytes may go."""
        return sorted(self.contents.keys() - self.shared)


def detach_runs(tx: Transaction, first: UUID, end: UUID, before: datetime) -> DetachedBatch:
    """Part up to 500 runs of a range from their conversations.

    Conversations that nobody has touched since `before` are deleted, others take their answers over. A run cannot go
    while its conversation would begin its next turn from what it left. Raises LargeAnswersLeft.
    """
    found = tx.rows(RUNS, first=first, end=end, most=BATCH)
    if not found:
        return DetachedBatch(None, True)
    can_go = _part(tx, [(run_id, conversation_id) for run_id, conversation_id in found], before)
    return DetachedBatch(UUID(int=found[-1][0].int + 1) if len(found) == BATCH else None, can_go)


def part_strays(tx: Transaction, after: tuple[datetime, UUID], before: datetime) -> tuple[datetime, UUID] | None:
    """The same for up to 500 runs that no week covers and that were accepted before `before`: where the next begin.

    None: there are no more. Their ids tell no time, so they come in the order of acceptance. Raises LargeAnswersLeft.
    """
    found = tx.rows(STRAY_RUNS, after=after[0], id=after[1], before=before, most=BATCH)
    if found:
        _part(tx, [(run_id, conversation_id) for run_id, conversation_id, _ in found], before)
    return (found[-1][2], found[-1][0]) if len(found) == BATCH else None


def _part(tx: Transaction, found: Sequence[tuple[UUID, UUID]], before: datetime) -> bool:
    """Part runs from their conversations; whether all of these runs can go. Raises LargeAnswersLeft."""
    ids = [run_id for run_id, _ in found]
    conversations = sorted({conversation_id for _, conversation_id in found})
    idle = [conversation_id for (conversation_id,) in tx.rows(IDLE, ids=conversations, before=before)]
    if idle:
        tx.run(FORGET, ids=idle)
    left = {row.conversation_id for row in tx.rows(LARGE_ANSWERS, conversations=conversations, ids=ids)}
    if left:
        raise LargeAnswersLeft(sorted(left), ids)
    tx.run(KEEP_ANSWERS, conversations=conversations, ids=ids)
    return not tx.scalar(GO_ON, conversations=conversations, ids=ids)


def keep_large_answers(database: Database, left: LargeAnswersLeft) -> None:
    """Move answers that lie in the file storage into their messages, whole: the storage is cleared with the week.

    Each is read outside of a transaction, and written by one statement. Raises OSError if the storage is out of reach.
    What is gone from it for good goes from the answer.
    """
    large = database.large
    if not large.is_within_reach():
        raise OSError("The file storage is out of reach. Give the sweeper EASEL_FILES_DIR or EASEL_FILES_URL.")
    with database.statements() as tx:
        found = tx.rows(LARGE_ANSWERS, conversations=left.conversations, ids=left.run_ids)
    for conversation_id, number, node_id, outputs, aside in found:
        try:
            content = large.outputs(node_id, outputs, aside)
        except ValueGone as error:
            log.error("value_gone", error=error.message)
            content = outputs
        with database.statements() as tx:
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


def find_unneeded_files(tx: Transaction, after: tuple[UUID, UUID], end: UUID, made_before: datetime) -> UnneededFiles:
    """Look at 500 files of runs below `end`, and return those that nobody can ask for.

    Files that were made later than `made_before` are needed.
    """
    found = tx.rows(FILES_LEFT, end=end, last_run=after[0], last_file=after[1], made_before=made_before, most=BATCH)
    contents: dict[bytes, list[UUID]] = {}
    for file_id, _, sha256, is_needed in found:
        if not is_needed:
            contents.setdefault(bytes(sha256), []).append(file_id)
    others = frozenset[bytes]()
    if contents:
        ids = [file_id for files in contents.values() for file_id in files]
        rows = tx.rows(NAMED_BY_OTHERS, hashes=sorted(contents), ids=ids)
        others = frozenset(bytes(sha256) for (sha256,) in rows)
    return UnneededFiles((found[-1][1], found[-1][0]) if found else None, contents, others)


def delete_files(tx: Transaction, files: UnneededFiles, discarded: Iterable[bytes]) -> int:
    """Delete the rows of files whose bytes are gone, or belong to other files as well; return how many.

    `discarded`: the hashes whose bytes are gone. A row whose content lost its last other file meanwhile stays for the
    next time, since it alone names those bytes then.
    """
    gone = [file_id for sha256 in discarded for file_id in files.contents[sha256]]
    shared = [file_id for sha256 in sorted(files.shared) for file_id in files.contents[sha256]]
    deleted = tx.run(DELETE_FILES, ids=gone) if gone else 0
    return deleted + (tx.run(DELETE_FILES_OF_OTHERS, ids=shared) if shared else 0)
