"""Routes that start and stop the parsing of documents.

Parsing a document again replaces all of its chunks, also those that people wrote or changed. While a document waits or
is read, another request to parse it changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from api.http.errors import AUTHENTICATION, DATA, RequestRefused
from api.http.replies import json_reply, parse_id, success
from api.http.reply_styles import EnvelopeRoute
from api.http.schemas import number_or_text
from api.knowledge.datasets import get_caller_base
from api.knowledge.documents import documents_not_found, find_documents
from api.knowledge.ragflow_words import refuse_unknown_fields, require_arguments, split_duplicates
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.request_bodies import JsonObject, body_openapi
from api.requests.scopes import NEEDS_EDIT
from store.db.transaction import Transaction
from store.knowledge import documents
from store.knowledge.documents import KnowledgeDocument

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_EDIT], route_class=EnvelopeRoute)

NOT_STOPPABLE = "Can't stop parsing document that has not started or already completed"
START, CANCEL = "1", "2"  # of `run`


class DocumentIdsBody(BaseModel):
    """Documents by id."""

    document_ids: list[str]


class IngestBody(BaseModel):
    """Documents of any bases, and what to do: `run` is 1 to parse them, 2 to stop that."""

    doc_ids: list[str]
    run: Annotated[Literal["1", "2", 1, 2], number_or_text(1, 2)]
    delete: bool = Field(default=True, description="Parsing always replaces the chunks")
    apply_kb: bool = Field(default=False, description="Without an effect here")


class StatusBody(BaseModel):
    """Documents, and whether searches find them: `status` is 1 or 0."""

    doc_ids: list[str]
    status: Annotated[Literal["0", "1", 0, 1], number_or_text(0, 1)]


# -- of one base ------------------------------------------------------------------------------------------------------
@router.post("/datasets/{dataset_id}/chunks", openapi_extra=body_openapi(DocumentIdsBody))
def parse(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Parse documents, so that searches find them. Parsed ones are parsed again.

    If some do not exist, the others are parsed, and the reply names those that do not.
    """
    started, duplicates = _parse(context, principal, body, dataset_id)
    return _counting_reply("parsed", started, duplicates) if duplicates else success(None)


@router.post("/datasets/{dataset_id}/documents/parse", openapi_extra=body_openapi(DocumentIdsBody))
def parse_documents(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Parse documents, like `POST /datasets/{dataset_id}/chunks`; the reply counts them."""
    return _counting_reply("parsed", *_parse(context, principal, body, dataset_id))


@router.delete("/datasets/{dataset_id}/chunks", openapi_extra=body_openapi(DocumentIdsBody))
def stop_parsing(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Stop parsing documents: all that are named, or none if one is not being parsed."""
    stopped, duplicates = _stop(context, principal, body, dataset_id)
    return _counting_reply("stopped", stopped, duplicates) if duplicates else success(None)


@router.post("/datasets/{dataset_id}/documents/stop", openapi_extra=body_openapi(DocumentIdsBody))
def stop_documents(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Stop parsing documents, like `DELETE /datasets/{dataset_id}/chunks`; the reply counts them."""
    return _counting_reply("stopped", *_stop(context, principal, body, dataset_id))


@router.post("/datasets/{dataset_id}/documents/batch-update-status", openapi_extra=body_openapi(StatusBody))
def set_document_status(
    context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str
) -> Response:
    """Have searches find documents, or not find them: all that are named, or none if one does not exist."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        refuse_unknown_fields(body, tuple(StatusBody.model_fields))
        require_arguments(body, "doc_ids", "status")
        if str(body["status"]) not in ("0", "1"):
            raise RequestRefused(DATA, '"Status" must be either 0 or 1!')
        written, _ = split_duplicates(body["doc_ids"], "doc_ids", "document")
        ids, missing = find_documents(tx, base, written)
        if missing:
            raise documents_not_found(missing)
        status = str(body["status"])
        for document_id in ids:
            documents.update(tx, principal.tenant_id, base.id, document_id, enabled=status == "1")
    return success({each: {"status": status} for each in written})


# -- of any base ------------------------------------------------------------------------------------------------------
@router.post("/documents/ingest", openapi_extra=body_openapi(IngestBody))
def ingest_documents(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject) -> Response:
    """Parse documents of any bases, or stop parsing them: all that are named, or none if one does not exist."""
    refuse_unknown_fields(body, tuple(IngestBody.model_fields))
    require_arguments(body, "doc_ids", "run")
    run = str(body["run"])
    if run not in (START, CANCEL):
        raise RequestRefused(DATA, "`run` must be 1 (parse) or 2 (cancel).")
    written, _ = split_duplicates(body["doc_ids"], "doc_ids", "document")
    with context.database.transaction() as tx:
        found = _find_anywhere(tx, principal, written)
        by_base: dict[UUID, list[UUID]] = {}
        for document in found:
            by_base.setdefault(document.base_id, []).append(document.id)
        for base_id, ids in by_base.items():
            if run == START:
                documents.start_processing(tx, principal.tenant_id, base_id, ids)
            elif documents.stop_processing(tx, principal.tenant_id, base_id, ids) < len(ids):
                raise RequestRefused(DATA, "Cannot cancel a task that is not in RUNNING status")
    if run == START and found:
        context.lifecycle.coordinator.dispatch.ingest()
    ignored = [name for name, usual in (("delete", True), ("apply_kb", False)) if body.get(name, usual) is not usual]
    warnings = {"warnings": [f"`{name}` has no effect here." for name in ignored]} if ignored else {}
    return success(True, **warnings)


# -- steps ------------------------------------------------------------------------------------------------------------
def _parse(
    context: ApiContext, principal: RequestPrincipal, body: Mapping[str, Any], dataset_id: str
) -> tuple[int, list[str]]:
    """Start parsing; return how many documents there are, and the messages about repeated ids."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        written, duplicates = _document_ids(body)
        ids, missing = find_documents(tx, base, written)
        documents.start_processing(tx, principal.tenant_id, base.id, ids)
    if ids:
        context.lifecycle.coordinator.dispatch.ingest()
    if missing:
        raise documents_not_found(missing)
    return len(ids), duplicates


def _stop(
    context: ApiContext, principal: RequestPrincipal, body: Mapping[str, Any], dataset_id: str
) -> tuple[int, list[str]]:
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        written, duplicates = _document_ids(body)
        ids, missing = find_documents(tx, base, written)
        if missing:
            raise RequestRefused(DATA, f"you don't own the document {missing[0][:128]}", is_absent=True)
        if documents.stop_processing(tx, principal.tenant_id, base.id, ids) < len(ids):
            raise RequestRefused(DATA, NOT_STOPPABLE, data={"error_code": "DOC_STOP_PARSING_INVALID_STATE"})
    return len(ids), duplicates


def _document_ids(body: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the ids of a body without repetitions, and the messages about these. Raises RequestRefused."""
    refuse_unknown_fields(body, tuple(DocumentIdsBody.model_fields))
    if not body.get("document_ids"):
        raise RequestRefused(DATA, "`document_ids` is required")
    return split_duplicates(body["document_ids"], "document_ids", "document")


def _counting_reply(done: str, count: int, errors: Sequence[str]) -> Response:
    message = f"Partially {done} {count} documents with {len(errors)} errors" if errors else "success"
    return json_reply({"code": 0, "message": message, "data": {"success_count": count, "errors": list(errors)}})


def _find_anywhere(tx: Transaction, principal: RequestPrincipal, written: Sequence[str]) -> list[KnowledgeDocument]:
    """Return documents of the caller in any bases. Raises RequestRefused if one does not exist."""
    ids = [document_id for each in written if (document_id := parse_id(each)) is not None]
    found = documents.get_of_tenant(tx, principal.tenant_id, ids)
    if len(ids) < len(written) or len(found) < len(set(ids)):
        raise RequestRefused(AUTHENTICATION, "No authorization.", is_absent=True)
    return found
