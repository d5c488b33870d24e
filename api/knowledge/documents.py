"""Routes of documents in knowledge bases: upload, list, change, delete, parse."""

import json
import re
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import Field
from sqlalchemy.exc import IntegrityError

from api.agents.files import FORM, file_reply
from api.http.errors import CONFLICT, DATA, RequestRefused, UnsupportedParameter, not_found
from api.http.paging import ListPageDep, is_true, parse_order
from api.http.replies import parse_id, success
from api.http.schemas import READ_ONLY_FIELDS, Body, NoEffect
from api.knowledge import knowledge_wire
from api.knowledge.datasets import BATCH, DeleteBody, get_caller_base, required_ids
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import IdempotentRequest, make_file_request
from api.requests.request_bodies import SmallBody, body_openapi, ignored_field_warnings, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from api.requests.uploads import MAX_NAME_CHARS, OCTETS, open_uploads, store_upload
from knowledge.bases.ingestion import storage_of
from store.db.transaction import Transaction
from store.knowledge import chunks, documents
from store.knowledge.bases import KnowledgeBase
from store.knowledge.documents import KnowledgeDocument
from store.tenants import audit
from store.tenants.audit import Action, Actor
from store.tenants.uploads import StoredRef

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_EDIT])

MAX_TIMESTAMP_MS = 253_402_300_799_000  # the last second of the year 9999
_POSITION = re.compile(r"[0-7][0-9a-f]{7}")  # as in the ids of chunks
MAX_METADATA_CHARS = 64 * 1024  # characters of a document's metadata as JSON


class ChangedDocumentBody(Body):
    """Changes of a document."""

    without_effect: ClassVar[NoEffect] = {
        **READ_ONLY_FIELDS,
        **dict.fromkeys(("parser_config", "parser_id", "pipeline_id", "location", "type", "suffix", "thumbnail"), ()),
        **dict.fromkeys(("size", "run", "progress", "progress_msg", "chunk_count", "token_count", "dataset_id"), ()),
        "chunk_method": ("naive",),
        "source_type": ("local",),
    }

    name: str | None = Field(default=None, min_length=1, max_length=MAX_NAME_CHARS)
    meta_fields: dict[str, Any] | None = None
    enabled: bool | None = Field(default=None, description="A document is always searched; false is refused")
    status: str | None = Field(default=None, description="The same as `enabled`: 1 is accepted, 0 is refused")


class DocumentIdsBody(Body):
    """Documents by id."""

    document_ids: list[str] | None = None


# -- upload and download ----------------------------------------------------------------------------------------------
@router.post(
    "/datasets/{dataset_id}/documents",
    openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": FORM}}, "required": True}},
)
async def upload(request: Request, context: ApiContextDep, principal: ApiTokenCaller, dataset_id: str) -> Response:
    """Add documents to a base. The same content is stored once, under its first name. Documents are not parsed yet."""
    base = await run_in_thread(lambda: _get_base(context, principal, dataset_id))
    async with open_uploads(request) as found:
        once = await run_in_thread(
            lambda: make_file_request(request, principal, [(file.filename or "", file.file) for file in found])
        )
        await run_in_thread(lambda: once.check_repeat(context.database))
        blobs = storage_of(context.blobs, base.id)
        stored_files = await run_in_thread(lambda: [store_upload(blobs, file) for file in found])
    return await run_in_thread(lambda: _store_rows(context, base, once, stored_files))


def _get_base(context: ApiContext, principal: RequestPrincipal, dataset_id: str) -> KnowledgeBase:
    with context.database.transaction() as tx:
        return get_caller_base(tx, principal, dataset_id)


def _store_rows(
    context: ApiContext, base: KnowledgeBase, once: IdempotentRequest, stored_files: list[StoredRef]
) -> Response:
    with once.transaction(context.database) as tx:
        added = [
            documents.add(tx, base.tenant_id, base.id, file.name, file.mime_type, file.size, file.sha256)
            for file in stored_files
        ]
        return once.store_reply(tx, success([knowledge_wire.document_json(document, base) for document in added]))


@router.get("/datasets/{dataset_id}/documents/{document_id}", dependencies=[NEEDS_READ])
def download(
    request: Request, context: ApiContextDep, principal: ApiTokenCaller, dataset_id: str, document_id: str
) -> Response:
    """Download a document, always as an attachment."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        document = _get_document(tx, base, document_id)
    data = storage_of(context.blobs, base.id).get(document.sha256)
    return file_reply(request, data, document.sha256, OCTETS, document.name, is_inline=False)


# -- rows -------------------------------------------------------------------------------------------------------------
@router.get("/datasets/{dataset_id}/documents", dependencies=[NEEDS_READ])
def list_documents(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    page: ListPageDep,
    dataset_id: str,
    id: str = "",  # noqa: A002 - the name on the wire
    name: str = "",
    keywords: str = "",
    create_time_from: Annotated[int, Query(ge=0, le=MAX_TIMESTAMP_MS)] = 0,
    create_time_to: Annotated[int, Query(ge=0, le=MAX_TIMESTAMP_MS)] = 0,
    orderby: str = "create_time",
    desc: str = "true",
) -> Response:
    """List the documents of a base, the newest first. `id`, `name` and `keywords` (in the name) are filters.

    So are the times between which a document was added, in ms since 1970; 0 sets no limit.
    """
    document_id = parse_id(id) if id else None
    if id and document_id is None:
        raise not_found(f"You don't own the document {id}.")
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        found, total = documents.page(
            tx,
            principal.tenant_id,
            base.id,
            document_id=document_id,
            name=name or None,
            keywords=keywords,
            since=_parse_time(create_time_from),
            until=_parse_time(create_time_to),
            order_by=parse_order(orderby, documents.ORDERS),
            descending=is_true(desc),
            most=page.size,
            skipped=page.offset,
        )
    if (id or name) and not found:
        raise not_found(f"You don't own the document {id or name}.")
    return success({"docs": [knowledge_wire.document_json(each, base) for each in found], "total": total})


@router.put("/datasets/{dataset_id}/documents/{document_id}", openapi_extra=body_openapi(ChangedDocumentBody))
@router.patch("/datasets/{dataset_id}/documents/{document_id}", openapi_extra=body_openapi(ChangedDocumentBody))
def change(
    context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, dataset_id: str, document_id: str
) -> Response:
    """Change a document's name, or replace its metadata, which filters use."""
    fields = parse_body(ChangedDocumentBody, body)
    if fields.enabled is False or fields.status not in (None, "1"):
        message = "A document cannot be disabled here. Delete it, or stop parsing it."
        raise UnsupportedParameter(message, field="enabled" if fields.enabled is False else "status")
    if fields.meta_fields is not None and len(json.dumps(fields.meta_fields)) > MAX_METADATA_CHARS:
        raise RequestRefused(DATA, f"`meta_fields` may have at most {MAX_METADATA_CHARS} characters.")
    try:
        with context.database.transaction() as tx:
            base = get_caller_base(tx, principal, dataset_id)
            document = _get_document(tx, base, document_id)
            documents.update(
                tx, principal.tenant_id, base.id, document.id, name=fields.name, metadata=fields.meta_fields
            )
            changed = knowledge_wire.document_json(_get_document(tx, base, document_id), base)
            return success(changed, **ignored_field_warnings(ChangedDocumentBody, body))
    except IntegrityError:  # only the unique name can be violated by these columns
        raise RequestRefused(CONFLICT, "Duplicated document name in the same dataset.", status=409) from None


@router.delete("/datasets/{dataset_id}/documents", openapi_extra=body_openapi(DeleteBody))
def delete(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, dataset_id: str) -> Response:
    """Delete documents with their chunks: `ids`, or all with `delete_all`."""
    fields = parse_body(DeleteBody, body)
    with context.database.statements() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        ids = (
            _require_documents(tx, base, required_ids(fields.ids, "ids"))
            if not fields.delete_all or fields.ids
            else None
        )
    if ids is not None:
        _delete(context, base, ids, principal.actor)
        return success(None)
    while True:  # in batches, since a statement may take ten seconds
        with context.database.statements() as tx:
            found, _ = documents.page(tx, principal.tenant_id, base.id, most=BATCH)
        _delete(context, base, [document.id for document in found], principal.actor)
        if not found:
            return success(None)


def _delete(context: ApiContext, base: KnowledgeBase, ids: list[UUID], by: Actor) -> None:
    """Delete the bytes of documents, then their rows, so that an interrupted request can be repeated."""
    with context.database.statements() as tx:
        contents = documents.list_contents(tx, base.tenant_id, base.id, ids)
    storage = storage_of(context.blobs, base.id)
    for sha256 in contents:
        storage.discard(sha256)
    with context.database.transaction() as tx:
        documents.delete(tx, base.tenant_id, base.id, ids)
        for document_id in ids:
            details = {"knowledge_base_id": base.id.hex}
            audit.record(tx, base.tenant_id, by, Action.DOCUMENT_DELETED, document_id, details)


# -- chunks -----------------------------------------------------------------------------------------------------------
@router.post("/datasets/{dataset_id}/chunks", openapi_extra=body_openapi(DocumentIdsBody))
def parse(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, dataset_id: str) -> Response:
    """Parse documents, so that searches find them. Parsed ones are parsed again."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        ids = _require_documents(tx, base, required_ids(parse_body(DocumentIdsBody, body).document_ids, "document_ids"))
        documents.start_processing(tx, principal.tenant_id, base.id, ids)
    context.lifecycle.coordinator.dispatch.ingest()
    return success(None)


@router.delete("/datasets/{dataset_id}/chunks", openapi_extra=body_openapi(DocumentIdsBody))
def stop_parsing(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody, dataset_id: str) -> Response:
    """Stop parsing documents."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        ids = _require_documents(tx, base, required_ids(parse_body(DocumentIdsBody, body).document_ids, "document_ids"))
        if documents.stop_processing(tx, principal.tenant_id, base.id, ids) < len(ids):
            raise RequestRefused(DATA, "Can't stop parsing document that has not started or already completed")
    return success(None)


@router.get("/datasets/{dataset_id}/documents/{document_id}/chunks", dependencies=[NEEDS_READ])
def list_chunks(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    page: ListPageDep,
    dataset_id: str,
    document_id: str,
    id: str = "",  # noqa: A002 - the name on the wire
    keywords: str = "",
) -> Response:
    """List the chunks of a document in order. `id` and `keywords` (in the text) are filters."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        document = _get_document(tx, base, document_id)
        rows = chunks.list_of_document(
            tx,
            principal.tenant_id,
            document.id,
            position=_parse_position(document, id) if id else None,
            keywords=keywords,
            most=page.size,
            skipped=page.offset,
        )
    shown = [knowledge_wire.stored_chunk_json(row, document) for row in rows]
    narrowed = rows[0].total if rows else 0
    total = narrowed if id or keywords else document.chunks
    return success({"chunks": shown, "doc": knowledge_wire.document_json(document, base), "total": total})


def _parse_position(document: KnowledgeDocument, written: str) -> int:
    """Return the position of a chunk by its id. Raises RequestRefused if it is not a chunk of the document."""
    position = written.removeprefix(document.id.hex)
    if len(position) != 8 or not _POSITION.fullmatch(position) or written == position:
        raise not_found(f"Chunk not found: {written[:128]}")
    return int(position, 16)


def _parse_time(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def _get_document(tx: Transaction, base: KnowledgeBase, written: str) -> KnowledgeDocument:
    document_id = parse_id(written)
    found = documents.get_many(tx, base.tenant_id, base.id, [document_id]) if document_id is not None else []
    if not found:
        raise not_found(f"You don't own the document {written}.")
    return found[0]


def _require_documents(tx: Transaction, base: KnowledgeBase, written: list[str]) -> list[UUID]:
    """Return the ids of documents of a base. Raises RequestRefused if one is not in the base."""
    ids = {each: parse_id(each) for each in written}
    fields = [each for each in ids.values() if each is not None]
    known = {document.id for document in documents.get_many(tx, base.tenant_id, base.id, fields)}
    missing = [each for each, document_id in ids.items() if document_id not in known]
    if missing:
        raise not_found(f"Documents not found: {missing}")
    return fields
