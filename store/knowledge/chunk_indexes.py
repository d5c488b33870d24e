"""The indexes of large knowledge bases: one of vectors (HNSW, by pgvector) and one of words (GIN) for each base.

An index for each base finds its chunks however many other bases there are, and belongs to one tenant. A base gets
indexes when it has more than EXACT_CHUNKS chunks: its row is marked as due with the end of a document, and a worker
builds them beside the traffic. The frequencies of common words are stored with them.
"""

import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, NullPool, create_engine, text

from canvas.ids import TenantId
from store.db.database import Database
from store.db.transaction import Transaction
from store.knowledge.chunk_search import COMMON_SHARE, EXACT_CHUNKS, IS_PLAIN

MAX_DIMENSIONS = 4000  # of a vector in an index, pgvector's limit for halfvec
GROWTH = 2  # a base that has grown by this factor gets its frequencies counted anew
BUILD_TIME = timedelta(minutes=30)  # after which another worker may build the indexes of a base
CANCEL_TIMEOUT = 5.0  # seconds, to reach the server with a cancellation
MAINTENANCE_MEMORY = "512MB"  # of the server, for a build; 200,000 vectors of 384 numbers need 220 MB

MARK_DUE = text("""
    update knowledge_bases b set index_due = true from (
        select coalesce(sum(case when status = 'done' then chunks else written_chunks end), 0) as chunks
        from knowledge_documents where tenant_id = :tenant_id and base_id = :base_id
    ) as found
    where b.tenant_id = :tenant_id and b.id = :base_id and found.chunks > :least
        and found.chunks > b.indexed_chunks * :growth
""")
IS_DUE = text("""
    select exists (select from knowledge_bases where index_due
        and (index_until is null or index_until < clock_timestamp()))
""")
CLAIM = text("""
    update knowledge_bases set index_until = clock_timestamp() + :time
    where id = (
        select id from knowledge_bases where index_due and (index_until is null or index_until < clock_timestamp())
        order by id for update skip locked limit 1
    ) returning id, tenant_id, index_dimensions
""")
RELEASE = text("update knowledge_bases set index_until = null where tenant_id = :tenant_id and id = :base_id")
FORGET_EMPTY = text("""
    update knowledge_bases b set indexed_chunks = 0
    where b.tenant_id = :tenant_id and b.id = :base_id and b.indexed_chunks > 0 and not exists (
        select from knowledge_documents d
        where d.base_id = b.id and (d.written_chunks > 0 or (d.status = 'done' and d.chunks > 0))
    )
""")
BUILT = text("""
    update knowledge_bases set index_due = false, index_until = null, indexed_chunks = :chunks,
        index_dimensions = :dimensions where tenant_id = :tenant_id and id = :base_id
""")
FIRST_VECTOR = text("""
    select vector_dims(embedding) from knowledge_chunks
    where tenant_id = :tenant_id and base_id = :base_id and embedding is not null limit 1
""")
COUNT = text("select count(*) from knowledge_chunks where tenant_id = :tenant_id and base_id = :base_id")
FORGET_WORDS = text("delete from knowledge_base_words where base_id = :base_id")
COUNT_WORDS = text("""
    insert into knowledge_base_words (base_id, word, chunks)
    select :base_id, word, ndoc from ts_stat(:rows) where ndoc >= :least
""")
UNUSABLE = text("""
    select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid
    where i.indrelid = 'knowledge_chunks'::regclass and c.relname ~ '^ix_knowledge_chunks_(vectors|words)_[0-9a-f]{32}$'
        and (not exists (select from knowledge_bases b where replace(b.id::text, '-', '') = right(c.relname, 32))
            or (not i.indisvalid and right(c.relname, 32) = :base))
""")


@dataclass(frozen=True, slots=True)
class DueBase:
    """A base whose indexes a worker builds. `index_dimensions` is that of the index it has, 0 for none."""

    id: UUID
    tenant_id: TenantId
    index_dimensions: int


def mark_due(tx: Transaction, tenant_id: TenantId, base_id: UUID) -> None:
    """Have indexes built if the base is large and has none, or has grown since its words were counted."""
    tx.execute(MARK_DUE, tenant_id=tenant_id, base_id=base_id, least=EXACT_CHUNKS, growth=GROWTH)


def is_due(tx: Transaction) -> bool:
    """Return whether indexes are to be built and no worker does it."""
    return bool(tx.scalar(IS_DUE))


def claim(tx: Transaction) -> DueBase | None:
    """Claim a base whose indexes are due, for BUILD_TIME; return None if there is none."""
    row = tx.one_or_none(CLAIM, time=BUILD_TIME)
    return DueBase(**row) if row else None


def forget_if_empty(tx: Transaction, tenant_id: TenantId, base_id: UUID) -> None:
    """Have a base that has lost all of its chunks get indexes anew: its next vectors may have another length."""
    tx.execute(FORGET_EMPTY, tenant_id=tenant_id, base_id=base_id)


class Cancellation:
    """Ends a build from another thread: cancels the statement that the server executes."""

    def __init__(self) -> None:
        self._connection: Any = None
        self._lock = threading.Lock()
        self.is_cancelled = False

    def attach(self, connection: Any) -> None:
        """Name the connection of the build, None when it has ended. Raises BuildCancelled."""
        with self._lock:
            self._connection = connection
        if self.is_cancelled and connection is not None:
            raise BuildCancelled

    def cancel(self) -> None:
        """Cancel the build. A half-built index is dropped by the next one."""
        self.is_cancelled = True
        with self._lock:
            if self._connection is not None:
                self._connection.cancel_safe(timeout=CANCEL_TIMEOUT)


class BuildCancelled(Exception):
    """A build was cancelled before it had a connection."""


def release(database: Database, base: DueBase) -> None:
    """Release a claim, so that another worker may build the indexes now."""
    with database.transaction() as tx:
        tx.execute(RELEASE, tenant_id=base.tenant_id, base_id=base.id)


def build(database: Database, base: DueBase, cancellation: Cancellation) -> None:
    """Build the indexes of a base beside the traffic, and count its common words. Takes a minute for 200,000 chunks.

    Also drops the indexes of deleted bases. A second build changes nothing but the counts. Raises DBAPIError, also for
    a cancelled build.
    """
    engine = create_engine(
        database.url,
        poolclass=NullPool,
        isolation_level="AUTOCOMMIT",  # an index is built concurrently outside of a transaction only
        connect_args={
            "application_name": "easel-indexes",
            "options": f"-c maintenance_work_mem={MAINTENANCE_MEMORY} -c statement_timeout=0",
        },
    )
    try:
        with engine.connect() as connection:
            cancellation.attach(connection.connection.driver_connection)
            key = {"tenant_id": base.tenant_id, "base_id": base.id}
            for name in connection.scalars(UNUSABLE, {"base": base.id.hex}).all():
                connection.exec_driver_sql(f"drop index concurrently if exists {name}")
            chunks = connection.scalar(COUNT, key) or 0
            dimensions = 0 if connection.scalar(IS_PLAIN) else connection.scalar(FIRST_VECTOR, key) or 0
            if dimensions > MAX_DIMENSIONS:
                dimensions = 0
            if base.index_dimensions not in (0, dimensions):
                connection.exec_driver_sql(
                    f"drop index concurrently if exists ix_knowledge_chunks_vectors_{base.id.hex}"
                )
            _build_indexes(connection, base.id, dimensions)
            connection.execute(FORGET_WORDS, {"base_id": base.id})
            rows = f"select lexemes from knowledge_chunks where base_id = '{base.id}'"  # noqa: S608 (a UUID)
            least = max(1, int(chunks * COMMON_SHARE))
            connection.execute(COUNT_WORDS, {"base_id": base.id, "rows": rows, "least": least})
    finally:
        cancellation.attach(None)
        engine.dispose()
    with database.transaction() as tx:
        tx.execute(BUILT, **key, chunks=chunks, dimensions=dimensions)


def _build_indexes(connection: Connection, base_id: UUID, dimensions: int) -> None:
    create = "create index concurrently if not exists"
    connection.exec_driver_sql(
        f"{create} ix_knowledge_chunks_words_{base_id.hex} on knowledge_chunks using gin (lexemes) "
        f"with (fastupdate = off) where base_id = '{base_id}'"
    )
    if dimensions:
        connection.exec_driver_sql(
            f"{create} ix_knowledge_chunks_vectors_{base_id.hex} on knowledge_chunks "
            f"using hnsw ((embedding::halfvec({dimensions})) halfvec_ip_ops) "
            f"where base_id = '{base_id}' and vector_dims(embedding) = {dimensions}"
        )
