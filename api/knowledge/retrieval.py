"""Routes that search knowledge bases, with RAGFlow's requests and replies: of its public API, and of its pages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, TypeVar
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BeforeValidator, Field

from api.http.errors import DATA, RequestRefused, UnsupportedParameter, not_found
from api.http.replies import parse_id, success
from api.http.reply_styles import EnvelopeRoute
from api.http.schemas import Body, NoEffect
from api.knowledge import knowledge_wire
from api.knowledge.datasets import required_ids
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.request_bodies import SmallBody, body_openapi, ignored_field_warnings, parse_body
from api.requests.scopes import NEEDS_RUN
from canvas.errors import NodeFailure
from canvas.ids import TenantId
from knowledge.bases.search import SearchQuery
from store.knowledge import chunks

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_RUN], route_class=EnvelopeRoute)

MOST_SHOWN = 1000  # passages per page
MAX_CANDIDATES = 10_000
DEFAULT_PAGE_SIZE = 30
WEIGHT = "vector_similarity_weight"


def _parse_highlight(written: Any) -> bool:
    if isinstance(written, str) and written.lower() in ("true", "false"):
        return written.lower() == "true"
    if not isinstance(written, bool):
        raise RequestRefused(DATA, "`highlight` should be a boolean")
    return written


def _parse_documents(written: Any) -> Any:
    if not isinstance(written, list):
        raise RequestRefused(DATA, "`documents` should be a list")
    return written


def _parse_datasets(written: Any) -> Any:
    if not isinstance(written, list):
        raise RequestRefused(DATA, "`dataset_ids` should be a list")
    return written


Highlight = Annotated[bool, BeforeValidator(_parse_highlight)]
DocumentIds = Annotated[list[str], BeforeValidator(_parse_documents)]
DatasetIds = Annotated[list[str], BeforeValidator(_parse_datasets)]


class QuestionBody(Body):
    """A question, and how it is searched for. Pages below 1 are the first one.

    `keyword`: the tenant's chat model adds words to search for. `highlight`: each passage is added with its matches in
    `<em>`; the rest of the text is unchanged and may be HTML. A `vector_similarity_weight` outside of 0 to 1 counts as
    the nearer of both, and the reply warns.
    """

    question: str | None = Field(default=None, max_length=100_000)
    page: int = Field(default=1, le=10**6)
    vector_similarity_weight: float = Field(default=0.3, allow_inf_nan=False)
    top_k: int = 1024
    rerank_id: str = ""
    keyword: bool = False
    highlight: Highlight = False
    cross_languages: list[str] = Field(default_factory=list[str])
    use_kg: bool = False
    toc_enhance: bool = False


class RetrievalBody(QuestionBody):
    """A question. `document_ids` override `metadata_condition`."""

    dataset_ids: DatasetIds = Field(default_factory=list[str])
    document_ids: DocumentIds = Field(default_factory=list[str])
    page_size: int = DEFAULT_PAGE_SIZE
    similarity_threshold: float = Field(default=0.2, ge=0, le=1)
    metadata_condition: dict[str, Any] = Field(default_factory=dict[str, Any])


class SearchBody(QuestionBody):
    """A question of RAGFlow's pages. `doc_ids` override `meta_data_filter`, which is that of a Retrieval."""

    without_effect: ClassVar[NoEffect] = {"tenant_rerank_id": ()}

    doc_ids: DocumentIds = Field(default_factory=list[str])
    size: int = DEFAULT_PAGE_SIZE
    similarity_threshold: float = Field(default=0.0, ge=0, le=1)
    meta_data_filter: dict[str, Any] = Field(default_factory=dict[str, Any])
    search_id: str = Field(default="", description="Search apps are not supported; refused unless empty")


class SearchDatasetsBody(SearchBody):
    """A question about several bases."""

    dataset_ids: DatasetIds = Field(default_factory=list[str])


Q = TypeVar("Q", bound=QuestionBody)


@router.post("/retrieval", openapi_extra=body_openapi(RetrievalBody))
async def retrieve(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody) -> Response:
    """Find the passages that match a question best."""
    fields = parse_body(RetrievalBody, body)
    _refuse_members("metadata_condition", fields.metadata_condition, ("logic", "conditions"))
    conditions = fields.metadata_condition.get("conditions") or []
    condition = {"method": "manual", "logic": fields.metadata_condition.get("logic"), "manual": conditions}
    query = _query(fields, fields.page_size, fields.similarity_threshold, condition)
    found = await _search(context, principal, fields.dataset_ids, fields.document_ids, query)
    shown = [knowledge_wire.found_chunk_json(chunk) for chunk in found["chunks"]]
    return success({**found, "chunks": shown}, **_warnings(RetrievalBody, body, fields))


@router.post("/datasets/search", openapi_extra=body_openapi(SearchDatasetsBody))
async def search_datasets(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody) -> Response:
    """Find the passages of several bases that match a question best, with the names of RAGFlow's index."""
    fields = parse_body(SearchDatasetsBody, body)
    return await _search_for_pages(
        context, principal, fields.dataset_ids, fields, _warnings(type(fields), body, fields)
    )


@router.post("/datasets/{dataset_id}/search", openapi_extra=body_openapi(SearchBody))
async def search_dataset(
    context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, dataset_id: str
) -> Response:
    """Find the passages of a base that match a question best, with the names of RAGFlow's index."""
    fields = parse_body(SearchBody, body)
    return await _search_for_pages(context, principal, [dataset_id], fields, _warnings(SearchBody, body, fields))


async def _search_for_pages(
    context: ApiContext,
    principal: RequestPrincipal,
    dataset_ids: Sequence[str],
    fields: SearchBody,
    warnings: Mapping[str, list[str]],
) -> Response:
    if fields.search_id:
        raise UnsupportedParameter("`search_id` names a search app, and there are none here.", field="search_id")
    _refuse_members("meta_data_filter", fields.meta_data_filter, ("method", "logic", "manual", "auto", "semi_auto"))
    query = _query(fields, fields.size, fields.similarity_threshold, fields.meta_data_filter)
    found = await _search(context, principal, dataset_ids, fields.doc_ids, query)
    return success({**found, "labels": {}}, **warnings)


async def _search(
    context: ApiContext,
    principal: RequestPrincipal,
    dataset_ids: Sequence[str],
    document_ids: Sequence[str],
    query: SearchQuery,
) -> Mapping[str, Any]:
    """Search bases of the caller. Raises RequestRefused for others, and if the search fails."""
    ids = required_ids(dataset_ids, "dataset_ids")
    bases = await context.library.find_bases(principal.tenant_id, ids)
    for each in ids:
        if parse_id(each) is None or each not in bases:
            raise not_found(f"You don't own the dataset {each}.")
    chosen = list(bases.values())
    documents = [document for each in document_ids if (document := parse_id(each)) is not None]
    known = await run_in_thread(
        lambda: _find_known_documents(context, principal.tenant_id, [base.id for base in chosen], documents)
    )
    for each in document_ids:
        if parse_id(each) not in known:
            raise not_found(f"The datasets don't own the document {each}")
    if not query.question.strip():
        return {"chunks": [], "doc_aggs": [], "total": 0}
    try:
        return await context.library.search(principal.tenant_id, chosen, replace(query, document_ids=documents or None))
    except NodeFailure as failure:
        raise RequestRefused(DATA, failure.message) from failure


def _query(fields: QuestionBody, size: int, threshold: float, documents: Mapping[str, Any]) -> SearchQuery:
    """Return the search that a body asks for, without its documents. Raises RequestRefused."""
    if fields.question is None:
        raise RequestRefused(DATA, "`question` is required.")
    if fields.top_k <= 0:
        raise RequestRefused(DATA, "`top_k` must be greater than 0")
    limit = min(size, MOST_SHOWN) if size > 0 else DEFAULT_PAGE_SIZE
    return SearchQuery(
        fields.question,
        threshold=threshold,
        word_weight=1 - _bounded_weight(fields),
        limit=limit,
        offset=(max(1, fields.page) - 1) * limit,
        candidates=min(fields.top_k, MAX_CANDIDATES),
        rerank_id=fields.rerank_id,
        languages=fields.cross_languages,
        filter=documents,
        use_graph=fields.use_kg,
        use_table_of_contents=fields.toc_enhance,
        add_key_words=fields.keyword,
        highlight=fields.highlight,
    )


def _refuse_members(name: str, written: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise RequestRefused for a filter with members that have no effect."""
    if unknown := [each for each in written if each not in known]:
        raise RequestRefused(DATA, f"`{name}.{unknown[0][:64]}` is unknown. Use: {', '.join(known)}.")


def _bounded_weight(fields: QuestionBody) -> float:
    return min(1.0, max(0.0, fields.vector_similarity_weight))


def _warnings(model: type[Q], body: Mapping[str, Any], fields: Q) -> dict[str, list[str]]:
    found = [*ignored_field_warnings(model, body).get("warnings", [])]
    if (bounded := _bounded_weight(fields)) != fields.vector_similarity_weight:
        found.append(f"`{WEIGHT}` is {fields.vector_similarity_weight:g}; the search used {bounded:g}.")
    return {"warnings": found} if found else {}


def _find_known_documents(
    context: ApiContext, tenant_id: TenantId, base_ids: list[UUID], documents: list[UUID]
) -> set[UUID]:
    if not documents:
        return set()
    with context.database.statements() as tx:
        return chunks.filter_owned(tx, tenant_id, base_ids, documents)
