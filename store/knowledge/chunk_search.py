"""Search in the chunks of knowledge bases: one statement that scores and ranks them.

Up to EXACT_CHUNKS chunks are all scored. A larger base has indexes (`store/knowledge/chunk_indexes.py`), which give two
lists of candidates: the nearest vectors, and the chunks that have the query's rarer words. A large base that has none
yet is scored in full, which is slow and exact.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import TenantId
from store.db.database import Database
from store.db.transaction import Transaction
from store.knowledge import similarity
from store.knowledge.chunks import FIRST_WRITTEN
from store.knowledge.similarity import ALL, KnownFrequency, Terms

EXACT_CHUNKS = 10_000  # chunks of a base that are all scored: 20 ms
MIN_NEAREST = 400  # candidates that the index of vectors gives at least
MAX_EF_SEARCH = 1000  # pgvector's limit
MAX_WORDED = 4000  # candidates that the index of words gives, about
WORDED_LIMIT = 10_000  # candidates that the index of words gives at most
COMMON_SHARE = 1 / 500  # of a base's chunks; the frequency of words that are more common is stored
SEARCH_TIMEOUT = timedelta(seconds=60)

SETTINGS = text("""
    select set_config('plan_cache_mode', 'force_custom_plan', true), set_config('hnsw.ef_search', :ef_search, true),
        set_config('hnsw.iterative_scan', 'strict_order', true), set_config('jit', 'off', true)
""")
PLAN = text("""
    select b.id, b.indexed_chunks, b.index_dimensions,
        coalesce(sum(case when d.status = 'done' then d.chunks else d.written_chunks end) filter (where d.enabled
            and (cast(:document_ids as uuid[]) is null or d.id = any(cast(:document_ids as uuid[])))), 0) as chunks,
        coalesce(bool_or(
            d.chunks > 0 and (not d.enabled or (d.status <> 'done' and d.chunks > d.written_chunks))
        ), false) as has_hidden
    from knowledge_bases b left join knowledge_documents d on d.base_id = b.id and d.tenant_id = b.tenant_id
    where b.tenant_id = :tenant_id and b.id = any(cast(:base_ids as uuid[])) group by b.id
""")
IS_PLAIN = text("""
    select atttypid = 'real[]'::regtype from pg_attribute
    where attrelid = 'knowledge_chunks'::regclass and attname = 'embedding' and not attisdropped
""")
FREQUENCIES = text("""
    select base_id, word, chunks from knowledge_base_words
    where base_id = any(cast(:base_ids as uuid[])) and word = any(cast(:words as text[]))
""")

_HAS_TEXT = f"(d.status = 'done' or r.position >= {FIRST_WRITTEN})"  # chunks that people wrote need no parsing
_ALL_OF_BASES = f"""
    select {{columns}} from knowledge_documents d join knowledge_chunks r on r.document_id = d.id
    where d.tenant_id = :tenant_id and r.tenant_id = :tenant_id and d.base_id = any(cast(:{{bases}} as uuid[]))
        and r.base_id = any(cast(:{{bases}} as uuid[])) and {_HAS_TEXT} and d.enabled and r.available
        and r.lexemes is not null
        and (cast(:document_ids as uuid[]) is null or d.id = any(cast(:document_ids as uuid[])))
"""  # noqa: S608 (built of this module's own text)
_CANDIDATES = """
    select {columns} from knowledge_chunks r
    where r.base_id = '{base_id}' and r.tenant_id = :tenant_id and r.available and {of_list} and {is_searched}
"""
_IS_SEARCHED = f"""
    (select {_HAS_TEXT} and d.enabled and d.tenant_id = :tenant_id
        and (cast(:document_ids as uuid[]) is null or d.id = any(cast(:document_ids as uuid[])))
    from knowledge_documents d where d.id = r.document_id)
"""  # noqa: S608 (built of this module's own text)


@dataclass(frozen=True, slots=True)
class ChunkMatch:
    """A chunk and its similarities, each from 0 to 1."""

    document_id: UUID
    position: int
    similarity: float
    by_vector: float
    by_words: float


@dataclass(frozen=True, slots=True)
class SearchedBases:
    """Bases of one language, and the query in words of that language; the number of words is that of every language."""

    base_ids: Sequence[UUID]
    terms: Terms


@dataclass
class _Statement:
    """A statement in the making: its selects and parameters, and what is known of parts that an index searches."""

    selects: list[str] = field(default_factory=list[str])
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])
    known: dict[int, KnownFrequency] = field(default_factory=dict[int, KnownFrequency])
    known_rows: int = 0


def search(
    database: Database,
    tenant_id: TenantId,
    groups: Sequence[SearchedBases],
    *,
    documents: Collection[UUID] | None,
    by_vector: float,
    threshold: float,
    most: int,
    page_end: int,
) -> list[ChunkMatch]:
    """Return the most similar chunks, the best match first, `most` at most.

    `documents` limits the search, None: all documents. `page_end`: how many matches must be right; of a large base
    more candidates are compared for a later page. Raises ToolError for vectors of another length than the query's.
    """
    document_ids = None if documents is None else list(documents)
    with database.transaction() as tx:
        tx.extend_time_limit(SEARCH_TIMEOUT)
        nearest = max(MIN_NEAREST, 2 * page_end)
        tx.send(SETTINGS, ef_search=str(min(nearest, MAX_EF_SEARCH)))
        statement = _build(tx, tenant_id, groups, document_ids, nearest)
        if not statement.selects:
            return []
        sql = similarity.rank(
            statement.selects, ("document_id", "position"), "document_id, position", groups[0].terms, statement.known
        )
        with similarity.dimension_errors(groups[0].terms):
            rows = tx.rows(
                text(sql),
                tenant_id=tenant_id,
                by_vector=by_vector,
                threshold=threshold,
                most=most,
                known_rows=statement.known_rows,
                **statement.parameters,
            )
    return [ChunkMatch(*row) for row in rows]


def _build(
    tx: Transaction,
    tenant_id: TenantId,
    groups: Sequence[SearchedBases],
    document_ids: Sequence[UUID] | None,
    nearest: int,
) -> _Statement:
    base_ids = [base_id for group in groups for base_id in group.base_ids]
    plans = tx.send(PLAN, tenant_id=tenant_id, base_ids=base_ids, document_ids=document_ids)
    plain = tx.send(IS_PLAIN)
    words = {word for group in groups for word in group.terms.words}
    frequencies = _frequencies(tx, base_ids, words)
    plan_of = {plan.id: plan for plan in plans.rows() if plan.chunks}
    made = _Statement()
    for number, group in enumerate(groups):
        prefix, before = f"w{number}_", len(made.selects)
        cosine = similarity.cosine(group.terms, is_plain=bool(plain.scalar()))
        exact = [
            base_id
            for base_id in group.base_ids
            if base_id in plan_of and not _is_indexed(plan_of[base_id], group.terms)
        ]
        if exact:
            bases = f"bases_{number}"
            columns = _columns(group.terms, cosine, prefix, ALL)
            made.selects.append(_ALL_OF_BASES.format(columns=columns, bases=bases))
            made.parameters |= {bases: exact, "document_ids": document_ids}
        for base_id in group.base_ids:
            if base_id in plan_of and base_id not in exact:
                part = len(made.selects) + 1
                columns = _columns(group.terms, cosine, prefix, part)
                plan = plan_of[base_id]
                if document_ids is not None or plan.has_hidden:
                    made.parameters["document_ids"] = document_ids
                    is_searched = _IS_SEARCHED
                else:
                    is_searched = "true"
                lists = _candidates(made, group.terms, plan, frequencies.get(base_id, {}), part, nearest)
                selects = [
                    f"({_CANDIDATES.format(columns=columns, base_id=base_id, of_list=each, is_searched=is_searched)}"
                    f" {order} limit {limit})"
                    for each, order, limit in lists
                ]
                if selects:
                    made.selects.append(" union ".join(selects))
                    made.known_rows += int(plan.chunks)
        if len(made.selects) > before:
            made.parameters |= similarity.word_parameters(group.terms.words, prefix)
    if groups and groups[0].terms.vector is not None:
        made.parameters["vector"] = list(groups[0].terms.vector)
    return made


def _is_indexed(plan: Any, terms: Terms) -> bool:
    """Whether the base's indexes are used: not if none has its vectors, or they have another length by now."""
    has_vectors = terms.vector is None or plan.index_dimensions == len(terms.vector)
    return plan.indexed_chunks > 0 and plan.chunks > EXACT_CHUNKS and has_vectors


def _columns(terms: Terms, cosine: str, prefix: str, part: int) -> str:
    return similarity.columns("r.document_id, r.position", cosine, len(terms.words), prefix, part)


def _candidates(
    made: _Statement, terms: Terms, plan: Any, frequencies: Mapping[str, int], part: int, nearest: int
) -> list[tuple[str, str, int]]:
    """Return condition, order and length of a large base's lists of candidates: the nearest vectors, and the chunks
    with the query's rarer words. Adds the parameters and the frequencies of words.
    """
    lists = list[tuple[str, str, int]]()
    if terms.vector is not None:
        dimensions = int(plan.index_dimensions)
        vector = f"cast(cast(:vector as real[]) as halfvec({dimensions}))"
        order = f"order by r.embedding::halfvec({dimensions}) <#> {vector}"
        lists.append((f"vector_dims(r.embedding) = {dimensions}", order, nearest))
    if rare := rare_words(terms.words, frequencies, int(plan.indexed_chunks)):
        made.parameters[f"rare_{part}"] = rare
        lists.append((f"r.lexemes @@ cast(:rare_{part} as tsquery)", "", WORDED_LIMIT))
    for at, word in enumerate(terms.words):
        if lists and (rows := frequencies.get(word)):
            before = made.known.get(at, KnownFrequency(0, ()))
            made.known[at] = KnownFrequency(before.rows + rows, (*before.parts, part))
    return lists


def rare_words(words: Sequence[str], frequencies: Mapping[str, int], chunks: int) -> str:
    """Return the tsquery of the index's candidates; "" without words.

    Candidates have one of the rarest words: of those that `frequencies` does not know, and of further ones until about
    MAX_WORDED chunks have one. If one word alone is more common than that, they have it and the next ones, too.
    """
    unknown = [word for word in words if word not in frequencies]
    common = sorted((frequencies[word], word) for word in words if word in frequencies)
    room = MAX_WORDED - len(unknown) * chunks * COMMON_SHARE / 2
    chosen = list(unknown)
    for count, word in common:
        if count > room:
            break
        chosen.append(word)
        room -= count
    if chosen:
        return " | ".join(map(similarity.as_tsquery, chosen))
    together, expected = list[str](), float(chunks)
    for count, word in common:
        together.append(word)
        expected *= count / max(1, chunks)
        if expected <= MAX_WORDED:
            break
    return " & ".join(map(similarity.as_tsquery, together))


def _frequencies(tx: Transaction, base_ids: Sequence[UUID], words: Collection[str]) -> dict[UUID, dict[str, int]]:
    found = dict[UUID, dict[str, int]]()
    for row in tx.rows(FREQUENCIES, base_ids=list(base_ids), words=list(words)):
        found.setdefault(row.base_id, {})[row.word] = row.chunks
    return found
