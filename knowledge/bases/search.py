"""Search in Easel's own knowledge bases (docs/tools.md).

    search = KnowledgeBaseSearch(database, models)
    bases = await search.find_bases(tenant_id, ["policies"])
    found = await search.search(tenant_id, list(bases.values()), SearchQuery("How long ...?"))

If an optional step that needs a chat model fails (translation, a filter written by a model), the search continues
without it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID

import structlog

from canvas.errors import NodeFailure, ToolError
from canvas.ids import TenantId
from knowledge.bases import metadata_filters, query_expansion, table_of_contents
from knowledge.index import tokenizer
from knowledge.index.vectors import normalize
from knowledge.models import Models, first_model_of
from knowledge.names import find_named
from providers.models.types.chat import ChatModel
from store.db.database import Database
from store.knowledge import bases as knowledge_bases
from store.knowledge import chunk_search
from store.knowledge import chunks as knowledge_chunks
from store.knowledge.bases import SearchableBase
from store.knowledge.chunk_search import ChunkMatch, SearchedBases
from store.knowledge.similarity import Terms

log = structlog.get_logger()

MAX_DOCUMENT_CHUNKS = 100_000  # chunks
MAX_HEADING_CHUNKS = 2000  # chunks of a document that are searched for headings
MIN_RERANKED = 64  # passages that a reranker gets at least
NO_GRAPH = (
    "No knowledge graph is configured for this deployment. Switch use_kg off, or search a RAGFlow server that has one."
)


class KnowledgeGraph(Protocol):
    """A knowledge graph. Easel has no implementation; a deployment may add one."""

    async def describe(self, tenant_id: TenantId, base_ids: Sequence[UUID], question: str) -> str:
        """Return the graph's text about a question, "" for none."""
        ...


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search and its options; the defaults are those of the node Retrieval."""

    question: str
    threshold: float = 0.2
    word_weight: float = 0.5  # weight of the words; the rest is the vector's
    limit: int = 8
    offset: int = 0
    candidates: int = 1024
    rerank_id: str = ""
    languages: Sequence[str] = ()
    filter: Mapping[str, Any] = field(default_factory=dict[str, Any])
    document_ids: Sequence[UUID] | None = None  # None: any; if given, the filter is ignored
    use_graph: bool = False
    use_table_of_contents: bool = False  # a chat model picks sections from the table of contents of the best document
    add_key_words: bool = False  # a chat model adds key words to the query
    highlight: bool = False  # passages also have `highlight`, with the words of the question marked


@dataclass(frozen=True, slots=True)
class QueryVariants:
    """A query in one or more wordings, its vector if the bases have an embedding model, and the documents to search."""

    variants: Sequence[str]
    vector: Sequence[float] | None = None
    documents: frozenset[UUID] | None = None

    def terms(self, language: str) -> Terms:
        """Return the words of all wordings; their number is the same for every language."""
        words, wordings = list[str](), list[int]()
        for variant in self.variants:
            found = tokenizer.query_words(variant, language)[: tokenizer.MAX_QUERY_WORDS - len(words)]
            words += found
            wordings.append(len(found))
        return Terms(words, wordings, normalize(self.vector) if self.vector is not None else None)


class KnowledgeBaseSearch:
    """Searches in the knowledge bases of all tenants."""

    def __init__(self, database: Database, models: Models, graph: KnowledgeGraph | None = None) -> None:
        self._database = database
        self._models = models
        self._graph = graph

    async def find_bases(self, tenant_id: TenantId, entries: Sequence[str]) -> dict[str, SearchableBase]:
        """Return the tenant's bases by the entries that name them; other entries are left out."""
        return await asyncio.to_thread(self._find_bases, tenant_id, entries)

    def _find_bases(self, tenant_id: TenantId, entries: Sequence[str]) -> dict[str, SearchableBase]:
        with self._database.statements() as tx:
            return find_named(entries, lambda ids, names: knowledge_bases.find_by_id_or_name(tx, tenant_id, ids, names))

    async def search(self, tenant_id: TenantId, bases: Sequence[SearchableBase], query: SearchQuery) -> dict[str, Any]:
        """Return {"chunks", "doc_aggs", "total"} with RAGFlow's names, the best match first. Raises NodeFailure."""
        models = {base.embedding_model for base in bases}
        if len(models) > 1:
            raise ToolError("Knowledge bases use different embedding models.")
        documents = await self._allowed_documents(tenant_id, bases, query)
        if documents is not None and not documents:
            return {"chunks": [], "doc_aggs": [], "total": 0}
        variants = await self._query_variants(tenant_id, query)
        terms = QueryVariants(variants, await self._vector(tenant_id, models.pop(), variants), documents)
        near = await self._best_matches(tenant_id, bases, terms, query)
        if query.use_table_of_contents and near:
            near = await self._prefer_sections(tenant_id, bases, terms, query, near)
        page = near[query.offset : query.offset + query.limit]
        chunks: Sequence[Mapping[str, Any]] = await asyncio.to_thread(self._load_chunks, tenant_id, page)
        if query.highlight:
            chunks = await asyncio.to_thread(_highlight, chunks, bases, variants)
        if query.use_graph:
            chunks = [*await self._graph_chunk(tenant_id, bases, query), *chunks]
        return {"chunks": chunks, "doc_aggs": _count_by_document(chunks), "total": len(near)}

    # -- documents and query --------------------------------------------------------------------------------------
    async def _allowed_documents(
        self, tenant_id: TenantId, bases: Sequence[SearchableBase], query: SearchQuery
    ) -> frozenset[UUID] | None:
        """Return the documents to search; None for all of them."""
        base_ids = [base.id for base in bases]
        if query.document_ids:
            owned = await asyncio.to_thread(self._filter_owned, tenant_id, base_ids, query.document_ids)
            return frozenset(owned)
        method = query.filter.get("method")
        if method not in ("manual", "auto", "semi_auto"):
            return None
        metadata = await asyncio.to_thread(self._metadata, tenant_id, base_ids)
        if method == "manual":
            conditions = metadata_filters.parse_conditions(query.filter.get("manual") or ())
            logic = str(query.filter.get("logic") or "and")
            return frozenset(metadata_filters.matching_documents(metadata, conditions, logic)) if conditions else None
        only = (
            query_expansion.semi_automatic_keys(query.filter.get("semi_auto") or ()) if method == "semi_auto" else None
        )
        try:
            model = await self._chat(tenant_id)
            conditions, logic = await query_expansion.write_conditions(
                query.question, [*metadata.values()], model, only
            )
        except NodeFailure as failure:
            log.warning("metadata_filter_left_out", tenant_id=str(tenant_id), error=failure.message)
            return None
        found = metadata_filters.matching_documents(metadata, conditions, logic) if conditions else set[UUID]()
        return frozenset(found) or None  # a model may have written conditions that no document fulfils

    def _filter_owned(self, tenant_id: TenantId, base_ids: Sequence[UUID], ids: Sequence[UUID]) -> set[UUID]:
        with self._database.statements() as tx:
            return knowledge_chunks.filter_owned(tx, tenant_id, base_ids, ids)

    def _metadata(self, tenant_id: TenantId, base_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        with self._database.statements() as tx:
            return knowledge_chunks.load_metadata(tx, tenant_id, base_ids)

    async def _query_variants(self, tenant_id: TenantId, query: SearchQuery) -> Sequence[str]:
        """Return the question, its translations and its key words."""
        variants = await self._translate(tenant_id, query)
        if not query.add_key_words:
            return variants
        try:
            found = await query_expansion.extract_key_words(query.question, await self._chat(tenant_id))
        except NodeFailure as failure:
            log.warning("key_words_left_out", tenant_id=str(tenant_id), error=failure.message)
            return variants
        return list(dict.fromkeys([*variants, *filter(None, [found])]))

    async def _translate(self, tenant_id: TenantId, query: SearchQuery) -> Sequence[str]:
        languages = [str(language) for language in query.languages if str(language).strip()]
        if not languages:
            return [query.question]
        try:
            return await query_expansion.translate(query.question, languages, await self._chat(tenant_id))
        except NodeFailure as failure:
            log.warning("translation_left_out", tenant_id=str(tenant_id), error=failure.message)
            return [query.question]

    async def _vector(self, tenant_id: TenantId, model: str, variants: Sequence[str]) -> Sequence[float] | None:
        if not model:
            return None
        embedder = await self._models.embedder(tenant_id, model)
        return (await embedder.embed(["\n".join(variants)])).vectors[0]

    async def _chat(self, tenant_id: TenantId) -> ChatModel:
        """Open the tenant's default chat model. Raises ToolError if there is none."""
        llm_id = first_model_of(await asyncio.to_thread(self._models.accounts, tenant_id), "chat")
        if llm_id is None:
            raise ToolError("This tenant has no default chat model. Add one: easel models add VENDOR --model NAME")
        return await self._models.open(tenant_id, llm_id)

    # -- search ---------------------------------------------------------------------------------------------------
    async def _best_matches(
        self, tenant_id: TenantId, bases: Sequence[SearchableBase], terms: QueryVariants, query: SearchQuery
    ) -> Sequence[ChunkMatch]:
        candidates = max(query.offset + query.limit, MIN_RERANKED) if query.rerank_id else query.candidates
        near = await self._score(
            tenant_id,
            bases,
            terms,
            query,
            threshold=0.0 if query.rerank_id else query.threshold,
            limit=max(candidates, query.offset + query.limit),
        )
        if not query.rerank_id or not near:
            return near
        reranker = await self._models.reranker(tenant_id, query.rerank_id)
        shown = await asyncio.to_thread(self._load_rows, tenant_id, near)
        there = [each for each in near if (each.document_id, each.position) in shown]
        scores = await reranker.rank(query.question, [shown[each.document_id, each.position].text for each in there])
        share = 1 - query.word_weight
        ranked = [
            replace(each, similarity=share * score + query.word_weight * each.by_words, by_vector=score)
            for each, score in zip(there, scores, strict=True)
        ]
        return sorted((each for each in ranked if each.similarity >= query.threshold), key=_sort_key)

    async def _score(
        self,
        tenant_id: TenantId,
        bases: Sequence[SearchableBase],
        terms: QueryVariants,
        query: SearchQuery,
        *,
        limit: int,
        threshold: float = 0.0,
    ) -> Sequence[ChunkMatch]:
        by_vector = 1 - query.word_weight if terms.vector is not None else 0.0
        languages = {base.language for base in bases}
        groups = [
            SearchedBases([base.id for base in bases if base.language == language], terms.terms(language))
            for language in sorted(languages)
        ]
        return await asyncio.to_thread(
            chunk_search.search,
            self._database,
            tenant_id,
            groups,
            documents=terms.documents,
            by_vector=by_vector,
            threshold=threshold,
            most=limit,
            page_end=query.offset + query.limit,
        )

    async def _prefer_sections(
        self,
        tenant_id: TenantId,
        bases: Sequence[SearchableBase],
        terms: QueryVariants,
        query: SearchQuery,
        near: Sequence[ChunkMatch],
    ) -> Sequence[ChunkMatch]:
        """Put the passages of sections that a model picks before the others.

        The model gets the headings of one document, the one with the highest total similarity.
        """
        fits = dict[UUID, float]()
        for each in near[: query.offset + query.limit]:
            fits[each.document_id] = fits.get(each.document_id, 0.0) + each.similarity
        document_id = max(fits, key=lambda each: fits[each])
        headings = table_of_contents.limit_headings(await asyncio.to_thread(self._headings, tenant_id, document_id))
        if not headings:
            log.info("no_table_of_contents", tenant_id=str(tenant_id), document_id=str(document_id))
            return near
        try:
            picked = await query_expansion.pick_sections(query.question, headings, await self._chat(tenant_id))
        except NodeFailure as failure:
            log.warning("contents_left_out", tenant_id=str(tenant_id), error=failure.message)
            return near
        if not picked:
            return near
        whole = await self._score(
            tenant_id, bases, replace(terms, documents=frozenset({document_id})), query, limit=MAX_DOCUMENT_CHUNKS
        )
        end = max(each.position for each in whole)
        positions = {at for heading in picked for at in table_of_contents.section_chunks(headings, heading, end)}
        known = {(each.document_id, each.position): each for each in near}
        best = sorted(
            (known.get((document_id, each.position), each) for each in whole if each.position in positions),
            key=_sort_key,
        )[: query.limit]
        first = {each.position for each in best}
        return [*best, *(each for each in near if each.document_id != document_id or each.position not in first)]

    def _headings(self, tenant_id: TenantId, document_id: UUID) -> list[table_of_contents.SectionHeading]:
        with self._database.statements() as tx:
            found = knowledge_chunks.find_with_headings(tx, tenant_id, document_id, most=MAX_HEADING_CHUNKS)
        return table_of_contents.find_headings(found)

    async def _graph_chunk(
        self, tenant_id: TenantId, bases: Sequence[SearchableBase], query: SearchQuery
    ) -> Sequence[Mapping[str, Any]]:
        if self._graph is None:
            raise ToolError(NO_GRAPH)
        text = await self._graph.describe(tenant_id, [base.id for base in bases], query.question)
        name = "Related content in Knowledge Graph"
        about = {"chunk_id": name, "doc_id": "", "docnm_kwd": name, "kb_id": bases[0].id.hex, "similarity": 1.0}
        return (
            [{**about, "content_with_weight": text, "vector_similarity": 1.0, "term_similarity": 0.0}] if text else []
        )

    # -- results --------------------------------------------------------------------------------------------------
    def _load_rows(self, tenant_id: TenantId, near: Sequence[ChunkMatch]) -> Mapping[tuple[UUID, int], Any]:
        with self._database.statements() as tx:
            return knowledge_chunks.load_chunks(tx, tenant_id, [(each.document_id, each.position) for each in near])

    def _load_chunks(self, tenant_id: TenantId, near: Sequence[ChunkMatch]) -> list[Mapping[str, Any]]:
        rows = self._load_rows(tenant_id, near)
        return [
            _chunk_json(each, row) for each in near if (row := rows.get((each.document_id, each.position))) is not None
        ]


def public_chunk_id(document_id: UUID, position: int) -> str:
    """Return the public id of a passage. It changes when the document is ingested again."""
    return f"{document_id.hex}{position:08x}"


def public_image_id(base_id: UUID, chunk_id: str) -> str:
    """Return the public id of the picture of a passage."""
    return f"{base_id.hex}-{chunk_id}"


def _chunk_json(near: ChunkMatch, row: Any) -> Mapping[str, Any]:
    chunk_id = public_chunk_id(near.document_id, near.position)
    details = row.details or {}
    return {
        "chunk_id": chunk_id,
        "content_with_weight": row.text,
        "doc_id": near.document_id.hex,
        "docnm_kwd": row.name,
        "kb_id": row.base_id.hex,
        "important_kwd": details.get("important_keywords", []),
        "question_kwd": details.get("questions", []),
        "tag_kwd": details.get("tag_kwd", []),
        "image_id": public_image_id(row.base_id, chunk_id) if row.has_image else "",
        "similarity": round(near.similarity, 6),
        "vector_similarity": round(near.by_vector, 6),
        "term_similarity": round(near.by_words, 6),
        "positions": details.get("positions", []),
        "doc_type_kwd": "image" if row.has_image else "",
        "mom_id": "",
        "row_id": None,
        "document_metadata": dict(row.metadata),
    }


def _highlight(
    chunks: Sequence[Mapping[str, Any]], bases: Sequence[SearchableBase], variants: Sequence[str]
) -> list[Mapping[str, Any]]:
    """Return the passages, each with its text as `highlight` with the words of the question marked."""
    languages = {base.id.hex: base.language for base in bases}
    words = {
        language: {word for variant in variants for word in tokenizer.query_words(variant, language)}
        for language in set(languages.values())
    }
    marked = list[Mapping[str, Any]]()
    for chunk in chunks:
        language = languages[chunk["kb_id"]]
        marked.append(
            {**chunk, "highlight": tokenizer.highlight(chunk["content_with_weight"], words[language], language)}
        )
    return marked


def _count_by_document(chunks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the number of passages of each document, the most first."""
    counts = dict[tuple[str, str], int]()
    for chunk in chunks:
        key = chunk["docnm_kwd"], chunk["doc_id"]
        counts[key] = counts.get(key, 0) + 1
    documents = [{"doc_name": name, "doc_id": doc_id, "count": count} for (name, doc_id), count in counts.items()]
    return sorted(documents, key=lambda each: -int(str(each["count"])))


def _sort_key(near: ChunkMatch) -> tuple[float, str, int]:
    return -near.similarity, near.document_id.hex, near.position
