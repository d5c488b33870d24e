"""Routes that show the documents and pictures that citations name, by their ids alone."""

import hashlib
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.agents.files import file_reply, is_page
from api.http.errors import DATA, RequestRefused, not_found
from api.http.paging import parse_list
from api.http.replies import parse_id, success
from api.http.reply_styles import EnvelopeRoute
from api.knowledge.chunks import parse_chunk_id
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.requests.uploads import OCTETS, guess_type, mime_type_of
from components.text.extraction.file_kinds import image_type
from knowledge.bases.ingestion import storage_of
from store.knowledge import documents, written_chunks
from store.knowledge.documents import KnowledgeDocument
from store.knowledge.written_chunks import ChunkPlace

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_READ], route_class=EnvelopeRoute)


@router.get("/documents/images/{image_id}")
def show_chunk_image(request: Request, context: ApiContextDep, principal: ApiTokenCaller, image_id: str) -> Response:
    """Show the picture of a chunk, by its `image_id`."""
    dataset_id, _, chunk_id = image_id.partition("-")
    base_id, chunk = parse_id(dataset_id), parse_chunk_id(chunk_id)
    data = None
    if base_id is not None and chunk is not None:
        with context.database.statements() as tx:
            data = written_chunks.load_image(tx, ChunkPlace(principal.tenant_id, base_id, chunk[0]), chunk[1])
    if data is None:
        raise not_found("Image not found.")
    return file_reply(request, data, hashlib.sha256(data).digest(), image_type("", "", data), chunk_id, is_inline=True)


@router.get("/documents/{document_id}")
def download_document_by_id(
    request: Request, context: ApiContextDep, principal: ApiTokenCaller, document_id: str
) -> Response:
    """Download a document of any base, always as an attachment."""
    document = _find(context, principal, document_id)
    data = storage_of(context.blobs, document.base_id).get(document.sha256)
    return file_reply(request, data, document.sha256, OCTETS, document.name, is_inline=False)


@router.get("/documents/{document_id}/preview")
def preview_document(request: Request, context: ApiContextDep, principal: ApiTokenCaller, document_id: str) -> Response:
    """Show a document of any base in the browser; one that may contain scripts is an attachment."""
    document = _find(context, principal, document_id)
    data = storage_of(context.blobs, document.base_id).get(document.sha256)
    kind = mime_type_of(document.mime_type) or guess_type(document.name)
    is_inline = not is_page(kind, document.name.rpartition(".")[2])
    return file_reply(request, data, document.sha256, kind if is_inline else OCTETS, document.name, is_inline=is_inline)


@router.get("/thumbnails")
def list_thumbnails(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    doc_ids: Annotated[list[str] | None, Query(description="May be repeated, or a comma list")] = None,
) -> Response:
    """Return the address of a small picture for each document: that of a document that is a picture, "" for others."""
    written = parse_list(",".join(doc_ids or []))
    if not written:
        raise RequestRefused(DATA, 'Lack of "Document ID"')
    ids = [document_id for each in written if (document_id := parse_id(each)) is not None]
    with context.database.statements() as tx:
        found = documents.get_of_tenant(tx, principal.tenant_id, ids)
    return success({each.id.hex: _thumbnail(each) for each in found})


def _thumbnail(document: KnowledgeDocument) -> str:
    is_picture = bool(image_type(document.name, document.mime_type, b""))
    return f"/api/v1/documents/{document.id.hex}/preview" if is_picture else ""


def _find(context: ApiContext, principal: RequestPrincipal, written: str) -> KnowledgeDocument:
    """Return a document of the caller. Raises RequestRefused."""
    document_id = parse_id(written)
    with context.database.statements() as tx:
        found = documents.get_of_tenant(tx, principal.tenant_id, [document_id]) if document_id is not None else []
    if not found:
        raise not_found("document not found")
    return found[0]
