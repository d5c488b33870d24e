"""Routes of knowledge bases, which RAGFlow calls datasets: create, list, change, delete."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, ClassVar

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import Field, StringConstraints

from api.http.errors import ARGUMENT, DATA, RequestRefused, not_found
from api.http.paging import ListPageDep, is_true, parse_list, parse_order
from api.http.replies import json_reply, parse_id, success
from api.http.schemas import READ_ONLY_FIELDS, Body, Flag, NoEffect
from api.knowledge import knowledge_wire
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import OnceByBody
from api.requests.request_bodies import SmallBody, body_openapi, ignored_field_warnings, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.errors import ModelError, NotFound
from knowledge.bases.chunking import DEFAULTS, MAX_TOKENS, MIN_TOKENS
from knowledge.bases.ingestion import storage_of
from knowledge.models import first_model_of
from providers.models.chat.catalogue import resolve
from providers.models.embeddings.factory import EMBEDDING
from store.db.transaction import Transaction
from store.knowledge import bases as knowledge_bases
from store.knowledge import documents
from store.knowledge.bases import KnowledgeBase
from store.tenants import audit
from store.tenants.audit import Action, Actor

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_EDIT])

MAX_IDS = 100
BATCH = 100  # documents that are deleted per transaction

Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


PARSER_FIELDS = (
    "delimiter", "layout_recognize", "html4excel", "auto_keywords", "auto_questions", "task_page_size", "pages",
    "raptor", "graphrag", "tag_kb_ids", "topn_tags", "filename_embd_weight", "llm_id", "toc_extraction",
    "table_context_size", "image_context_size", "image_table_context_window", "children_delimiter", "enable_children",
    "enable_metadata", "metadata", "built_in_metadata", "parent_child", "entity_types", "method", "ext",
)  # fmt: skip
"""Fields of RAGFlow's `parser_config` that have no effect here."""

DATASET_FIELDS: NoEffect = {
    **READ_ONLY_FIELDS,
    "avatar": ("",),
    "permission": ("me",),
    "chunk_method": ("naive",),
    "pagerank": (0,),
    **dict.fromkeys(("auto_metadata_config", "parse_type", "pipeline_id", "ext", "connectors", "nickname"), ()),
    **dict.fromkeys(("status", "document_count", "chunk_count", "token_num", "similarity_threshold"), ()),
    "vector_similarity_weight": (),
}
"""Fields of RAGFlow's datasets that have no effect here."""


class ParserBody(Body):
    """How documents are split: tokens per chunk, and the overlap of two chunks."""

    without_effect: ClassVar[NoEffect] = dict.fromkeys(PARSER_FIELDS, ())

    chunk_token_num: int = Field(default=DEFAULTS["chunk_token_num"], ge=MIN_TOKENS, le=MAX_TOKENS)
    overlapped_percent: int = Field(default=DEFAULTS["overlapped_percent"], ge=0, le=50)


class NewDatasetBody(Body):
    """A new base. Its embedding model is by default the tenant's first one; without any, searches match words only."""

    without_effect: ClassVar[NoEffect] = DATASET_FIELDS

    name: Name
    description: str = Field(default="", max_length=65535)
    language: str = Field(default="English", max_length=32)
    embedding_model: str = Field(default="", max_length=255)
    parser_config: ParserBody = ParserBody()


class ChangedDatasetBody(Body):
    """Changes of a base."""

    without_effect: ClassVar[NoEffect] = DATASET_FIELDS

    name: Name | None = None
    description: str | None = Field(default=None, max_length=65535)
    language: str | None = Field(default=None, max_length=32)
    embedding_model: str | None = Field(default=None, max_length=255)
    parser_config: ParserBody | None = None


class DeleteBody(Body):
    """What to delete: `ids`, or everything with `delete_all`."""

    ids: list[str] | None = None
    delete_all: Flag = False


def get_caller_base(tx: Transaction, principal: RequestPrincipal, dataset_id: str) -> KnowledgeBase:
    """Return a base of the caller. Raises RequestRefused, also for a base of another tenant."""
    base_id = parse_id(dataset_id)
    if base_id is None:
        raise not_found(f"You don't own the dataset {dataset_id}.")
    return knowledge_bases.get(tx, principal.tenant_id, base_id)


@router.post("/datasets", openapi_extra=body_openapi(NewDatasetBody))
def create(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, once: OnceByBody) -> Response:
    """Create an empty base."""
    fields = parse_body(NewDatasetBody, body)
    model = _choose_model(context, principal, fields.embedding_model)
    with once.transaction(context.database) as tx:
        base_id = knowledge_bases.create(
            tx,
            principal.tenant_id,
            fields.name,
            embedding_model=model,
            parser=fields.parser_config.model_dump(),
            description=fields.description,
            language=fields.language,
        )
        base = knowledge_bases.get(tx, principal.tenant_id, base_id)
        return once.store_reply(
            tx, success(knowledge_wire.dataset_json(base), **ignored_field_warnings(NewDatasetBody, body))
        )


@router.get("/datasets", dependencies=[NEEDS_READ])
def list_datasets(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    page: ListPageDep,
    id: str = "",  # noqa: A002 - the name on the wire
    ids: Annotated[list[str] | None, Query(description="May be repeated, or a comma list")] = None,
    name: str = "",
    orderby: str = "create_time",
    desc: str = "true",
) -> Response:
    """List the caller's bases, the newest first. `id`, `ids` and `name` are filters; an unknown one is an error.

    `orderby` is `create_time` or `update_time`; `desc=false` reverses the order.
    """
    named = [*parse_list(",".join(ids or [])), *([id] if id else [])]
    fields = {each: parse_id(each) for each in named}
    with context.database.transaction() as tx:
        for each in fields:
            get_caller_base(tx, principal, each)
        bases, total = knowledge_bases.page(
            tx,
            principal.tenant_id,
            ids=[each for each in fields.values() if each is not None] if named else None,
            name=name or None,
            order_by=parse_order(orderby, knowledge_bases.ORDERS),
            descending=is_true(desc),
            most=page.size,
            skipped=page.offset,
        )
    if name and not bases and page.number == 1:
        raise not_found(f"You don't own the dataset {name}.")
    shown = [knowledge_wire.dataset_json(base) for base in bases]
    return json_reply({"code": 0, "message": "success", "data": shown, "total_datasets": total})


@router.put("/datasets/{dataset_id}", openapi_extra=body_openapi(ChangedDatasetBody))
def change(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, dataset_id: str) -> Response:
    """Change a base. Its embedding model cannot change while it has chunks."""
    fields = parse_body(ChangedDatasetBody, body)
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
    model = _choose_model(context, principal, fields.embedding_model) if fields.embedding_model else None
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        if model is not None and model != base.embedding_model and base.chunks:
            current_model = base.embedding_model or "none"
            raise RequestRefused(
                DATA, f"When chunk_count ({base.chunks}) > 0, embedding_model must remain {current_model}."
            )
        knowledge_bases.update(
            tx,
            principal.tenant_id,
            base.id,
            name=fields.name,
            description=fields.description,
            language=fields.language,
            embedding_model=model,
            parser=fields.parser_config.model_dump() if fields.parser_config is not None else None,
        )
        changed = knowledge_wire.dataset_json(knowledge_bases.get(tx, principal.tenant_id, base.id))
        return success(changed, **ignored_field_warnings(ChangedDatasetBody, body))


@router.delete("/datasets", openapi_extra=body_openapi(DeleteBody))
def delete(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody) -> Response:
    """Delete bases with their documents: `ids`, or all with `delete_all`."""
    fields = parse_body(DeleteBody, body)
    if fields.delete_all and not fields.ids:
        _delete_all(context, principal)
        return success(None)
    with context.database.transaction() as tx:
        bases = [get_caller_base(tx, principal, each) for each in required_ids(fields.ids, "ids")]
    for base in bases:
        delete_base(context, base, principal.actor)
    return success(None)


def _delete_all(context: ApiContext, principal: RequestPrincipal) -> None:
    """Delete all bases of the caller, a page at a time."""
    while True:
        with context.database.statements() as tx:
            bases, _ = knowledge_bases.page(tx, principal.tenant_id, most=BATCH)
        if not bases:
            return
        for base in bases:
            with suppress(NotFound):  # another request has deleted it meanwhile
                delete_base(context, base, principal.actor)


def delete_base(context: ApiContext, base: KnowledgeBase, by: Actor) -> None:
    """Delete a base, a batch of documents at a time, since a statement may take ten seconds. Can be repeated."""
    while True:
        with context.database.transaction() as tx:
            found, _ = documents.page(tx, base.tenant_id, base.id, most=BATCH)
            documents.delete(tx, base.tenant_id, base.id, [document.id for document in found])
        if not found:
            break
    # before the row of the base, so that an interrupted request can be repeated
    storage_of(context.blobs, base.id).clear()
    with context.database.transaction() as tx:
        knowledge_bases.delete(tx, base.tenant_id, base.id)
        audit.record(tx, base.tenant_id, by, Action.KNOWLEDGE_BASE_DELETED, base.id, {"name": base.name})
    storage_of(context.blobs, base.id).clear()  # files that were uploaded into the base meanwhile


def required_ids(ids: Sequence[str] | None, name: str) -> list[str]:
    """Return the ids that a body must have. Raises RequestRefused if there are none, or too many."""
    if not ids:
        raise RequestRefused(DATA, f"`{name}` is required.")
    if len(ids) > MAX_IDS:
        raise RequestRefused(ARGUMENT, f"`{name}` may name at most {MAX_IDS} entries.")
    return list(dict.fromkeys(ids))


def _choose_model(context: ApiContext, principal: RequestPrincipal, fields: str) -> str:
    """Return the embedding model of a base: the requested one, or the tenant's first.

    Raises RequestRefused for others.
    """
    accounts = context.models.accounts(principal.tenant_id)
    if not fields:
        return first_model_of(accounts, EMBEDDING) or ""
    try:
        resolve(fields, accounts, kind=EMBEDDING)
    except ModelError as error:
        raise RequestRefused(DATA, error.message) from error
    return fields
