"""The documents of knowledge bases: upload, list, change, delete, and have them read."""

import json
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import IntegrityError

from api import knowledge_wire
from api.auth import Caller, Principal
from api.bodies import SmallBody, checked, described
from api.edge import Edge, TheEdge, in_thread
from api.errors import CONFLICT, DATA, Refused, absent
from api.once import Keyed, by_files
from api.paging import ThePage
from api.replies import id_of, success
from api.routes.datasets import base_of, ids_in
from api.routes.files import FORM, reply_with
from api.uploads import LONGEST_NAME, OCTETS, Incoming, incoming, uploaded
from canvas.errors import NodeFailure
from knowledge.ingestion import storage_of
from store import knowledge_chunks, knowledge_documents
from store.files import Kept
from store.knowledge_bases import Base
from store.knowledge_documents import Document
from store.transaction import Transaction

router = APIRouter(tags=["knowledge bases"])

MOST_METADATA = 64 * 1024  # characters of a document's metadata as JSON


class ChangedDocument(BaseModel):
    """What is to change about a document."""

    name: str | None = Field(default=None, min_length=1, max_length=LONGEST_NAME)
    meta_fields: dict[str, Any] | None = None


# -- upload and download ----------------------------------------------------------------------------------------------
@router.post(
    "/datasets/{dataset_id}/documents",
    openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": FORM}}, "required": True}},
)
async def upload(request: Request, edge: TheEdge, principal: Caller, dataset_id: str) -> Response:
    """Add documents to a base. The same content is there once, under its first name; nothing is read yet."""
    base = await in_thread(lambda: _base(edge, principal, dataset_id))
    async with uploaded(request) as found:
        once = await in_thread(
            lambda: by_files(request, principal, [(file.filename or "", file.file) for file in found])
        )
        await in_thread(lambda: once.look(edge.database))
        kept: list[Kept] = []
        for file in found:
            wanted = await incoming(file)
            kept.append(await in_thread(lambda wanted=wanted: _kept(edge, base, wanted)))
    return await in_thread(lambda: _noted(edge, base, once, kept))


def _base(edge: Edge, principal: Principal, dataset_id: str) -> Base:
    with edge.database.transaction() as tx:
        return base_of(tx, principal, dataset_id)


def _kept(edge: Edge, base: Base, file: Incoming) -> Kept:
    if edge.blobs is None:
        raise NodeFailure("This process has no file storage.")  # no deployment of ours is without one
    return Kept(file.name, file.mime_type, len(file.data), storage_of(edge.blobs, base.id).put(file.data))


def _noted(edge: Edge, base: Base, once: Keyed, kept: list[Kept]) -> Response:
    with once.transaction(edge.database) as tx:
        added = [
            knowledge_documents.add(tx, base.tenant_id, base.id, file.name, file.mime_type, file.size, file.sha256)
            for file in kept
        ]
        return once.keep(tx, success([knowledge_wire.document(document, base) for document, _ in added]))


@router.get("/datasets/{dataset_id}/documents/{document_id}")
def download(edge: TheEdge, principal: Caller, dataset_id: str, document_id: str) -> Response:
    """A document's bytes, always as an attachment."""
    with edge.database.transaction() as tx:
        base = base_of(tx, principal, dataset_id)
        document = _document(tx, base, document_id)
    if edge.blobs is None:
        raise NodeFailure("This process has no file storage.")
    data = storage_of(edge.blobs, base.id).get(document.sha256)
    return reply_with(data, OCTETS, document.name, is_inline=False)


# -- rows -------------------------------------------------------------------------------------------------------------
@router.get("/datasets/{dataset_id}/documents")
def list_documents(
    edge: TheEdge,
    principal: Caller,
    page: ThePage,
    dataset_id: str,
    id: str = "",  # noqa: A002 - the name on the wire
    name: str = "",
    keywords: str = "",
) -> Response:
    """The documents of a base, the newest first; `id`, `name` and `keywords` (in the name) narrow."""
    document_id = id_of(id) if id else None
    if id and document_id is None:
        raise absent(f"You don't own the document {id}.")
    with edge.database.transaction() as tx:
        base = base_of(tx, principal, dataset_id)
        found, total = knowledge_documents.page(
            tx,
            principal.tenant_id,
            base.id,
            document_id=document_id,
            name=name or None,
            keywords=keywords,
            most=page.size,
            skipped=page.offset,
        )
    if (id or name) and not found:
        raise absent(f"You don't own the document {id or name}.")
    return success({"docs": [knowledge_wire.document(each, base) for each in found], "total": total})


@router.put("/datasets/{dataset_id}/documents/{document_id}", openapi_extra=described(ChangedDocument))
@router.patch("/datasets/{dataset_id}/documents/{document_id}", openapi_extra=described(ChangedDocument))
def change(edge: TheEdge, principal: Caller, body: SmallBody, dataset_id: str, document_id: str) -> Response:
    """Change a document's name, or the metadata that filters look at (in whole)."""
    wanted = checked(ChangedDocument, body)
    if wanted.meta_fields is not None and len(json.dumps(wanted.meta_fields)) > MOST_METADATA:
        raise Refused(DATA, f"`meta_fields` may have at most {MOST_METADATA} characters.")
    try:
        with edge.database.transaction() as tx:
            base = base_of(tx, principal, dataset_id)
            document = _document(tx, base, document_id)
            knowledge_documents.update(
                tx, principal.tenant_id, base.id, document.id, name=wanted.name, metadata=wanted.meta_fields
            )
            return success(knowledge_wire.document(_document(tx, base, document_id), base))
    except IntegrityError:  # the name is the one rule that these columns can break
        raise Refused(CONFLICT, "Duplicated document name in the same dataset.", status=409) from None


@router.delete("/datasets/{dataset_id}/documents")
def delete(edge: TheEdge, principal: Caller, body: SmallBody, dataset_id: str) -> Response:
    """Delete documents with their chunks."""
    with edge.database.transaction() as tx:
        base = base_of(tx, principal, dataset_id)
        ids = _owned(tx, base, ids_in(body, "ids"))
        hashes = knowledge_documents.delete(tx, principal.tenant_id, base.id, ids)
    if edge.blobs is not None:
        storage = storage_of(edge.blobs, base.id)
        for sha256 in hashes:
            storage.discard(sha256)
    return success(None)


# -- chunks -----------------------------------------------------------------------------------------------------------
@router.post("/datasets/{dataset_id}/chunks")
def parse(edge: TheEdge, principal: Caller, body: SmallBody, dataset_id: str) -> Response:
    """Have documents read, and found from then on; what was read before is read anew."""
    with edge.database.transaction() as tx:
        base = base_of(tx, principal, dataset_id)
        knowledge_documents.begin(tx, principal.tenant_id, base.id, _owned(tx, base, ids_in(body, "document_ids")))
    edge.lifecycle.coordinator.dispatch.ingest()
    return success(None)


@router.delete("/datasets/{dataset_id}/chunks")
def stop_parsing(edge: TheEdge, principal: Caller, body: SmallBody, dataset_id: str) -> Response:
    """Have documents not be read any more."""
    with edge.database.transaction() as tx:
        base = base_of(tx, principal, dataset_id)
        ids = _owned(tx, base, ids_in(body, "document_ids"))
        if knowledge_documents.stop(tx, principal.tenant_id, base.id, ids) < len(ids):
            raise Refused(DATA, "Can't stop parsing document that has not started or already completed")
    return success(None)


@router.get("/datasets/{dataset_id}/documents/{document_id}/chunks")
def list_chunks(edge: TheEdge, principal: Caller, page: ThePage, dataset_id: str, document_id: str) -> Response:
    """What a document was cut up into, in order."""
    with edge.database.transaction() as tx:
        base = base_of(tx, principal, dataset_id)
        document = _document(tx, base, document_id)
        rows = knowledge_chunks.of_document(tx, principal.tenant_id, document.id, most=page.size, skipped=page.offset)
    told = [knowledge_wire.stored(row, document) for row in rows]
    return success({"chunks": told, "doc": knowledge_wire.document(document, base), "total": document.chunks})


def _document(tx: Transaction, base: Base, written: str) -> Document:
    document_id = id_of(written)
    found = knowledge_documents.some(tx, base.tenant_id, base.id, [document_id]) if document_id is not None else []
    if not found:
        raise absent(f"You don't own the document {written}.")
    return found[0]


def _owned(tx: Transaction, base: Base, written: list[str]) -> list[UUID]:
    """The ids of documents of a base. Raises Refused if there is one that is none."""
    ids = {each: id_of(each) for each in written}
    wanted = [each for each in ids.values() if each is not None]
    known = {document.id for document in knowledge_documents.some(tx, base.tenant_id, base.id, wanted)}
    missing = [each for each, document_id in ids.items() if document_id not in known]
    if missing:
        raise absent(f"Documents not found: {missing}")
    return wanted
