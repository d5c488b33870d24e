"""Routes of chunks: list and read those of a document, add, change, switch on and off, delete.

Chunks that people write are searched like others, also in a document that is not parsed. Parsing a document replaces
all of its chunks (docs/decisions/0082-chunks-and-memories-are-ragflows.md).
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response
from pydantic import BaseModel, Field

from api.http.errors import CONFLICT, DATA, RequestRefused, not_found
from api.http.paging import ListPageDep, is_true, parse_list
from api.http.replies import json_reply, success
from api.http.reply_styles import EnvelopeRoute
from api.knowledge import knowledge_wire
from api.knowledge.datasets import get_caller_base
from api.knowledge.documents import get_document
from api.knowledge.ragflow_words import refuse_unknown_fields, split_duplicates
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import OnceByJsonObject
from api.requests.request_bodies import JsonObject, body_openapi
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.errors import NodeFailure
from components.text.extraction.file_kinds import image_type
from knowledge.bases.chunk_writing import index_chunk
from store.knowledge import chunks, written_chunks
from store.knowledge.bases import KnowledgeBase
from store.knowledge.documents import KnowledgeDocument
from store.knowledge.written_chunks import ChunkIndex, ChunkPlace, StoredChunk
from store.tenants.audit import Action

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_EDIT], route_class=EnvelopeRoute)

MAX_CONTENT_CHARS = 100_000
MAX_DETAILS_CHARS = 64 * 1024  # of a chunk's keywords, questions, tags and positions as JSON
MAX_TRIES = 20  # of a change while others change the same chunk
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
WITHOUT_EFFECT = ("tag_kwd", "tag_feas")
NOT_OWNED = "you don't own the document {id}"

_POSITION = re.compile(r"[0-7][0-9a-f]{7}")  # as in the ids of chunks


class ChunkBody(BaseModel):
    """A chunk: its text, keywords and questions for searches, tags, a picture, and where the text is in the file."""

    content: str = Field(description="Required for a new chunk")
    important_keywords: list[str] = Field(default=[], description="Words that count like those of the text")
    questions: list[str] = Field(default=[], description="Questions that it answers; the vector is theirs")
    tag_kwd: list[str] = Field(default=[], description="Stored; without an effect on searches")
    tag_feas: dict[str, float] = Field(default={}, description="Stored; without an effect on searches")
    image_base64: str = Field(default="", description="PNG, JPEG, GIF or WebP")
    available: bool = Field(default=True, description="Whether searches find it")
    positions: list[list[int]] = Field(default=[], description="[page, left, right, top, bottom] of its parts")


class SwitchedChunksBody(BaseModel):
    """Which chunks searches find, or do not find."""

    chunk_ids: list[str]
    available: bool | None = None
    available_int: int | None = Field(default=None, description="The same as 1 or 0")


class DeletedChunksBody(BaseModel):
    """Which chunks to delete: `chunk_ids`, or all with `delete_all`. Without either, none."""

    chunk_ids: list[str] | None = None
    delete_all: bool = False


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a body that are given; `details` has those that are stored together."""

    content: str | None
    details: Mapping[str, Any]
    available: bool | None
    image: bytes | None


# -- read -------------------------------------------------------------------------------------------------------------
@router.get("/datasets/{dataset_id}/documents/{document_id}/chunks", dependencies=[NEEDS_READ])
def list_chunks(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    page: ListPageDep,
    dataset_id: str,
    document_id: str,
    id: str = "",  # noqa: A002 - the name on the wire
    chunk_ids: Annotated[list[str] | None, Query(description="May be repeated, or a comma list")] = None,
    keywords: str = "",
    available: str = "",
) -> Response:
    """List the chunks of a document in order. `id`, `chunk_ids`, `keywords` (in the text), `available` are filters."""
    several = parse_list(",".join(chunk_ids or []))
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        document = get_document(tx, base, document_id, NOT_OWNED)
        positions: list[int] | None = None
        if several:
            positions = [at for each in several if (at := _parse_position(document, each)) is not None]
        if id:
            position = _parse_position(document, id)
            if position is None or written_chunks.find(tx, _place(base, document), position) is None:
                raise not_found(f"Chunk not found: {dataset_id}/{id[:128]}")
            positions = [position] if positions is None or position in positions else []
        rows, total = chunks.list_of_document(
            tx,
            principal.tenant_id,
            document.id,
            positions=positions,
            keywords=keywords,
            available=is_true(available) if available else None,
            most=page.size,
            skipped=page.offset,
        )
    shown = [knowledge_wire.stored_chunk_json(row, document) for row in rows]
    return success({"chunks": shown, "doc": knowledge_wire.document_json(document, base), "total": total})


@router.get("/datasets/{dataset_id}/documents/{document_id}/chunks/{chunk_id}", dependencies=[NEEDS_READ])
def read_chunk(
    context: ApiContextDep, principal: ApiTokenCaller, dataset_id: str, document_id: str, chunk_id: str
) -> Response:
    """Return a chunk, with the names of RAGFlow's index."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        document = get_document(tx, base, document_id, NOT_OWNED)
        found = _find_chunk(tx, base, document, chunk_id, "Chunk not found!")
    return success(knowledge_wire.index_chunk_json(found, document))


# -- write ------------------------------------------------------------------------------------------------------------
@router.post("/datasets/{dataset_id}/documents/{document_id}/chunks", openapi_extra=body_openapi(ChunkBody))
async def add_chunk(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    body: JsonObject,
    once: OnceByJsonObject,
    dataset_id: str,
    document_id: str,
) -> Response:
    """Add a chunk to a document. Searches find it at once."""
    base, document = await run_in_thread(lambda: _find(context, principal, dataset_id, document_id))
    fields = _parse_fields(body, "is required to be a list")
    content = fields.content
    if content is None:
        raise RequestRefused(DATA, "`content` is required")
    await run_in_thread(lambda: once.check_repeat(context.database))
    details = {name: value for name, value in fields.details.items() if value}
    index = await _index(context, base, content, details)

    def store() -> Response:
        with once.transaction(context.database) as tx:
            place = _place(base, document)
            position = written_chunks.add(tx, place, content, index, details=details, image=fields.image)
            if fields.available is False:
                written_chunks.switch(tx, place, [position], available=False)
            stored = StoredChunk(position, content, details, fields.available is not False, fields.image is not None)
            shown = knowledge_wire.stored_chunk_json(stored, document)
            now = datetime.now(UTC)
            times = {"create_time": now.strftime("%Y-%m-%d %H:%M:%S"), "create_timestamp": now.timestamp()}
            return once.store_reply(tx, success({"chunk": {**shown, **times}}, **_warnings(fields)))

    return await run_in_thread(store)


@router.patch("/datasets/{dataset_id}/documents/{document_id}/chunks/{chunk_id}", openapi_extra=body_openapi(ChunkBody))
async def change_chunk(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    body: JsonObject,
    dataset_id: str,
    document_id: str,
    chunk_id: str,
) -> Response:
    """Change what is given of a chunk, also of one that was parsed."""
    base, document = await run_in_thread(lambda: _find(context, principal, dataset_id, document_id))

    def load() -> StoredChunk:
        with context.database.transaction() as tx:
            return _find_chunk(tx, base, document, chunk_id, f"Can't find this chunk {chunk_id[:128]}")

    former = await run_in_thread(load)
    fields = _parse_fields(body, "should be a list")
    for _ in range(MAX_TRIES):  # each against the chunk as it is by now, so that no change of another client is lost
        changed = _replace_given(former, fields)
        is_same = changed.text == former.text and all(
            _texts_of(changed.details, name) == _texts_of(former.details, name)
            for name in ("important_keywords", "questions")
        )
        index = None if is_same else await _index(context, base, changed.text, changed.details or {})
        if await run_in_thread(_updater(context, _place(base, document), former, changed, index, fields.image)):
            return success(None, **_warnings(fields))
        former = await run_in_thread(load)
    raise RequestRefused(CONFLICT, "Other requests change this chunk all the time. Try again.", status=409)


@router.patch("/datasets/{dataset_id}/documents/{document_id}/chunks", openapi_extra=body_openapi(SwitchedChunksBody))
def switch_chunks(
    context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str, document_id: str
) -> Response:
    """Have searches find chunks, or not find them: all that are named, or none if one does not exist."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        refuse_unknown_fields(body, tuple(SwitchedChunksBody.model_fields))
        if not body.get("chunk_ids"):
            raise RequestRefused(DATA, "`chunk_ids` is required.")
        written = body.get("available_int") if body.get("available_int") is not None else body.get("available")
        if written is None:
            raise RequestRefused(DATA, "`available_int` or `available` is required.")
        available = _parse_available(written)
        document = get_document(tx, base, document_id, "document not found")
        ids, _ = split_duplicates(body["chunk_ids"], "chunk_ids", "chunk")
        positions = [at for each in ids if (at := _parse_position(document, each)) is not None]
        if written_chunks.switch(tx, _place(base, document), positions, available=available) < len(ids):
            raise not_found("Index updating failure")
    return success(True)


@router.delete("/datasets/{dataset_id}/documents/{document_id}/chunks", openapi_extra=body_openapi(DeletedChunksBody))
def delete_chunks(
    context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str, document_id: str
) -> Response:
    """Delete chunks: `chunk_ids`, or all of the document with `delete_all`. Those that exist are always deleted."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        document = get_document(tx, base, document_id, NOT_OWNED)
        refuse_unknown_fields(body, tuple(DeletedChunksBody.model_fields))
        ids, duplicates = split_duplicates(body.get("chunk_ids") or [], "chunk_ids", "chunk")
        if not ids and body.get("delete_all") is not True:
            return success(None)
        positions = [at for each in ids if (at := _parse_position(document, each)) is not None] if ids else None
        deleted = written_chunks.delete(tx, _place(base, document), positions)
        if deleted:
            details = {"knowledge_base_id": base.id.hex, "chunks": deleted}
            principal.record(tx, Action.CHUNKS_DELETED, document.id, **details)
    if ids and deleted != len(ids):
        raise not_found(f"rm_chunk deleted chunks {deleted}, expect {len(ids)}")
    if duplicates:
        message = f"Partially deleted {deleted} chunks with {len(duplicates)} errors"
        return json_reply({"code": 0, "message": message, "data": {"success_count": deleted, "errors": duplicates}})
    return json_reply({"code": 0, "message": f"deleted {deleted} chunks", "data": None})


# -- steps ------------------------------------------------------------------------------------------------------------
def _find(
    context: ApiContext, principal: RequestPrincipal, dataset_id: str, document_id: str
) -> tuple[KnowledgeBase, KnowledgeDocument]:
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        return base, get_document(tx, base, document_id, NOT_OWNED)


def _place(base: KnowledgeBase, document: KnowledgeDocument) -> ChunkPlace:
    return ChunkPlace(base.tenant_id, base.id, document.id)


def _find_chunk(tx: Any, base: KnowledgeBase, document: KnowledgeDocument, chunk_id: str, message: str) -> StoredChunk:
    """Return a chunk of a document. Raises RequestRefused with the message."""
    position = _parse_position(document, chunk_id)
    found = written_chunks.find(tx, _place(base, document), position) if position is not None else None
    if found is None:
        raise not_found(message)
    return found


def _parse_position(document: KnowledgeDocument, written: str) -> int | None:
    """Return the position of a chunk by its id; None if it is not the id of a chunk of the document."""
    found = parse_chunk_id(written)
    return found[1] if found is not None and found[0] == document.id else None


def parse_chunk_id(written: str) -> tuple[UUID, int] | None:
    """Return the document and the position that the id of a chunk names; None if it is not such an id."""
    document, position = written[:-8], written[-8:]
    if not re.fullmatch(r"[0-9a-f]{32}", document) or not _POSITION.fullmatch(position):
        return None
    return UUID(document), int(position, 16)


async def _index(context: ApiContext, base: KnowledgeBase, content: str, details: Mapping[str, Any]) -> ChunkIndex:
    """Return what searches need of a chunk. Raises RequestRefused if the model fails."""
    keywords, questions = (_texts_of(details, name) for name in ("important_keywords", "questions"))
    try:
        return await index_chunk(context.models, base, content, keywords, questions)
    except NodeFailure as failure:
        raise RequestRefused(DATA, failure.message) from failure


def _texts_of(details: Mapping[str, Any] | None, name: str) -> list[str]:
    return list((details or {}).get(name, []))


def _replace_given(former: StoredChunk, fields: _Fields) -> StoredChunk:
    """Return a chunk with the given fields replaced."""
    details = {name: value for name, value in {**(former.details or {}), **fields.details}.items() if value}
    return replace(
        former,
        text=former.text if fields.content is None else fields.content,
        details=details if details or former.details is not None else None,
        available=former.available if fields.available is None else fields.available,
    )


def _updater(
    context: ApiContext,
    place: ChunkPlace,
    former: StoredChunk,
    changed: StoredChunk,
    index: ChunkIndex | None,
    image: bytes | None,
) -> Callable[[], bool]:
    def update() -> bool:
        with context.database.transaction() as tx:
            return written_chunks.update(tx, place, former, changed, index, image)

    return update


def _warnings(fields: _Fields) -> dict[str, list[str]]:
    named = [name for name in WITHOUT_EFFECT if fields.details.get(name)]
    return {"warnings": [f"`{name}` has no effect here." for name in named]} if named else {}


# -- fields -----------------------------------------------------------------------------------------------------------
def _parse_fields(body: Mapping[str, Any], no_list: str) -> _Fields:
    """Return the fields of a chunk that a body has; null counts as absent. Raises RequestRefused.

    `no_list`: RAGFlow's words about a field that is no list, which differ by route.
    """
    refuse_unknown_fields(body, tuple(ChunkBody.model_fields))
    given = {name: value for name, value in body.items() if value is not None}
    details: dict[str, Any] = {}
    for name in ("important_keywords", "questions", "tag_kwd"):
        if name in given:
            details[name] = _parse_texts(name, given[name], no_list)
    if "questions" in details:
        details["questions"] = [each.strip() for each in details["questions"] if each.strip()]
    if "tag_feas" in given:
        details["tag_feas"] = _parse_tag_weights(given["tag_feas"])
    if "positions" in given:
        details["positions"] = _parse_positions(given["positions"], no_list)
    if len(json.dumps(details)) > MAX_DETAILS_CHARS:
        raise RequestRefused(
            DATA, f"Keywords, questions, tags and positions may have {MAX_DETAILS_CHARS} characters together."
        )
    return _Fields(
        _parse_content(given["content"]) if "content" in given else None,
        details,
        _parse_available(given["available"]) if "available" in given else None,
        _parse_image(given["image_base64"]) if "image_base64" in given else None,
    )


def _parse_content(written: Any) -> str:
    if not isinstance(written, str) or not written.strip():
        raise RequestRefused(DATA, "`content` is required")
    if len(written) > MAX_CONTENT_CHARS:
        raise RequestRefused(DATA, f"`content` may have {MAX_CONTENT_CHARS} characters. Write several chunks.")
    return written


def _parse_texts(name: str, written: Any, no_list: str) -> list[str]:
    if not isinstance(written, list):
        raise RequestRefused(DATA, f"`{name}` {no_list}")
    if not all(isinstance(each, str) for each in written):
        raise RequestRefused(DATA, f"`{name}` must be a list of strings")
    return written


def _parse_positions(written: Any, no_list: str) -> list[list[int]]:
    if not isinstance(written, list):
        raise RequestRefused(DATA, f"`positions` {no_list}")
    for each in written:
        if not isinstance(each, list) or len(each) != 5 or not all(type(number) is int for number in each):
            raise RequestRefused(DATA, "Each sublist in positions must have a length of 5, of whole numbers")
    return written


def _parse_tag_weights(written: Any) -> dict[str, float]:
    is_valid = isinstance(written, dict) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in written.values()
    )
    if not is_valid:
        raise RequestRefused(DATA, "`tag_feas` must be an object of numbers")
    return written


def _parse_available(written: Any) -> bool:
    if written not in (True, False):  # 1 and 0 too
        raise RequestRefused(DATA, "`available` should be a boolean")
    return bool(written)


def _parse_image(written: Any) -> bytes:
    if not isinstance(written, str) or not written.strip():
        raise RequestRefused(DATA, "`image_base64` must be a non-empty string")
    try:
        data = base64.b64decode(written, validate=True)
    except (binascii.Error, ValueError):
        raise RequestRefused(DATA, "Invalid `image_base64`") from None
    if not data:
        raise RequestRefused(DATA, "`image_base64` is empty")
    if image_type("", "", data) not in IMAGE_TYPES:
        raise RequestRefused(DATA, "`image_base64` has no picture of the type PNG, JPEG, GIF or WebP.")
    return data
