"""Routes of knowledge bases, which RAGFlow calls datasets: create, list, change, delete."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.http.errors import ARGUMENT, DATA, RequestRefused, UnsupportedParameter, not_found
from api.http.paging import MAX_ENTRIES, parse_list
from api.http.replies import json_reply, parse_id, success
from api.http.reply_styles import EnvelopeRoute
from api.http.validation_words import describe_field
from api.knowledge import dataset_settings, knowledge_wire
from api.knowledge.dataset_settings import ChangedDatasetBody, DeletedDatasetsBody, NewDatasetBody
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import OnceByJsonObject
from api.requests.request_bodies import JsonObject, body_openapi, parse_strictly
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.errors import Conflict, ModelError, NotFound
from knowledge.bases.chunking import DEFAULTS
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

router = APIRouter(tags=["knowledge bases"], dependencies=[NEEDS_EDIT], route_class=EnvelopeRoute)

MAX_IDS = 100
BATCH = 100  # documents that are deleted per transaction


def get_caller_base(tx: Transaction, principal: RequestPrincipal, dataset_id: str) -> KnowledgeBase:
    """Return a base of the caller. Raises RequestRefused, also for a base of another tenant."""
    base_id = parse_id(dataset_id)
    if base_id is None:
        raise not_found(f"You don't own the dataset {dataset_id}.")
    return knowledge_bases.get(tx, principal.tenant_id, base_id)


def require_id(field: str, written: str) -> UUID:
    """Return the id in a path or query. Raises RequestRefused if it is not an id."""
    parsed = parse_id(written)
    if parsed is None:
        raise RequestRefused(ARGUMENT, describe_field([field], "Invalid UUID format", written))
    return parsed


def find_base(tx: Transaction, principal: RequestPrincipal, dataset_id: str) -> KnowledgeBase:
    """Return a base of the caller. Raises RequestRefused, for what is no id with another message."""
    try:
        return knowledge_bases.get(tx, principal.tenant_id, require_id("dataset_id", dataset_id))
    except NotFound:
        raise _lacks_permission(principal, dataset_id) from None


def require_bases(tx: Transaction, principal: RequestPrincipal, wanted: Mapping[str, UUID]) -> list[KnowledgeBase]:
    """Return bases of the caller by their ids as they are written. Raises RequestRefused if one does not exist."""
    if not wanted:
        return []
    ids = list(dict.fromkeys(wanted.values()))
    found, _ = knowledge_bases.page(tx, principal.tenant_id, ids=ids, most=len(ids))
    known = {base.id for base in found}
    missing = [each for each, base_id in wanted.items() if base_id not in known]
    if missing:
        raise _lacks_permission(principal, ", ".join(missing[:10]))
    return found


# -- create, list, read -----------------------------------------------------------------------------------------------
@router.post("/datasets", openapi_extra=body_openapi(NewDatasetBody))
def create(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, once: OnceByJsonObject) -> Response:
    """Create an empty base. If its name is taken, it gets a number: `name(1)`."""
    fields = parse_strictly(NewDatasetBody, body)
    model = _choose_model(context, principal, fields.embedding_model)
    with once.transaction(context.database) as tx:
        base_id = knowledge_bases.create_numbered(
            tx,
            principal.tenant_id,
            fields.name,
            embedding_model=model,
            parser={**DEFAULTS, **dataset_settings.written_parser(fields.parser_config, {})},
            settings=dataset_settings.written_settings(fields),
            description=fields.description or "",
            language=fields.language,
        )
        base = knowledge_bases.get(tx, principal.tenant_id, base_id)
        return once.store_reply(
            tx,
            success(
                knowledge_wire.dataset_json(base),
                **dataset_settings.effect_warnings(fields.model_dump(exclude_unset=True)),
            ),
        )


@router.get("/datasets", dependencies=[NEEDS_READ])
def list_datasets(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
    page_size: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 30,
    id: str | None = None,  # noqa: A002 - the name on the wire
    ids: Annotated[list[str] | None, Query(description="May be repeated, or a comma list")] = None,
    name: str = "",
    keywords: Annotated[str, Query(description="Must be in the name")] = "",
    orderby: Literal["create_time", "update_time"] = "create_time",
    desc: bool = True,
    type: Literal["", "filter"] = "",  # noqa: A002 - the name on the wire
    ext: Annotated[str, Query(description="A JSON object with `keywords` and `owner_ids`")] = "",
) -> Response:
    """List the caller's bases, the newest first. `id`, `ids`, `name` and `keywords` are filters.

    An unknown id or name is an error; an id and a name that are not those of the same base find nothing.
    `desc=false` reverses the order. With `type=filter`, count the bases by owner instead.
    """
    further = _parse_ext(ext)
    named = [*parse_list(",".join(ids or [])), *([id] if id is not None else [])]
    wanted = {each: require_id("id", each) for each in named}
    with context.database.transaction() as tx:
        require_bases(tx, principal, wanted)
        if name and not knowledge_bases.page(tx, principal.tenant_id, name=name, most=1)[0]:
            raise _lacks_permission(principal, name)
        found, total = knowledge_bases.page(
            tx,
            principal.tenant_id,
            ids=list(wanted.values()) if named else None,
            name=name or None,
            keywords=further.get("keywords") or keywords,
            order_by=orderby,
            descending=desc,
            most=page_size,
            skipped=(page - 1) * page_size,
        )
    if not _is_owner(principal, further.get("owner_ids")):
        found, total = [], 0
    if type == "filter":
        owner = {"id": principal.user_id, "label": principal.user_id, "count": total}
        return success({"filter": {"owner": [owner] if total else []}, "total": total})
    shown = [knowledge_wire.dataset_json(base) for base in found]
    return json_reply({"code": 0, "message": "success", "data": shown, "total_datasets": total})


@router.get("/datasets/{dataset_id}", dependencies=[NEEDS_READ])
def read(context: ApiContextDep, principal: ApiTokenCaller, dataset_id: str) -> Response:
    """Return a base with its settings and counts."""
    with context.database.transaction() as tx:
        return success(knowledge_wire.dataset_json(find_base(tx, principal, dataset_id)))


# -- change, delete ---------------------------------------------------------------------------------------------------
@router.put("/datasets/{dataset_id}", openapi_extra=body_openapi(ChangedDatasetBody))
def change(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject, dataset_id: str) -> Response:
    """Change a base. Its embedding model cannot change while it has chunks."""
    require_id("dataset_id", dataset_id)
    fields = parse_strictly(ChangedDatasetBody, body)
    if not fields.model_fields_set:
        raise RequestRefused(ARGUMENT, "no properties were modified")
    with context.database.transaction() as tx:
        find_base(tx, principal, dataset_id)
    is_model_given = "embedding_model" in fields.model_fields_set
    model = _choose_model(context, principal, fields.embedding_model) if is_model_given else None
    given = fields.model_dump(include={"name", "language"}, exclude_unset=True)
    if "description" in fields.model_fields_set:
        given["description"] = fields.description or ""
    try:
        with context.database.transaction() as tx:
            base = find_base(tx, principal, dataset_id)
            if model is not None and model != base.embedding_model and base.chunks:
                current_model = base.embedding_model or "none"
                raise RequestRefused(
                    DATA, f"When chunk_count ({base.chunks}) > 0, embedding_model must remain {current_model}."
                )
            knowledge_bases.update(
                tx,
                principal.tenant_id,
                base.id,
                **given,
                embedding_model=model,
                parser=dataset_settings.written_parser(fields.parser_config, base.parser),
                settings=dataset_settings.written_settings(fields),
            )
            changed = knowledge_wire.dataset_json(knowledge_bases.get(tx, principal.tenant_id, base.id))
            return success(changed, **dataset_settings.effect_warnings(fields.model_dump(exclude_unset=True)))
    except Conflict as error:
        raise RequestRefused(DATA, error.message) from None


@router.delete("/datasets", openapi_extra=body_openapi(DeletedDatasetsBody))
def delete(context: ApiContextDep, principal: ApiTokenCaller, body: JsonObject) -> Response:
    """Delete bases with their documents: `ids`, or all with `delete_all`. Without either, delete nothing."""
    fields = parse_strictly(DeletedDatasetsBody, body)
    if fields.delete_all and not fields.ids:
        return success({"deleted": _delete_all(context, principal)})
    wanted = {each: require_id("ids", each) for each in fields.ids or []}
    with context.database.transaction() as tx:
        bases = require_bases(tx, principal, wanted)
    for base in bases:
        delete_base(context, base, principal.actor)
    return success({"deleted": len(bases)})


def _delete_all(context: ApiContext, principal: RequestPrincipal) -> int:
    """Delete all bases of the caller, a page at a time; return their number."""
    deleted = 0
    while True:
        with context.database.statements() as tx:
            bases, _ = knowledge_bases.page(tx, principal.tenant_id, most=BATCH)
        if not bases:
            return deleted
        for base in bases:
            with suppress(NotFound):  # another request has deleted it meanwhile
                delete_base(context, base, principal.actor)
                deleted += 1


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


# -- steps ------------------------------------------------------------------------------------------------------------
def _lacks_permission(principal: RequestPrincipal, named: str) -> RequestRefused:
    return not_found(f"User '{principal.user_id}' lacks permission for dataset '{named[:1000]}'")


def _is_owner(principal: RequestPrincipal, owner_ids: list[str] | None) -> bool:
    """Return whether the caller is one of some owners; a tenant has one user here. None: any owner."""
    return not owner_ids or principal.user_id in owner_ids


def _parse_ext(written: str) -> dict[str, Any]:
    """Return the further filters of a list. Raises RequestRefused, and UnsupportedParameter for one that is not known.

    RAGFlow's front end sends filters as a JSON text.
    """
    if not written:
        return {}
    try:
        ext = json.loads(written)
    except (ValueError, RecursionError):
        ext = None
    if not isinstance(ext, dict):
        raise RequestRefused(ARGUMENT, describe_field(["ext"], "Input should be a JSON object", written))
    for name, value in ext.items():
        if name not in ("keywords", "owner_ids"):
            raise UnsupportedParameter(
                f"`ext.{name[:64]}` is not a filter of this list. Use: keywords, owner_ids.", field="ext"
            )
        kind, message = (str, "a valid string") if name == "keywords" else (list, "a valid list")
        if not isinstance(value, kind):
            raise RequestRefused(ARGUMENT, describe_field(["ext", name], f"Input should be {message}", value))
    return ext


def _choose_model(context: ApiContext, principal: RequestPrincipal, written: str | None) -> str:
    """Return the embedding model of a base: the requested one, or the tenant's first; "" if it has none.

    Raises RequestRefused for others.
    """
    accounts = context.models.accounts(principal.tenant_id)
    if written is None:
        return first_model_of(accounts, EMBEDDING) or ""
    try:
        resolve(written, accounts, kind=EMBEDDING)
    except ModelError as error:
        raise _unknown_model(written) from error
    return written


def _unknown_model(written: str) -> RequestRefused:
    model, at, provider = written.partition("@")
    field = ["embedding_model"]
    if not at:
        message = "embedding model identifier must follow <model_name>@<provider> format"
        return RequestRefused(ARGUMENT, describe_field(field, message, written))
    if not model.strip() or not provider.strip():
        message = "both model_name and provider must be non-empty strings"
        return RequestRefused(ARGUMENT, describe_field(field, message, written))
    return RequestRefused(DATA, f"Model {written} not found for model embedding")
