"""The cost of a search in a knowledge base, as Markdown: `python -m bench.scripts.knowledge [--chunks N] [--numbers
N] [--vectors topics|random]`.

Chunks with words distributed by Zipf's law and vectors around some hundred topics, as those of texts are (or random
ones, the worst case for an index), are stored in a new database and searched: first all of them, then by the indexes
of a large base. The query's vector is given, so the embedding model is not measured. The recall is the share of the
eight best chunks that the indexes find.

The script starts a PostgreSQL in a folder that is removed at the end. It needs NumPy.
"""

import argparse
import asyncio
import os
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from sqlalchemy import text

import embedded
from bench.compare.servers import psycopg_url
from canvas.ids import TenantId
from knowledge.index.indexing import Indexing
from store.db.database import Database
from store.knowledge import bases as knowledge_bases
from store.knowledge import chunk_indexes, chunk_search
from store.knowledge import chunks as knowledge_chunks
from store.knowledge.chunk_search import ChunkMatch, SearchedBases
from store.knowledge.similarity import Terms
from store.maintenance import migrate
from store.primitives.ids import new_id
from store.tenants import tenants

CHUNKS_PER_DOCUMENT = 1000  # chunks
VOCABULARY = 50_000
WORDS_PER_CHUNK = 150
WORDS_PER_QUESTION = 8
TOPICS, LATENT = 300, 32  # of vectors: topics, and the dimensions in which they differ
SHOWN = 8  # best chunks of a question
CANDIDATES = 1024  # `top_k` of Retrieval

_REAL = 700  # the number of the type real in PostgreSQL


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chunks", type=int, default=200_000)
    parser.add_argument("--numbers", type=int, default=384, help="in a vector")
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--vectors", choices=["topics", "random"], default="topics")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="easel-knowledge-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    try:
        with embedded.run_servers(folder, need_redis=False) as services:
            migrate.upgrade(services.database_url)
            for line in _table(services.database_url, Texts(options.numbers, options.vectors == "random"), options):
                print(line, flush=True)  # noqa: T201 (what this is for)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Texts:
    """Random vectors of length 1, and words by Zipf's law."""

    def __init__(self, numbers: int, is_random: bool) -> None:
        self.numbers = numbers
        self._is_random = is_random
        self.random = np.random.default_rng(1)
        self._topics = self.random.standard_normal((TOPICS, LATENT))
        self._axes = self.random.standard_normal((LATENT, numbers)) / np.sqrt(LATENT)

    def vectors(self, count: int) -> Any:
        made = self.random.standard_normal((count, self.numbers))
        if not self._is_random:
            around = self._topics[self.random.integers(0, TOPICS, count)]
            made = (around + 0.7 * self.random.standard_normal((count, LATENT))) @ self._axes + 0.25 * made
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    def words(self, count: int, each: int) -> list[list[str]]:
        drawn = np.minimum(self.random.zipf(1.3, (count, each)), VOCABULARY) - 1
        return [[f"w{number}" for number in sorted(set(row))] for row in drawn.tolist()]


def _table(database_url: str, texts: Texts, options: Any) -> Iterator[str]:
    about = f"{options.chunks:,} chunks of {options.numbers} numbers ({options.vectors}), {os.cpu_count()} processors"
    yield f"| {about} | p50 | worst | recall |"
    yield "|---|---|---|---|"
    database = Database(database_url, pool_size=2, application="easel-bench")
    try:
        tenant_id, base_id = _create_base(database, texts, options.chunks)
        questions = [
            Terms(words, [len(words)], vector)
            for words, vector in zip(
                texts.words(options.questions, WORDS_PER_QUESTION), texts.vectors(options.questions).tolist(),
                strict=True,
            )
        ]  # fmt: skip
        exact = [_time_search(database, tenant_id, base_id, terms) for terms in questions]
        yield _row("search, every chunk scored", exact, [1.0])
        with database.transaction() as tx:
            chunk_indexes.mark_due(tx, tenant_id, base_id)
            if not chunk_indexes.is_due(tx):
                return
        began = time.perf_counter()
        asyncio.run(Indexing(database).next())
        yield f"| building the indexes | {time.perf_counter() - began:.1f} s | | |"
        found = [_time_search(database, tenant_id, base_id, terms) for terms in questions]
        yield _row("search by the indexes", found, [_recall(a, b) for (a, _), (b, _) in zip(found, exact, strict=True)])
        with database.transaction() as tx:
            sizes = tx.rows(text(_SIZES), words=f"%words_{base_id.hex}", vectors=f"%vectors_{base_id.hex}")
        yield f"| table, index of vectors, of words | {sizes[0][0]}, {sizes[0][1]}, {sizes[0][2]} | | |"
    finally:
        database.close()


_SIZES = """
    select pg_size_pretty(pg_table_size('knowledge_chunks')),
        (select pg_size_pretty(pg_relation_size(oid)) from pg_class where relname like :vectors),
        (select pg_size_pretty(pg_relation_size(oid)) from pg_class where relname like :words)
"""


def _time_search(
    database: Database, tenant_id: TenantId, base_id: UUID, terms: Terms
) -> tuple[Sequence[ChunkMatch], float]:
    """Return the matches of a question, and the milliseconds until its best texts were read."""
    began = time.perf_counter()
    found = chunk_search.search(
        database, tenant_id, [SearchedBases([base_id], terms)], documents=None, by_vector=0.5, threshold=0.2,
        most=CANDIDATES, page_end=SHOWN,
    )  # fmt: skip
    with database.statements() as tx:
        knowledge_chunks.load_chunks(tx, tenant_id, [(each.document_id, each.position) for each in found[:SHOWN]])
    return found, (time.perf_counter() - began) * 1000


def _recall(found: Sequence[ChunkMatch], exact: Sequence[ChunkMatch]) -> float:
    """Return the share of the best chunks that was found; a chunk as similar as the last of them counts."""
    best = exact[:SHOWN]
    if not best:
        return 1.0
    return sum(match.similarity >= best[-1].similarity - 1e-6 for match in found[:SHOWN]) / len(best)


def _row(name: str, timed: Sequence[tuple[Any, float]], recalls: Sequence[float]) -> str:
    times = [each for _, each in timed]
    recall = statistics.fmean(recalls)
    return f"| {name} | {statistics.median(times):.1f} ms | {max(times):.1f} ms | {recall:.3f} |"


def _create_base(database: Database, texts: Texts, chunks: int) -> tuple[TenantId, UUID]:
    """Create a knowledge base of `chunks` chunks; return the ids of its tenant and of the base."""
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, "bench")
        base_id = knowledge_bases.create(tx, tenant_id, "bench", embedding_model="echo", parser={})
    with psycopg.connect(psycopg_url(database.url), autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("create temporary table made (like knowledge_chunks including defaults)")
        cursor.execute("alter table made drop column embedding, add column embedding real[]")
        for start in range(0, chunks, CHUNKS_PER_DOCUMENT):
            count = min(CHUNKS_PER_DOCUMENT, chunks - start)
            document_id = new_id()
            cursor.execute(
                "insert into knowledge_documents (id, tenant_id, base_id, name, mime_type, size, sha256, status, "
                "chunks) values (%s, %s, %s, %s, '', 1, %s, 'done', %s)",
                [document_id, tenant_id, base_id, f"{start}.txt", document_id.bytes, count],
            )
            columns = "(document_id, position, tenant_id, base_id, text, lexemes, embedding)"
            with cursor.copy(f"copy made {columns} from stdin (format binary)") as copy:
                copy.write(b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0))
                for at, row in enumerate(_rows(texts, count)):
                    fields = [document_id.bytes, struct.pack(">i", at), tenant_id.bytes, base_id.bytes, *row]
                    copy.write(struct.pack(">h", len(fields)) + b"".join(map(_field, fields)))
                copy.write(struct.pack(">h", -1))
            cursor.execute(f"insert into knowledge_chunks {columns} select {columns[1:-1]} from made")  # noqa: S608
            cursor.execute("truncate made")
        cursor.execute("vacuum analyze knowledge_chunks")
    return tenant_id, base_id


def _rows(texts: Texts, count: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield text, lexemes and vector of chunks in PostgreSQL's binary format."""
    numbers = np.empty((count, texts.numbers), np.dtype([("length", ">i4"), ("value", ">f4")]))
    numbers["length"], numbers["value"] = 4, texts.vectors(count)
    head = struct.pack(">iiIii", 1, 0, _REAL, texts.numbers, 1)
    for words, vector in zip(texts.words(count, WORDS_PER_CHUNK), numbers, strict=True):
        lexemes = sorted(word.encode() for word in words)
        tsvector = struct.pack(">i", len(lexemes)) + b"".join(word + b"\0\0\0" for word in lexemes)
        yield " ".join(words).encode(), tsvector, head + vector.tobytes()


def _field(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


if __name__ == "__main__":
    main()
