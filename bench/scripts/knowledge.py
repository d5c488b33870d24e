"""The cost of a search in a knowledge base, as Markdown: `python -m bench.scripts.knowledge [--chunks N] [--numbers
N]`.

Chunks with random vectors and words distributed by Zipf's law are stored in a new database, loaded into an index, and
searched. The query's vector is given, so the embedding model is not measured. As a control, pgvector searches the same
vectors by an exact scan, if the server has it.

The script starts a PostgreSQL in a folder that is removed at the end.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import psycopg
from psycopg import sql

import embedded
from bench.compare.servers import psycopg_url
from canvas.ids import TenantId
from knowledge.bases.search import SearchQuery
from knowledge.index.index_cache import IndexCache, QueryVariants
from knowledge.index.tokenizer import word_hashes
from store.db.database import Database
from store.knowledge import bases as knowledge_bases
from store.knowledge import chunks as knowledge_chunks
from store.maintenance import migrate
from store.primitives.ids import new_id
from store.tenants import tenants

CHUNKS_PER_DOCUMENT = 1000  # chunks
VOCABULARY = 50_000
WORDS_PER_CHUNK = 80  # of a chunk
QUESTION = "w17 w230 w1900 w8000 w31000"  # a common word, and rarer ones
MEMORY = 8 * 1024**3


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--numbers", type=int, default=384, help="in a vector")
    parser.add_argument("--questions", type=int, default=30)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="easel-knowledge-"))
    folder.chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
    try:
        with embedded.run_servers(folder, need_redis=False) as services:
            migrate.upgrade(services.database_url)
            for line in _table(services.database_url, options.chunks, options.numbers, options.questions):
                print(line, flush=True)  # noqa: T201 (what this is for)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _table(database_url: str, chunks: int, numbers: int, questions: int) -> Iterator[str]:
    yield f"| {chunks:,} chunks of {numbers} numbers, {os.cpu_count()} processors | p50 | worst | processor time, p50 |"
    yield "|---|---|---|---|"
    database = Database(database_url, pool_size=2, application="easel-bench")
    try:
        tenant_id, base_id = _create_base(database, chunks, numbers)
        cached, streamed = IndexCache(database, MEMORY), IndexCache(database, memory=1)
        random = np.random.default_rng(7)

        def ask(index_cache: IndexCache) -> Any:
            with database.statements() as tx:
                bases = knowledge_bases.find_by_id_or_name(tx, tenant_id, [base_id], [])
            vector: list[float] = random.standard_normal(numbers).tolist()
            near = index_cache.search(
                tenant_id,
                bases,
                QueryVariants([QUESTION], vector),
                by_vector=0.5,
                threshold=0.2,
                limit=SearchQuery("").candidates,
            )
            with database.statements() as tx:
                return knowledge_chunks.load_chunks(
                    tx, tenant_id, [(each.document_id, each.position) for each in near[:8]]
                )

        yield _row("first question: the index is read", partial(ask, cached), 1)
        yield _row("question", partial(ask, cached), questions)
        yield f"| memory of the index, MB | {cached.size / 1e6:.0f} | | |"
        yield _row("question to a base that exceeds the memory", partial(ask, streamed), 3)
        yield from _measure_pgvector(database_url, numbers, min(questions, 10))
    finally:
        database.close()


def _row(name: str, ask: Callable[[], Any], times: int) -> str:
    """Return a row with the times of some queries; the processor time is of this process only."""
    wall_ms, cpu_ms = list[float](), list[float]()
    for _ in range(times):
        started, begun = time.perf_counter(), time.process_time()
        ask()
        wall_ms.append((time.perf_counter() - started) * 1000)
        cpu_ms.append((time.process_time() - begun) * 1000)
    return (
        f"| {name} | {statistics.median(wall_ms):.1f} ms | {max(wall_ms):.1f} ms | {statistics.median(cpu_ms):.1f} ms |"
    )


def _create_base(database: Database, chunks: int, numbers: int) -> tuple[TenantId, UUID]:
    """Create a knowledge base of `chunks` chunks; return the ids of its tenant and of the base."""
    random = np.random.default_rng(1)
    hashes = np.array([next(iter(word_hashes(f"w{number}", "English"))) for number in range(VOCABULARY)], dtype="<u4")
    with database.transaction() as tx:
        tenant_id = tenants.create_tenant(tx, "bench")
        base_id = knowledge_bases.create(tx, tenant_id, "bench", embedding_model="echo", parser={})
    with psycopg.connect(psycopg_url(database.url), autocommit=True) as connection, connection.cursor() as cursor:
        for start in range(0, chunks, CHUNKS_PER_DOCUMENT):
            count = min(CHUNKS_PER_DOCUMENT, chunks - start)
            document_id = new_id()
            cursor.execute(
                "insert into knowledge_documents (id, tenant_id, base_id, name, mime_type, size, sha256, status, "
                "chunks) values (%s, %s, %s, %s, '', 1, %s, 'done', %s)",
                [document_id, tenant_id, base_id, f"{start}.txt", document_id.bytes, count],
            )
            vectors = random.standard_normal((count, numbers)).astype("<f4")
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            drawn = np.minimum(random.zipf(1.3, (count, WORDS_PER_CHUNK)), VOCABULARY) - 1
            with cursor.copy(
                "copy knowledge_chunks (document_id, position, tenant_id, base_id, text, words, vector) from stdin"
            ) as copy:
                for at in range(count):
                    words = np.unique(hashes[drawn[at]]).tobytes()
                    copy.write_row((document_id, at, tenant_id, base_id, f"Chunk {at}.", words, vectors[at].tobytes()))
        cursor.execute("update knowledge_bases set revision = revision + 1 where id = %s", [base_id])
        cursor.execute("analyze knowledge_chunks")
    return tenant_id, base_id


def _measure_pgvector(database_url: str, numbers: int, questions: int) -> Iterator[str]:
    """Yield the row of pgvector with the same vectors: an exact scan without an index, by vectors only."""
    with psycopg.connect(psycopg_url(database_url), autocommit=True) as connection:
        try:
            connection.execute("create extension vector")
        except psycopg.Error:
            yield "| pgvector: this server has none | | | |"
            return
        table = sql.SQL("create table control (id serial, vector vector({}))")
        connection.execute(table.format(sql.Literal(numbers)))
        found = connection.execute("select vector from knowledge_chunks").fetchall()
        with connection.cursor() as cursor, cursor.copy("copy control (vector) from stdin") as copy:
            for (vector,) in found:
                copy.write_row((_vector_literal(np.frombuffer(vector, "<f4")),))
        connection.execute("analyze control")
        random = np.random.default_rng(7)

        def ask() -> Any:
            vector = _vector_literal(random.standard_normal(numbers))
            statement = "select id from control order by vector <=> %s::vector limit 1024"
            return connection.execute(statement, [vector]).fetchall()

        yield _row("control: pgvector, exact scan, vectors alone", ask, questions)


def _vector_literal(vector: Any) -> str:
    return f"[{','.join(f'{number:.6f}' for number in vector)}]"


if __name__ == "__main__":
    main()
