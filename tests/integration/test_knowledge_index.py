"""Search in chunks: exact ranks, indexes of large bases, servers without pgvector, and rows of the previous release."""

import asyncio
import math
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from random import Random
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import ToolError
from canvas.ids import TenantId
from cli.server import checks
from cli.server.checks import Level
from embedded import EmbeddedServers
from knowledge.index import tokenizer
from knowledge.index.indexing import Indexing
from knowledge.index.tokenizer import passage_words
from knowledge.index.vectors import normalize
from store.db.database import Database
from store.knowledge import (
    bases,
    chunk_indexes,
    chunk_search,
    chunks,
    documents,
    former_rows,
    similarity,
    written_chunks,
)
from store.knowledge.chunk_search import ChunkMatch, SearchedBases
from store.knowledge.chunks import NewChunk
from store.knowledge.similarity import ABSENT_WORD_WEIGHT, Terms
from store.knowledge.written_chunks import ChunkIndex, ChunkPlace
from store.maintenance import migrate, vectors
from store.primitives.ids import new_id
from store.tenants import tenants
from tests import services as test_services

DIMENSIONS = 16
ADD_DOCUMENT = text("""
    insert into knowledge_documents (id, tenant_id, base_id, name, mime_type, size, sha256, status, chunks)
    values (:id, :tenant_id, :base_id, :name, '', 1, :hash, :status, :chunks)
""")
BUILDS = text("""
    select count(*) from pg_stat_activity where application_name = 'easel-indexes' and query like 'create index%'
        and datname = current_database() and state = 'active'
""")
INDEXES = text("select indexname from pg_indexes where indexname like :name order by 1")
WITHOUT_PGVECTOR = text("""
    alter table knowledge_chunks drop column embedding, add column embedding real[];
    alter table memory_messages drop column embedding, add column embedding real[];
    drop extension vector
""")


def index_bases_above(chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bases of more chunks than this be large, so that they get indexes."""
    for module in (chunk_search, chunk_indexes):
        monkeypatch.setattr(module, "EXACT_CHUNKS", chunks)


class Base:
    """A base with random chunks, and what an exact search of them finds."""

    def __init__(self, database: Database, name: str = "Base", embedding_model: str = "echo") -> None:
        self.database = database
        self.chunks: dict[tuple[UUID, int], tuple[set[str], list[float] | None]] = {}
        with database.transaction() as tx:
            self.tenant_id = TenantId(tenants.create_tenant(tx, f"tenant {new_id()}"))
            self.id = bases.create(tx, self.tenant_id, name, embedding_model=embedding_model, parser={})

    def add(self, made: Sequence[tuple[set[str], list[float] | None]], status: str = "done") -> UUID:
        """Add a document of chunks, each of words and a vector."""
        document_id = new_id()
        with self.database.transaction() as tx:
            tx.execute(
                ADD_DOCUMENT, id=document_id, tenant_id=self.tenant_id, base_id=self.id, name=str(document_id),
                hash=document_id.bytes, status=status, chunks=len(made),
            )  # fmt: skip
            chunks.add(
                tx, self.tenant_id, self.id, document_id,
                [NewChunk(at, " ".join(words), sorted(words), vector) for at, (words, vector) in enumerate(made)],
            )  # fmt: skip
        if status == "done":
            self.chunks |= {(document_id, at): each for at, each in enumerate(made)}
        return document_id

    def fill(self, count: int, random: Random, topics: int = 5) -> None:
        """Add documents of 50 chunks, whose vectors and words are those of a few topics."""
        centers = [[random.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(topics)]
        for _ in range(count // 50):
            made = list[tuple[set[str], list[float] | None]]()
            for _ in range(50):
                center = random.choice(centers)
                words = {f"w{min(int(random.paretovariate(0.7)), 500)}" for _ in range(12)}
                made.append((words, normalize([number + random.gauss(0, 0.4) for number in center])))
            self.add(made)

    def search(self, terms: Terms, most: int = 10, **options: object) -> list[ChunkMatch]:
        return chunk_search.search(
            self.database, self.tenant_id, [SearchedBases([self.id], terms)],
            documents=options.get("documents"), by_vector=0.5, threshold=0.0, most=most, page_end=8,
        )  # type: ignore[arg-type]  # fmt: skip

    def expected(self, terms: Terms) -> list[float]:
        """Return the similarities of all chunks, the highest first, as the documentation defines them."""
        count = len(self.chunks)
        having = [sum(word in words for words, _ in self.chunks.values()) for word in terms.words]
        weights = [math.log(2 + count / found) if found else ABSENT_WORD_WEIGHT for found in having]
        found = list[float]()
        for words, vector in self.chunks.values():
            has = sum(weight for word, weight in zip(terms.words, weights, strict=True) if word in words)
            by_words = has / sum(weights) if weights else 0.0
            dot = sum(a * b for a, b in zip(vector or (), terms.vector or (), strict=False))
            found.append(0.5 * min(1, max(0, dot)) + 0.5 * by_words)
        return sorted(found, reverse=True)

    def build_indexes(self) -> None:
        with self.database.transaction() as tx:
            chunk_indexes.mark_due(tx, self.tenant_id, self.id)
        asyncio.run(Indexing(self.database).run_all())

    def indexes(self) -> list[str]:
        with self.database.transaction() as tx:
            return [row.indexname for row in tx.rows(INDEXES, name=f"%{self.id.hex}")]


@pytest.fixture
def base(database: Database) -> Base:
    return Base(database)


@pytest.fixture
def plain_database(services: EmbeddedServers) -> Iterator[Database]:
    """A database of a server without pgvector, as far as a test can tell."""
    with test_services.fresh_database(services.database_url) as url:
        migrate.upgrade(url)
        with closing(Database(url)) as database:
            with database.transaction() as tx:
                for statement in WITHOUT_PGVECTOR.text.split(";"):
                    tx.execute(text(statement))
            yield database


def questions(number: int) -> list[Terms]:
    random = Random(number)
    made = list[Terms]()
    for _ in range(10):
        words = sorted({f"w{min(int(random.paretovariate(0.5)), 600)}" for _ in range(5)})
        made.append(Terms(words, [len(words)], normalize([random.gauss(0, 1) for _ in range(DIMENSIONS)])))
    return made


def similarities(found: Sequence[ChunkMatch]) -> list[float]:
    return [match.similarity for match in found]


def test_small_base_is_searched_exactly(base: Base):
    base.fill(300, Random(1))

    for terms in questions(2):
        assert similarities(base.search(terms)) == pytest.approx(base.expected(terms)[:10], abs=2e-3)


def test_server_without_pgvector_finds_the_same(plain_database: Database):
    base = Base(plain_database)
    base.fill(200, Random(1))

    assert vectors.advice_for(plain_database) == vectors.NOT_ALLOWED  # the extension can be created
    for terms in questions(2):
        assert similarities(base.search(terms)) == pytest.approx(base.expected(terms)[:10], abs=1e-5)


def test_migration_converts_the_vectors_of_a_server_that_has_got_pgvector(plain_database: Database):
    base = Base(plain_database)
    base.fill(100, Random(1))
    before = [base.search(terms) for terms in questions(2)]

    migrate.upgrade(plain_database.url)

    assert vectors.advice_for(plain_database) == ""
    for terms, found in zip(questions(2), before, strict=True):
        assert similarities(base.search(terms)) == pytest.approx(similarities(found), abs=2e-3)


def test_missing_pgvector_is_reported_with_what_to_do(database: Database, plain_database: Database):
    found, missing = checks.pgvector(database), checks.pgvector(plain_database)

    assert (found.level, found.advice) == (Level.OK, "")
    assert missing.level is Level.WARN
    assert "create extension vector" in missing.advice
    assert "easel migrate" in missing.advice


def test_user_who_may_not_create_the_extension_is_told_who_may(plain_database: Database):
    role = f"easel_{new_id().hex}"
    with plain_database.transaction() as tx:
        tx.execute(text(f"create role {role} login password 'p'"))
    limited = Database(re.sub(r"//[^@]+@", f"//{role}:p@", plain_database.url))
    try:
        with closing(limited):
            assert vectors.install(limited) == vectors.NOT_ALLOWED
    finally:
        with plain_database.transaction() as tx:
            tx.execute(text(f"drop role {role}"))


def test_large_base_gets_indexes_that_find_the_best_chunks(base: Base, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(400, monkeypatch)
    monkeypatch.setattr(chunk_search, "MIN_NEAREST", 100)
    monkeypatch.setattr(chunk_search, "MAX_WORDED", 300)
    base.fill(1500, Random(3), topics=50)  # larger topics than candidates may be missed

    base.build_indexes()

    assert base.indexes() == [f"ix_knowledge_chunks_{kind}_{base.id.hex}" for kind in ("vectors", "words")]
    right = total = 0
    for terms in questions(4):
        expected = base.expected(terms)[:8]
        found = similarities(base.search(terms, most=8))
        right += sum(a >= b - 2e-3 for a, b in zip(found, expected, strict=True))
        total += len(expected)
    assert right / total >= 0.98


def test_large_base_without_vectors_is_searched_by_its_words(database: Database, monkeypatch: pytest.MonkeyPatch):
    base = Base(database, embedding_model="")
    index_bases_above(100, monkeypatch)
    base.add([({"common", f"n{at}"}, None) for at in range(200)])
    base.build_indexes()

    found = base.search(Terms(["common", "n7", "nowhere"], [3]), most=3)

    assert base.indexes() == [f"ix_knowledge_chunks_words_{base.id.hex}"]
    assert found[0].position == 7
    assert found[0].by_words > 0.5


def test_large_base_without_an_index_of_vectors_is_searched_exactly(
    plain_database: Database, monkeypatch: pytest.MonkeyPatch
):
    base = Base(plain_database)
    index_bases_above(20, monkeypatch)
    base.fill(150, Random(1))
    base.build_indexes()

    assert base.indexes() == [f"ix_knowledge_chunks_words_{base.id.hex}"]
    for terms in questions(2):
        assert similarities(base.search(terms)) == pytest.approx(base.expected(terms)[:10], abs=1e-5)


def test_bases_of_several_languages_are_searched_together_also_if_one_is_empty(base: Base):
    base.add([({"haus", "hous"}, None)])
    with base.database.transaction() as tx:
        empty = bases.create(tx, base.tenant_id, "Empty", embedding_model="echo", parser={}, language="German")
    groups = [SearchedBases([empty], Terms(["haus"], [1])), SearchedBases([base.id], Terms(["hous"], [1]))]

    for searched in (groups, groups[::-1]):
        (match,) = chunk_search.search(
            base.database, base.tenant_id, searched, documents=None, by_vector=0.0, threshold=0.1, most=5, page_end=5
        )
        assert match.by_words == pytest.approx(1)


def test_small_and_large_bases_are_ranked_together(database: Database, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(100, monkeypatch)
    large = Base(database)
    large.add([({"common", f"n{at}"}, None) for at in range(200)])
    large.build_indexes()
    with database.transaction() as tx:
        small = bases.create(tx, large.tenant_id, "Small", embedding_model="", parser={})
    large.id, of_large = small, large.id
    large.add([({"common", "n7"}, None), ({"other"}, None)])
    terms = Terms(["common", "n7"], [2])

    found = chunk_search.search(
        database, large.tenant_id, [SearchedBases([of_large, small], terms)],
        documents=None, by_vector=0.0, threshold=0.5, most=5, page_end=5,
    )  # fmt: skip

    assert [(match.position, round(match.by_words, 6)) for match in found] == [(7, 1), (0, 1)]


def test_filters_apply_to_a_large_base(base: Base, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(20, monkeypatch)
    base.fill(200, Random(5))
    unfinished = base.add([({"w1", "w2"}, normalize([1.0] * DIMENSIONS))] * 40, status="pending")
    base.build_indexes()
    (first, *_) = base.chunks
    terms = Terms(["w1", "w2"], [2], normalize([1.0] * DIMENSIONS))

    everywhere = base.search(terms, most=200)
    filtered = base.search(terms, most=200, documents=[first[0]])

    assert unfinished not in {match.document_id for match in everywhere}
    assert {match.document_id for match in filtered} == {first[0]}
    assert len(filtered) == 50


def test_disabled_document_of_a_large_base_is_not_found(base: Base, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(20, monkeypatch)
    base.fill(200, Random(5))
    disabled = base.add([({"w1", "w2"}, normalize([1.0] * DIMENSIONS))] * 40)
    base.build_indexes()
    terms = Terms(["w1", "w2"], [2], normalize([1.0] * DIMENSIONS))
    before = {match.document_id for match in base.search(terms, most=200)}

    with base.database.transaction() as tx:
        documents.update(tx, base.tenant_id, base.id, disabled, enabled=False)

    after = {match.document_id for match in base.search(terms, most=200)}
    assert (disabled in before, disabled in after, bool(after)) == (True, False, True)


def test_hidden_chunk_of_a_large_base_is_not_found_and_a_written_one_is(base: Base, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(20, monkeypatch)
    base.fill(200, Random(5))
    vector = normalize([1.0] * DIMENSIONS)
    document = base.add([({"w1", "w2"}, vector)] * 3)
    base.build_indexes()
    place = ChunkPlace(base.tenant_id, base.id, document)

    with base.database.transaction() as tx:
        written_chunks.switch(tx, place, [0, 1], available=False)
        written = written_chunks.add(tx, place, "w1 w2", ChunkIndex(["w1", "w2"], vector, 0), details={})

    found = base.search(Terms(["w1", "w2"], [2], vector), most=200)
    assert {match.position for match in found if match.document_id == document} == {2, written}
    assert (found[0].position, found[1].position) == (2, written)


def test_indexes_of_a_deleted_base_are_dropped_with_the_next_build(database: Database, monkeypatch: pytest.MonkeyPatch):
    gone, other = Base(database), Base(database, "Other")
    index_bases_above(20, monkeypatch)
    gone.fill(50, Random(1))
    gone.build_indexes()
    with database.transaction() as tx:
        tx.execute(text("delete from knowledge_bases where id = :id"), id=gone.id)
    other.fill(50, Random(1))

    other.build_indexes()

    assert (gone.indexes(), len(other.indexes())) == ([], 2)


def test_indexes_are_built_once_and_again_when_the_base_has_doubled(base: Base, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(20, monkeypatch)
    base.fill(100, Random(1))
    base.build_indexes()

    with base.database.transaction() as tx:
        chunk_indexes.mark_due(tx, base.tenant_id, base.id)
        is_due = chunk_indexes.is_due(tx)
    base.fill(150, Random(2))
    with base.database.transaction() as tx:
        chunk_indexes.mark_due(tx, base.tenant_id, base.id)
        is_due_again = chunk_indexes.is_due(tx)

    assert (is_due, is_due_again) == (False, True)


def test_base_that_is_parsed_again_with_another_model_gets_a_new_index(base: Base, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(20, monkeypatch)
    base.fill(50, Random(1))
    base.build_indexes()
    with base.database.transaction() as tx:
        documents.start_processing(tx, base.tenant_id, base.id, [document_id for document_id, _ in base.chunks])
    base.add([({"w1", f"n{at}"}, normalize([1.0, at, 1.0])) for at in range(60)])
    terms = Terms(["w1", "n3"], [2], normalize([1.0, 3.0, 1.0]))

    before = base.search(terms, most=1)
    base.build_indexes()
    after = base.search(terms, most=1)

    assert before[0].position == after[0].position == 3
    assert after[0].similarity == pytest.approx(1, abs=5e-3)
    with base.database.transaction() as tx:
        definition = tx.scalar(
            text("select indexdef from pg_indexes where indexname like :name"), name=f"%vectors_{base.id.hex}"
        )
    assert "halfvec(3)" in definition


def test_cancelled_build_ends_and_is_done_by_the_next_worker(base: Base, monkeypatch: pytest.MonkeyPatch):
    index_bases_above(20, monkeypatch)
    base.fill(100, Random(1))
    with base.database.transaction() as tx:
        chunk_indexes.mark_due(tx, base.tenant_id, base.id)

    async def cancel_build() -> None:
        with base.database.transaction() as blocking:  # the build waits for the end of this one
            blocking.execute(text("update knowledge_chunks set position = position where base_id = :id"), id=base.id)
            building = asyncio.create_task(Indexing(base.database).next())
            with base.database.statements() as tx:
                while not tx.scalar(BUILDS):
                    await asyncio.sleep(0.01)
            building.cancel()
            with pytest.raises(asyncio.CancelledError):
                await building

    asyncio.run(asyncio.wait_for(cancel_build(), 30))
    base.build_indexes()

    assert len(base.indexes()) == 2


@pytest.mark.parametrize("is_indexed", [False, True])
def test_vector_of_another_length_is_refused_with_both_lengths(
    base: Base, is_indexed: bool, monkeypatch: pytest.MonkeyPatch
):
    base.fill(100, Random(1))
    if is_indexed:
        index_bases_above(20, monkeypatch)
        base.build_indexes()

    with pytest.raises(ToolError, match="now returns vectors of 3 numbers, and stored vectors have 16"):
        base.search(Terms(["w1"], [1], [1.0, 0.0, 0.0]))


def test_vector_of_another_length_is_refused_without_pgvector(plain_database: Database):
    base = Base(plain_database)
    base.fill(50, Random(1))

    with pytest.raises(ToolError, match="now returns vectors of 3 numbers, and stored vectors have 16"):
        base.search(Terms(["w1"], [1], [1.0, 0.0, 0.0]))


def test_chunks_of_the_previous_release_are_converted_and_found(base: Base):
    vector = normalize([1.0] * DIMENSIONS)
    document_id = base.add([({"placeholder"}, vector)])
    with base.database.transaction() as tx:
        tx.execute(
            text("""
                update knowledge_chunks set text = 'Refunds take five days', lexemes = null, embedding = null,
                    words = :words, vector = :vector where document_id = :id
            """),
            words=struct.pack("<I", 7),
            vector=struct.pack(f"<{DIMENSIONS}f", *vector),
            id=document_id,
        )
    terms = Terms(["refund"], [1], vector)
    before = base.search(terms)

    asyncio.run(Indexing(base.database).run_all())

    with base.database.transaction() as tx:
        assert not former_rows.is_waiting(tx)
    assert before == []
    (match,) = base.search(terms)
    assert (match.by_vector, match.by_words) == (pytest.approx(1, abs=2e-3), pytest.approx(1))


def test_worker_without_the_library_leaves_former_rows_to_others(base: Base, monkeypatch: pytest.MonkeyPatch):
    base.add([({"placeholder"}, None)])
    with base.database.transaction() as tx:
        tx.execute(text("update knowledge_chunks set lexemes = null where base_id = :id"), id=base.id)
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    tokenizer._stemmer.cache_clear()
    tokenizer._stem.cache_clear()

    asyncio.run(Indexing(base.database).run_all())

    with base.database.transaction() as tx:
        assert former_rows.is_waiting(tx)


def test_another_tenant_finds_nothing_in_a_base(base: Base, monkeypatch: pytest.MonkeyPatch):
    base.fill(100, Random(1))
    index_bases_above(20, monkeypatch)
    other = Base(base.database)

    for _ in range(2):
        found = chunk_search.search(
            base.database, other.tenant_id, [SearchedBases([base.id], questions(1)[0])],
            documents=None, by_vector=0.5, threshold=0.0, most=5, page_end=5,
        )  # fmt: skip
        assert found == []
        base.build_indexes()


@pytest.mark.parametrize("word", ["o'neil", "a\\b", "a & b | !c", "x:*", "", "'", "退款", "é" * 200])
def test_word_of_any_characters_is_searched_for_as_it_is(base: Base, word: str):
    words = {word} if word else {"other"}
    base.add([(words, None), ({"unrelated"}, None)])

    found = base.search(Terms([word], [1]) if word else Terms([], [0]))

    assert [round(match.by_words, 6) for match in found] == ([1, 0] if word else [0, 0])


def test_rare_words_choose_the_candidates():
    frequencies = {"the": 90_000, "of": 50_000, "refund": 3_000, "fee": 900}

    both = chunk_search.rare_words(["the", "refund", "fee", "unheard"], frequencies, 100_000)
    common = chunk_search.rare_words(["the", "of"], frequencies, 100_000)

    assert both == "'unheard' | 'fee' | 'refund'"
    assert common == "'of' & 'the'"
    assert chunk_search.rare_words([], {}, 100_000) == ""


def test_best_wording_counts(base: Base):
    base.add([(passage_words("refunds take five days", "English"), None), ({"other"}, None)])

    (best, _) = base.search(Terms(["remboursement", "refund", "day"], [1, 2]))

    assert best.by_words == pytest.approx(1)
    assert similarity.as_tsquery("it's") == "'it''s'"
