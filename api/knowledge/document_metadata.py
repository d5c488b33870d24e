"""Routes of the metadata of documents: which keys and values there are, and changes of many documents at once."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.http.errors import DATA, RequestRefused
from api.http.paging import parse_list
from api.http.replies import success
from api.http.reply_styles import EnvelopeRoute
from api.knowledge import dataset_settings
from api.knowledge.dataset_settings import (
    DocumentMetadataConfig,
    MetadataChangesBody,
    MetadataConfig,
    MetadataSelector,
    NewMetadata,
)
from api.knowledge.datasets import find_base, require_bases, require_id
from api.knowledge.documents import get_document, matching_ids
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContextDep
from api.requests.request_bodies import JsonObject, body_openapi, parse_strictly
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from store.db.transaction import Transaction
from store.knowledge import bases as knowledge_bases
from store.knowledge import documents
from store.knowledge.bases import KnowledgeBase

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_EDIT], route_class=EnvelopeRoute)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
_NO_VALUE = object()


# -- what there is ----------------------------------------------------------------------------------------------------
@router.get("/datasets/metadata/flattened", dependencies=[NEEDS_READ])
def flatten(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    dataset_ids: Annotated[list[str] | None, Query(description="May be repeated, or a comma list")] = None,
) -> Response:
    """Return `{key: {value: [ids of documents]}}` of some bases. An entry of a list counts as a value."""
    wanted = {each: require_id("dataset_ids", each) for each in parse_list(",".join(dataset_ids or []))}
    flattened: dict[str, dict[str, list[str]]] = {}
    with context.database.transaction() as tx:
        for base in require_bases(tx, principal, wanted):
            for document_id, metadata in documents.load_metadata(tx, base.tenant_id, base.id).items():
                for key, value in _pairs(metadata):
                    flattened.setdefault(key, {}).setdefault(value, []).append(document_id.hex)
    return success(flattened)


@router.get("/datasets/{dataset_id}/metadata/summary", dependencies=[NEEDS_READ])
def summarize(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    dataset_id: str,
    doc_ids: Annotated[list[str] | None, Query(description="May be repeated, or a comma list")] = None,
) -> Response:
    """Return `{summary: {key: {type, values: [[value, number of documents]]}}}`, the most frequent values first."""
    written = parse_list(",".join(doc_ids or []))
    with context.database.transaction() as tx:
        base = find_base(tx, principal, dataset_id)
        ids = [get_document(tx, base, each).id for each in written] if written else None
        found = list(documents.load_metadata(tx, base.tenant_id, base.id, ids).values())
    counts: dict[str, Counter[str]] = {}
    for metadata in found:
        for key, value in _pairs(metadata):
            counts.setdefault(key, Counter())[value] += 1
    summary = {
        key: {
            "type": _type_of([metadata[key] for metadata in found if key in metadata]),
            "values": [[value, number] for value, number in values.most_common()],
        }
        for key, values in sorted(counts.items())
    }
    return success({"summary": summary})


# -- what a model would look for --------------------------------------------------------------------------------------
@router.get("/datasets/{dataset_id}/metadata/config", dependencies=[NEEDS_READ])
def read_config(context: ApiContextDep, principal: ApiTokenCaller, dataset_id: str) -> Response:
    """Return which metadata RAGFlow would have a model find, as it was stored."""
    with context.database.transaction() as tx:
        base = find_base(tx, principal, dataset_id)
    stored = base.settings.get("auto_metadata_config") or {}
    return success(MetadataConfig.model_validate(stored).model_dump())


@router.put("/datasets/{dataset_id}/metadata/config", openapi_extra=body_openapi(MetadataConfig))
def change_config(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Store which metadata RAGFlow would have a model find. No model looks for it here."""
    config = parse_strictly(MetadataConfig, body).model_dump()
    with context.database.transaction() as tx:
        base = find_base(tx, principal, dataset_id)
        settings = {"auto_metadata_config": config}
        knowledge_bases.update(tx, principal.tenant_id, base.id, settings=settings)
    return success(config, **dataset_settings.effect_warnings(settings))


@router.put(
    "/datasets/{dataset_id}/documents/{document_id}/metadata/config", openapi_extra=body_openapi(DocumentMetadataConfig)
)
def change_document_config(
    context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str, document_id: str
) -> Response:
    """Store which metadata RAGFlow would have a model find in one document, in its `parser_config`."""
    written = parse_strictly(DocumentMetadataConfig, body).model_dump(exclude_unset=True)
    with context.database.transaction() as tx:
        base = find_base(tx, principal, dataset_id)
        document = get_document(tx, base, document_id)
        parser = {**(base.parser if document.parser is None else document.parser), **written}
        documents.update(tx, principal.tenant_id, base.id, document.id, parser=parser)
    warnings = dataset_settings.effect_warnings({"parser_config": written})
    return success({"id": document.id.hex, "parser_config": dataset_settings.complete_parser(parser)}, **warnings)


# -- many documents ---------------------------------------------------------------------------------------------------
@router.patch("/datasets/{dataset_id}/documents/metadatas", openapi_extra=body_openapi(MetadataChangesBody))
def change_many(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Delete and set metadata of many documents: all of them change, or none."""
    changes = parse_strictly(MetadataChangesBody, body)
    if not changes.updates and not changes.deletes:
        raise RequestRefused(DATA, "`updates` or `deletes` is required.")
    with context.database.transaction() as tx:
        base = find_base(tx, principal, dataset_id)
        selected = _select(tx, base, changes.selector)
        current = documents.load_metadata(tx, base.tenant_id, base.id, selected, lock=True)
        changed = {
            document_id: after
            for document_id, before in current.items()
            if (after := _apply(before, changes)) != before
        }
        for metadata in changed.values():
            parse_strictly(NewMetadata, {"meta_fields": metadata}, code=DATA)
        documents.replace_metadata(tx, base.tenant_id, base.id, changed)
    return success({"updated": len(changed), "matched_docs": len(current)})


def _select(tx: Transaction, base: KnowledgeBase, selector: MetadataSelector) -> list[UUID] | None:
    """Return the documents that a selector names, None: all. Raises RequestRefused for unknown ones."""
    chosen: set[UUID] | None = None
    if selector.document_ids:
        chosen = {get_document(tx, base, each).id for each in selector.document_ids}
    if selector.metadata_condition:
        fitting = matching_ids(tx, base, selector.metadata_condition)
        chosen = fitting if chosen is None else chosen & fitting
    return None if chosen is None else list(chosen)


def _apply(before: Mapping[str, Any], changes: MetadataChangesBody) -> dict[str, Any]:
    """Return the metadata of one document after the deletions and updates."""
    after = dict(before)
    for deletion in changes.deletes:
        _delete(after, deletion.key, deletion.value if "value" in deletion.model_fields_set else _NO_VALUE)
    for update in changes.updates:
        if "match" not in update.model_fields_set:
            after[update.key] = update.value
        else:
            _replace(after, update.key, update.match, update.value)
    return after


def _delete(metadata: dict[str, Any], key: str, value: Any) -> None:
    current = metadata.get(key, _NO_VALUE)
    if isinstance(current, list) and value is not _NO_VALUE:
        rest = [each for each in current if str(each) != str(value)]
        if rest:
            metadata[key] = rest
        else:
            del metadata[key]
    elif current is not _NO_VALUE and (value is _NO_VALUE or str(current) == str(value)):
        del metadata[key]


def _replace(metadata: dict[str, Any], key: str, match: Any, value: Any) -> None:
    current = metadata.get(key, _NO_VALUE)
    if isinstance(current, list):
        replaced = [value if str(each) == str(match) else each for each in current]
        metadata[key] = list(dict.fromkeys(replaced)) if not isinstance(value, list | dict) else replaced
    elif current is not _NO_VALUE and str(current) == str(match):
        metadata[key] = value


def _pairs(metadata: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    """Return the keys with their values as texts; each entry of a list is a value of its own, once."""
    for key, value in metadata.items():
        for each in dict.fromkeys(map(str, value)) if isinstance(value, list) else [str(value)]:
            yield key, each


def _type_of(values: list[Any]) -> str:
    if any(isinstance(value, list) for value in values):
        return "list"
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return "number"
    return "time" if all(isinstance(value, str) and _DATE.fullmatch(value) for value in values) else "string"
