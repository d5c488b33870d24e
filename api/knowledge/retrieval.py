"""The route that searches knowledge bases, with RAGFlow's request and reply."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from api.http.errors import DATA, RequestRefused, not_found
from api.http.replies import parse_id, success
from api.http.schemas import Body
from api.knowledge import knowledge_wire
from api.knowledge.datasets import required_ids
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContextDep, run_in_thread
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_RUN
from canvas.errors import NodeFailure
from canvas.ids import TenantId
from knowledge.bases.search import SearchQuery
from store.knowledge import chunks

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_RUN])

MOST_SHOWN = 1000  # passages per page
MAX_CANDIDATES = 10_000


class RetrievalBody(Body):
    """A question. `document_ids` override `metadata_condition`.

    `keyword`: the tenant's chat model adds words to search for. `highlight`: each passage is added with its matches in
    `<em>`; the rest of the text is unchanged and may be HTML.
    """

    question: str = Field(default="", max_length=100_000)
    dataset_ids: list[str] = Field(default_factory=list[str])
    document_ids: list[str] = Field(default_factory=list[str])
    page: int = Field(default=1, ge=1, le=10**6)
    page_size: int = Field(default=30, ge=1)
    similarity_threshold: float = Field(default=0.2, ge=0, le=1)
    vector_similarity_weight: float = Field(default=0.3, ge=0, le=1)
    top_k: int = 1024
    rerank_id: str = ""
    keyword: bool = False
    highlight: bool = False
    cross_languages: list[str] = Field(default_factory=list[str])
    use_kg: bool = False
    toc_enhance: bool = False
    metadata_condition: dict[str, Any] = Field(default_factory=dict[str, Any])


@router.post("/retrieval", openapi_extra=body_openapi(RetrievalBody))
async def retrieve(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody) -> Response:
    """Find the passages that match a question best."""
    fields = parse_body(RetrievalBody, body)
    ids = required_ids(fields.dataset_ids, "dataset_ids")
    if fields.top_k <= 0:
        raise RequestRefused(DATA, "`top_k` must be greater than 0")
    bases = await context.library.find_bases(principal.tenant_id, ids)
    for each in ids:
        if parse_id(each) is None or each not in bases:
            raise not_found(f"You don't own the dataset {each}.")
    chosen = list(bases.values())
    documents = [document for each in fields.document_ids if (document := parse_id(each)) is not None]
    known = await run_in_thread(
        lambda: _find_known_documents(context, principal.tenant_id, [base.id for base in chosen], documents)
    )
    for each in fields.document_ids:
        if parse_id(each) not in known:
            raise not_found(f"The datasets don't own the document {each}")
    if not fields.question.strip():
        return success({"chunks": [], "doc_aggs": [], "total": 0})
    conditions = fields.metadata_condition.get("conditions") or []
    query = SearchQuery(
        fields.question,
        threshold=fields.similarity_threshold,
        word_weight=1 - fields.vector_similarity_weight,
        limit=min(fields.page_size, MOST_SHOWN),
        offset=(fields.page - 1) * min(fields.page_size, MOST_SHOWN),
        candidates=min(fields.top_k, MAX_CANDIDATES),
        rerank_id=fields.rerank_id,
        languages=fields.cross_languages,
        filter={"method": "manual", "logic": fields.metadata_condition.get("logic"), "manual": conditions},
        document_ids=documents or None,
        use_graph=fields.use_kg,
        use_table_of_contents=fields.toc_enhance,
        add_key_words=fields.keyword,
        highlight=fields.highlight,
    )
    try:
        found = await context.library.search(principal.tenant_id, chosen, query)
    except NodeFailure as failure:
        raise RequestRefused(DATA, failure.message) from failure
    return success({**found, "chunks": [knowledge_wire.found_chunk_json(chunk) for chunk in found["chunks"]]})


def _find_known_documents(
    context: ApiContextDep, tenant_id: TenantId, base_ids: list[UUID], documents: list[UUID]
) -> set[UUID]:
    if not documents:
        return set()
    with context.database.statements() as tx:
        return chunks.filter_owned(tx, tenant_id, base_ids, documents)
