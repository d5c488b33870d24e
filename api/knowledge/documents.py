"""Routes of documents in knowledge bases: upload, list, change, delete."""

import io
import json
import mimetypes
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from sqlalchemy.exc import IntegrityError
from starlette.datastructures import UploadFile

from api.agents.files import FORM, file_reply
from api.http.errors import ARGUMENT, DATA, RequestRefused, not_found
from api.http.paging import ListPageDep, is_true, parse_list, parse_order
from api.http.replies import parse_id, success
from api.http.reply_styles import EnvelopeRoute
from api.knowledge import dataset_settings, knowledge_wire
from api.knowledge.dataset_settings import (
    MAX_NAME_BYTES,
    ChangedDocumentBody,
    DeletedDocumentsBody,
    NewDocumentBody,
)
from api.knowledge.datasets import BATCH, get_caller_base
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import IdempotentRequest, make_file_request
from api.requests.request_bodies import JsonObject, body_openapi, json_object, parse_strictly
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from api.requests.uploads import OCTETS, file_name, guess_type, open_uploads, store_upload
from canvas.errors import NotFound, ToolError
from components.text.extraction.file_kinds import has_readable_extension
from knowledge.bases.ingestion import storage_of
from knowledge.bases.metadata_filters import matching_documents, parse_conditions
from store.db.transaction import Transaction
from store.knowledge import documents
from store.knowledge.bases import KnowledgeBase
from store.knowledge.documents import RUNS, DocumentFilter, KnowledgeDocument
from store.tenants import audit
from store.tenants.audit import Action, Actor
from store.tenants.uploads import StoredRef

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_EDIT], route_class=EnvelopeRoute)

MAX_TIMESTAMP_MS = 253_402_300_799_000  # the last second of the year 9999
MAX_FILES = 1000  # of an upload

_CHANGEABLE = frozenset(ChangedDocumentBody.model_fields)
_FIXED = ("chunk_count", "token_count", "progress")  # refused with another value than the document's
_SHOWN_ONLY = frozenset({
    "id", "dataset_id", "location", "size", "type", "suffix", "source_type", "run", "progress_msg", "process_begin_at",
    "process_duration", "created_by", "create_time", "create_date", "update_time", "update_date", "thumbnail",
    "pipeline_id", *_FIXED,
})  # fmt: skip
"""Fields of a document that a client may send back with the ones that it changes."""


_UPLOAD = {
    "content": {
        "multipart/form-data": {"schema": FORM},
        "application/json": {"schema": NewDocumentBody.model_json_schema()},
    },
    "required": True,
}


# -- upload and download ----------------------------------------------------------------------------------------------
@router.post("/datasets/{dataset_id}/documents", openapi_extra={"requestBody": _UPLOAD})
async def upload(
    request: Request,
    context: ApiContextDep,
    principal: ApiTokenCaller,
    dataset_id: str,
    type: Annotated[  # noqa: A002 - the name on the wire
        Literal["", "local", "empty"], Query(description="`empty`: a document without content, of the given name")
    ] = "local",
) -> Response:
    """Add documents to a base, which are not parsed yet. A name in use gets a number: `a(1).txt`.

    Files with the same bytes are documents of their own.
    """
    base = await run_in_thread(lambda: _find_base(context, principal, dataset_id))
    if type == "empty":
        fields = parse_strictly(NewDocumentBody, await json_object(request, context))
        return await run_in_thread(lambda: _add_empty(request, context, principal, base, fields.name))
    async with open_uploads(request, most_files=MAX_FILES, without_file="No file part!") as found:
        _check_names([file.filename or "" for file in found])
        once = await run_in_thread(
            lambda: make_file_request(request, principal, [(file.filename or "", file.file) for file in found])
        )
        await run_in_thread(lambda: once.check_repeat(context.database))
        stored_files = await run_in_thread(lambda: _store_files(context, base, found))
    return await run_in_thread(lambda: _store_rows(context, base, once, stored_files))


def _find_base(context: ApiContext, principal: RequestPrincipal, dataset_id: str) -> KnowledgeBase:
    try:
        with context.database.transaction() as tx:
            return get_caller_base(tx, principal, dataset_id)
    except (NotFound, RequestRefused):
        raise not_found(f"Can't find the dataset with ID {dataset_id}!") from None


def _check_names(names: list[str]) -> None:
    """Raise RequestRefused for a file without a name, with a too long one, or of a kind that cannot be read."""
    for name in names:
        if not name.strip():
            raise RequestRefused(ARGUMENT, "File name can't be empty.")
        if len(name.encode()) > MAX_NAME_BYTES:
            raise RequestRefused(ARGUMENT, "File name must be 255 bytes or less.")
    unreadable = [name for name in names if not _is_readable(file_name(name))]
    if unreadable:
        lines = [f"{name}: This type of file has not been supported yet!" for name in unreadable[:10]]
        raise RequestRefused(DATA, "\n".join(lines))


def _is_readable(name: str) -> bool:
    """Return whether a file of this name may be readable. A file without an extension may be text."""
    kind = mimetypes.guess_type(name, strict=False)[0] or ""
    return "." not in name[1:] or has_readable_extension(name) or kind.startswith("text/")


def _store_files(context: ApiContext, base: KnowledgeBase, files: list[UploadFile]) -> list[StoredRef]:
    blobs = storage_of(context.blobs, base.id)
    return [store_upload(blobs, file) for file in files]


def _store_rows(
    context: ApiContext, base: KnowledgeBase, once: IdempotentRequest, stored_files: list[StoredRef]
) -> Response:
    with once.transaction(context.database) as tx:
        added = [
            documents.add(tx, base.tenant_id, base.id, file.name, file.mime_type, file.size, file.sha256)
            for file in stored_files
        ]
        return once.store_reply(tx, success([knowledge_wire.document_json(document, base) for document in added]))


def _add_empty(
    request: Request, context: ApiContext, principal: RequestPrincipal, base: KnowledgeBase, name: str
) -> Response:
    _check_names([name])
    once = make_file_request(request, principal, [(name, io.BytesIO())])
    once.check_repeat(context.database)
    sha256 = storage_of(context.blobs, base.id).store(b"")
    with once.transaction(context.database) as tx:
        if documents.page(tx, base.tenant_id, base.id, DocumentFilter(name=name), most=1)[0]:
            raise RequestRefused(DATA, "Duplicated document name in the same dataset.")
        document = documents.add(tx, base.tenant_id, base.id, name, guess_type(name), 0, sha256)
        return once.store_reply(tx, success(knowledge_wire.document_json(document, base)))


@router.get("/datasets/{dataset_id}/documents/{document_id}", dependencies=[NEEDS_READ])
def download(
    request: Request, context: ApiContextDep, principal: ApiTokenCaller, dataset_id: str, document_id: str
) -> Response:
    """Download a document, always as an attachment."""
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        document = get_document(tx, base, document_id)
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
    run: Annotated[list[str] | None, Query(description="UNSTART, RUNNING, CANCEL, DONE, FAIL, or 0 to 4")] = None,
    suffix: Annotated[list[str] | None, Query(description="Extensions, without the dot")] = None,
    metadata_condition: Annotated[str, Query(description="A JSON object: `{logic, conditions}`")] = "",
    create_time_from: Annotated[int, Query(ge=0, le=MAX_TIMESTAMP_MS)] = 0,
    create_time_to: Annotated[int, Query(ge=0, le=MAX_TIMESTAMP_MS)] = 0,
    orderby: str = "create_time",
    desc: str = "true",
    type: Literal["", "filter"] = "",  # noqa: A002 - the name on the wire
) -> Response:
    """List the documents of a base, the newest first. `id`, `name` and `keywords` (in the name) are filters.

    So are `run` and `suffix` (repeated, or comma lists), `metadata_condition`, and the times between which a document
    was added, in ms since 1970; 0 sets no limit. With `type=filter`, count the documents by state, extension and
    metadata instead.
    """
    document_id = parse_id(id) if id else None
    if id and document_id is None:
        raise not_found(f"you don't own the document {id}")
    runs = _parse_runs(run)
    suffixes = [each.lower().removeprefix(".") for each in _entries(suffix)] or None
    condition = parse_condition(metadata_condition)
    order_by = parse_order(orderby, documents.ORDERS)
    with context.database.transaction() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        ids = None if document_id is None else {document_id}
        if condition is not None:
            fitting = matching_ids(tx, base, condition)
            ids = fitting if ids is None else ids & fitting
        only = DocumentFilter(
            ids=None if ids is None else list(ids),
            name=name or None,
            keywords=keywords,
            runs=runs,
            suffixes=suffixes,
            since=_parse_time(create_time_from),
            until=_parse_time(create_time_to),
        )
        if type == "filter":
            return success(_count_for_filter(documents.list_facts(tx, base.tenant_id, base.id, only)))
        found, total = documents.page(
            tx,
            principal.tenant_id,
            base.id,
            only,
            order_by=order_by,
            descending=is_true(desc),
            most=page.size,
            skipped=page.offset,
        )
    has_further_filters = bool(runs or suffixes or condition or keywords or create_time_from or create_time_to)
    if (id or name) and not total and not has_further_filters:
        raise not_found(f"you don't own the document {id or name}")
    return success({"docs": [knowledge_wire.document_json(each, base) for each in found], "total": total})


@router.put("/datasets/{dataset_id}/documents/{document_id}", openapi_extra=body_openapi(ChangedDocumentBody))
@router.patch("/datasets/{dataset_id}/documents/{document_id}", openapi_extra=body_openapi(ChangedDocumentBody))
def change(
    context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str, document_id: str
) -> Response:
    """Change a document: its name, its metadata, its settings for parsing, or whether searches find it.

    Other fields of a document may be sent back as they are.
    """
    shown_only = {name: value for name, value in body.items() if name in _SHOWN_ONLY}
    written = {name: value for name, value in body.items() if name not in _SHOWN_ONLY}
    try:
        with context.database.transaction() as tx:
            base = get_caller_base(tx, principal, dataset_id)
            document = get_document(tx, base, document_id)
            shown = knowledge_wire.document_json(document, base)
            for name in _FIXED:
                if name in shown_only and shown_only[name] != shown[name]:
                    raise RequestRefused(DATA, f"can't change `{name}`.")
            fields = parse_strictly(ChangedDocumentBody, written, code=DATA)
            changes = _changes(fields, document, base, shown)
            documents.update(tx, principal.tenant_id, base.id, document.id, **changes)
            changed = knowledge_wire.document_json(get_document(tx, base, document_id), base)
    except IntegrityError:  # only the unique name can be violated by these columns
        raise RequestRefused(DATA, "Duplicated document name in the same dataset.") from None
    stale = [name for name, value in shown_only.items() if value != shown.get(name)]
    warnings = [*(f"`{name}` has no effect here." for name in stale), *_warnings(fields, shown)]
    return success(changed, **({"warnings": warnings} if warnings else {}))


def _changes(
    fields: ChangedDocumentBody, document: KnowledgeDocument, base: KnowledgeBase, shown: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a body changes of a document, as the parameters of its update. Raises RequestRefused."""
    given = fields.model_fields_set
    changes: dict[str, Any] = {}
    if "name" in given:
        if _suffix(fields.name) != _suffix(document.name):
            raise RequestRefused(DATA, "The extension of file can't be changed")
        changes["name"] = fields.name
    if "meta_fields" in given:
        changes["metadata"] = fields.meta_fields
    if "chunk_method" in given and fields.chunk_method != shown["chunk_method"]:
        changes["settings"] = {"chunk_method": fields.chunk_method}
    if "parser_config" in given:
        current = base.parser if document.parser is None else document.parser
        parser = {**current, **dataset_settings.written_parser(fields.parser_config, current)}
        if dataset_settings.complete_parser(parser) != shown["parser_config"]:
            changes["parser"] = parser
    if "status" in given and (is_enabled := str(fields.status) == "1") != document.enabled:
        changes["enabled"] = is_enabled
    if "enabled" in given and fields.enabled != document.enabled:
        changes["enabled"] = fields.enabled
    return changes


def _warnings(fields: ChangedDocumentBody, shown: Mapping[str, Any]) -> list[str]:
    """Return the warnings about fields that change something and have no effect here."""
    dumped = fields.model_dump(exclude_unset=True)
    parser = {
        name: value for name, value in (dumped.get("parser_config") or {}).items()
        if value != shown["parser_config"].get(name)
    }  # fmt: skip
    changed = {"parser_config": parser}
    if dumped.get("chunk_method", shown["chunk_method"]) != shown["chunk_method"]:
        changed["chunk_method"] = dumped["chunk_method"]
    return dataset_settings.effect_warnings(changed).get("warnings", [])


@router.delete("/datasets/{dataset_id}/documents", openapi_extra=body_openapi(DeletedDocumentsBody))
def delete(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Delete documents with their chunks: `ids`, or all with `delete_all`."""
    fields = parse_strictly(DeletedDocumentsBody, body)
    with context.database.statements() as tx:
        base = get_caller_base(tx, principal, dataset_id)
        if not fields.ids and not fields.delete_all:
            raise RequestRefused(DATA, f"should either provide doc ids or set delete_all(true), dataset: {dataset_id}")
        ids = _require_documents(tx, base, fields.ids) if fields.ids else []
    if ids:
        for start in range(0, len(ids), BATCH):  # in batches, since a statement may take ten seconds
            _delete(context, base, ids[start : start + BATCH], principal.actor)
        return success({"deleted": len(ids)})
    deleted = 0
    while True:
        with context.database.statements() as tx:
            found, _ = documents.page(tx, principal.tenant_id, base.id, most=BATCH)
        _delete(context, base, [document.id for document in found], principal.actor)
        deleted += len(found)
        if not found:
            return success({"deleted": deleted})


def _delete(context: ApiContext, base: KnowledgeBase, ids: list[UUID], by: Actor) -> None:
    """Delete the bytes of documents, then their rows, so that an interrupted request can be repeated.

    Bytes that another document of the base has too stay.
    """
    with context.database.statements() as tx:
        contents = documents.list_unshared_contents(tx, base.tenant_id, base.id, ids)
    storage = storage_of(context.blobs, base.id)
    for sha256 in contents:
        storage.discard(sha256)
    with context.database.transaction() as tx:
        documents.delete(tx, base.tenant_id, base.id, ids)
        for document_id in ids:
            details = {"knowledge_base_id": base.id.hex}
            audit.record(tx, base.tenant_id, by, Action.DOCUMENT_DELETED, document_id, details)


# -- steps ------------------------------------------------------------------------------------------------------------
def get_document(
    tx: Transaction, base: KnowledgeBase, written: str, message: str = "The dataset not own the document {id}."
) -> KnowledgeDocument:
    """Return a document of a base. Raises RequestRefused with the message if the base has none with this id."""
    document_id = parse_id(written)
    found = documents.get_many(tx, base.tenant_id, base.id, [document_id]) if document_id is not None else []
    if not found:
        raise not_found(message.replace("{id}", written))
    return found[0]


def parse_condition(written: str) -> Mapping[str, Any] | None:
    """Return the metadata condition in a query, None if there is none. Raises RequestRefused for no JSON object."""
    if not written:
        return None
    try:
        condition = json.loads(written)
    except (ValueError, RecursionError):
        condition = None
    if not isinstance(condition, dict):
        raise RequestRefused(DATA, "metadata_condition must be an object.")
    return condition


def matching_ids(tx: Transaction, base: KnowledgeBase, condition: Mapping[str, Any]) -> set[UUID]:
    """Return the documents of a base that meet `{logic, conditions}`. Raises RequestRefused for other members."""
    unknown = set(condition) - {"logic", "conditions", "logical_operator"}
    conditions = condition.get("conditions") or []
    if unknown or not isinstance(conditions, list):
        raise RequestRefused(DATA, "metadata_condition must be {logic, conditions: [...]}.")
    try:
        parsed = parse_conditions(conditions)
    except ToolError as error:
        raise RequestRefused(DATA, error.message) from None
    logic = str(condition.get("logic") or condition.get("logical_operator") or "and")
    return matching_documents(documents.load_metadata(tx, base.tenant_id, base.id), parsed, logic)


def _count_for_filter(facts: Iterable[Any]) -> dict[str, Any]:
    """Return the numbers of documents by state, extension, and value of each key of their metadata."""
    facts = list(facts)
    by_key: dict[str, Counter[str]] = {}
    for fact in facts:
        for key, value in fact.metadata.items():
            values = value if isinstance(value, list) else [value]
            by_key.setdefault(key, Counter()).update({str(each) for each in values})
    return {
        "filter": {
            "suffix": dict(Counter(fact.suffix for fact in facts)),
            "run_status": dict(Counter(str(RUNS.index(fact.run)) for fact in facts)),
            "metadata": {key: dict(counts) for key, counts in by_key.items()},
        },
        "total": len(facts),
    }


def _parse_runs(written: list[str] | None) -> list[str] | None:
    """Return the states of a filter, which may be written as numbers. Raises RequestRefused for unknown ones."""
    entries = [each.upper() for each in _entries(written)]
    numbers = {str(number): run for number, run in enumerate(RUNS)}
    unknown = [each for each in entries if each not in RUNS and each not in numbers]
    if unknown:
        raise RequestRefused(
            DATA, f"Invalid filter run status conditions: {', '.join(unknown[:5])}. Use: {', '.join(RUNS)}, or 0 to 4."
        )
    return [numbers.get(each, each) for each in entries] or None


def _entries(written: list[str] | None) -> list[str]:
    return parse_list(",".join(written or []))


def _suffix(name: str) -> str:
    return name.rpartition(".")[2].lower() if "." in name else ""


def _parse_time(ms: int) -> datetime | None:
    return datetime.fromtimestamp(ms / 1000, UTC) if ms else None


def _require_documents(tx: Transaction, base: KnowledgeBase, written: list[str]) -> list[UUID]:
    """Return the ids of documents of a base. Raises RequestRefused if one is not in the base."""
    ids, missing = find_documents(tx, base, written)
    if missing:
        raise documents_not_found(missing)
    return ids


def find_documents(tx: Transaction, base: KnowledgeBase, written: list[str]) -> tuple[list[UUID], list[str]]:
    """Return the ids of documents of a base, and the written ids that are none."""
    ids = {each: parse_id(each) for each in written}
    parsed = [each for each in ids.values() if each is not None]
    known = {document.id for document in documents.get_many(tx, base.tenant_id, base.id, parsed)}
    missing = [each for each, document_id in ids.items() if document_id not in known]
    return list(dict.fromkeys(each for each in parsed if each in known)), missing


def documents_not_found(missing: list[str]) -> RequestRefused:
    return not_found(f"Documents not found: {missing[:100]}")
