"""Routes of canvases: list, create, get, update, delete; versions and publishing."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.agents.cancel import cancel_open_runs
from api.findings import findings_json, missing_models, missing_sources, parse_document, refuse_errors
from api.http.errors import ARGUMENT, DATA, FORBIDDEN, RequestRefused, no_access, not_found
from api.http.paging import ListPageDep, is_true, parse_list, parse_order
from api.http.replies import date, id_or_unused, parse_canvas_id, parse_id, success
from api.http.schemas import CanvasFields, PublishBody
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import OnceByCanvas
from api.requests.preconditions import IfMatch, check_if_match, etag_of
from api.requests.request_bodies import CanvasBody, body_openapi, ignored_field_warnings, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ, OF_ONE_AGENT
from canvas.document import component_names
from canvas.document.document import Document
from canvas.errors import Conflict, NotFound
from canvas.ids import CanvasId, VersionId
from canvas.validation.findings import Finding
from components.checks.check import findings_of, refusals_of
from scheduler.views.json_values import milliseconds
from store.agents import canvas_list, canvas_secrets, canvases, versions
from store.agents.canvases import StoredCanvas
from store.agents.versions import Version
from store.db.transaction import Transaction
from store.primitives.ids import new_id
from store.tenants.audit import Action

router = APIRouter(tags=["agents"], dependencies=[NEEDS_READ])

NOT_OWNER = "Only the owner of the agent is authorized for this operation."
DOES_NOT_EXIST = "canvas not found."
_LOGGED = ("title", "description", "avatar", "canvas_type", "canvas_category", "permission")


@router.get("/agents", dependencies=[OF_ONE_AGENT])
def list_agents(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    page: ListPageDep,
    id: str = "",  # noqa: A002 - the name on the wire
    title: str = "",
    keywords: str = "",
    canvas_category: str = "",
    canvas_type: str = "",
    tags: str = "",
    owner_ids: str = "",
    orderby: str = "",
    desc: str = "true",
    type: str = "",  # noqa: A002 - the name on the wire
) -> Response:
    """List one page of the caller's agents. With `type=filter`, count them by owner and category instead.

    The latest changed come first; with a filter by category, type or tags, the latest created.
    """
    if type not in ("", "filter"):
        raise RequestRefused(ARGUMENT, f'Unknown type {type!r}. Use "filter", or leave it out.')
    owners = parse_list(owner_ids)
    if any(parse_id(owner) != principal.tenant_id for owner in owners):
        raise RequestRefused(FORBIDDEN, "Only authorized owner_ids can be queried.", data=False)
    default_order = "create_time" if canvas_category or canvas_type or tags else "update_time"
    with context.database.transaction() as tx:
        if type == "filter":
            return success(_count_for_filter(tx, principal))
        found, total = canvas_list.page(
            tx,
            principal.tenant_id,
            canvas_list.CanvasFilter(
                keywords=keywords,
                title=title,
                ids=_ids(principal, parse_list(id)),
                categories=parse_list(canvas_category),
                types=parse_list(canvas_type),
                tags=parse_list(tags),
            ),
            order_by=parse_order(orderby or default_order, canvas_list.ORDERS),
            descending=is_true(desc),
            limit=page.size,
            offset=page.offset,
        )
    return success({"canvas": [_list_item(canvas) for canvas in found], "total": total})


@router.post("/agents", openapi_extra=body_openapi(CanvasFields), dependencies=[NEEDS_EDIT])
def create_agent(context: ApiContextDep, principal: ApiTokenCaller, body: CanvasBody, once: OnceByCanvas) -> Response:
    """Store a canvas and its first version. `warnings` lists what its author still has to fill in."""
    fields = parse_body(CanvasFields, body)
    if not fields.dsl:
        raise RequestRefused(ARGUMENT, "No DSL data in request.")
    document = parse_document(fields.dsl, context.max_canvas_bytes)
    title = (fields.title or "").strip()
    if not title:
        raise RequestRefused(ARGUMENT, "No title in request.")
    findings = findings_of(document)
    refuse_errors(findings if fields.release else refusals_of(document, findings))
    canvas_id = CanvasId(new_id())
    sealed = context.canvas_secrets(principal.tenant_id, canvas_id).seal_document(document.raw)
    with once.transaction(context.database) as tx:
        try:
            canvases.create(
                tx,
                principal.tenant_id,
                title,
                sealed,
                description=fields.description,
                avatar=fields.avatar,
                canvas_type=fields.canvas_type or "",
                canvas_category=fields.canvas_category or "agent_canvas",
                permission=fields.permission or "me",
                release=fields.release,
                canvas_id=canvas_id,
                token_id=principal.token_id,
            )
        except Conflict as conflict:
            raise RequestRefused(DATA, conflict.message) from None
        principal.record(tx, Action.AGENT_CREATED, canvas_id, title=title)
        if fields.release:
            principal.record(tx, Action.AGENT_PUBLISHED, canvas_id)
        stored = canvases.get(tx, principal.tenant_id, canvas_id)
        findings += find_missing(tx, context, principal, document)
        reply = {**_row(context, stored), "warnings": findings_json(findings)}
        return once.store_reply(tx, success(reply, **ignored_field_warnings(CanvasFields, body)))


@router.get("/agents/{agent_id}")
def get_agent(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str) -> Response:
    """Get an agent with its draft, and its ETag. Secrets are masked; an update with a mask keeps the stored secret."""
    canvas_id = parse_canvas_id(agent_id)
    if canvas_id is None:
        raise not_found(DOES_NOT_EXIST)
    with context.database.transaction() as tx:
        stored = canvases.get(tx, principal.tenant_id, canvas_id)
    return with_etag(success(_row(context, stored)), stored.draft_revision)


@router.put("/agents/{agent_id}", openapi_extra=body_openapi(CanvasFields), dependencies=[NEEDS_EDIT])
@router.patch(
    "/agents/{agent_id}",
    operation_id="patch_agent",
    openapi_extra=body_openapi(CanvasFields),
    dependencies=[NEEDS_EDIT],
)
def update_agent(
    context: ApiContextDep,
    principal: ApiTokenCaller,
    agent_id: str,
    body: CanvasBody,
    once: OnceByCanvas,
    if_match: IfMatch = None,
) -> Response:
    """Change the fields in the body. A document becomes a version; `release` publishes it. `warnings` are about it.

    With `If-Match` only if the draft is the one that it names.
    """
    once.check_repeat(context.database)
    fields = parse_body(CanvasFields, body)
    if fields.title is not None and not fields.title.strip():
        raise RequestRefused(ARGUMENT, "No title in request.")
    stored, document, warnings = _check_document(context, principal, agent_id, fields.dsl, is_release=fields.release)
    with once.transaction(context.database) as tx:
        if if_match is not None:
            stored = get_caller_canvas(tx, principal, agent_id, locked=True)
            check_if_match(if_match, stored)
        try:
            canvases.update(
                tx,
                principal.tenant_id,
                stored.id,
                title=fields.title,
                dsl=_encrypt_secrets(tx, context, stored, document),
                description=fields.description,
                avatar=fields.avatar,
                canvas_type=fields.canvas_type,
                canvas_category=fields.canvas_category,
                permission=fields.permission,
                release=fields.release,
                token_id=principal.token_id,
            )
        except Conflict as conflict:
            raise RequestRefused(DATA, conflict.message) from None
        _record_change(tx, principal, stored, fields)
        if fields.release:
            principal.record(tx, Action.AGENT_PUBLISHED, stored.id)
        changed = canvases.get(tx, principal.tenant_id, stored.id)
        reply = {"update_time": milliseconds(changed.updated_at), "warnings": findings_json(warnings)}
        answer = once.store_reply(tx, success(reply, **ignored_field_warnings(CanvasFields, body)))
        return with_etag(answer, changed.draft_revision)


@router.delete("/agents/{agent_id}", dependencies=[NEEDS_EDIT])
def delete_agent(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str) -> Response:
    """Delete an agent with its versions and sessions. Its open runs are cancelled; finished runs stay."""
    with context.database.transaction() as tx:
        try:
            canvas = get_caller_canvas(tx, principal, agent_id)
        except RequestRefused:
            raise RequestRefused(FORBIDDEN, NOT_OWNER, data=False, is_absent=True) from None
    cancel_open_runs(context, principal, canvas.id)
    with context.database.transaction() as tx:
        canvases.delete(tx, principal.tenant_id, canvas.id)
        principal.record(tx, Action.AGENT_DELETED, canvas.id, title=canvas.title)
    cancel_open_runs(context, principal, canvas.id)  # runs that were accepted meanwhile
    return success(True)


# -- versions ---------------------------------------------------------------------------------------------------------


@router.get("/agents/{agent_id}/versions")
def list_versions(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str) -> Response:
    """List an agent's versions without their documents, the latest change first."""
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
        found = versions.list_versions(tx, principal.tenant_id, canvas.id)
    return success([version_row(version) for version in found])


@router.get("/agents/{agent_id}/versions/{version_id}")
def get_version(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, version_id: str) -> Response:
    """Get one version with its document. Secrets are masked."""
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
        version = versions.lock_by_id(tx, principal.tenant_id, canvas.id, _parse_version_id(version_id))
    shown_dsl = context.canvas_secrets(principal.tenant_id, canvas.id).mask_document(version.dsl)
    return success({**version_row(version), "dsl": shown_dsl})


@router.delete("/agents/{agent_id}/versions/{version_id}", dependencies=[NEEDS_EDIT])
def delete_version(
    context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, version_id: str, force: bool = False
) -> Response:
    """Delete an unused version. With `force`, also one that finished runs and sessions refer to.

    These can still read it.
    """
    with context.database.transaction() as tx:
        canvas = get_caller_canvas(tx, principal, agent_id)
        parsed = _parse_version_id(version_id)
        versions.delete(tx, principal.tenant_id, canvas.id, parsed, force=force)
        principal.record(tx, Action.VERSION_DELETED, parsed, agent_id=canvas.id.hex)
    return success(True)


@router.post("/agents/{agent_id}/publish", openapi_extra=body_openapi(PublishBody), dependencies=[NEEDS_EDIT])
@router.post(
    "/agents/{agent_id}/versions",
    operation_id="create_version",
    openapi_extra=body_openapi(PublishBody),
    dependencies=[NEEDS_EDIT],
)
def publish(
    context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, body: CanvasBody, once: OnceByCanvas
) -> Response:
    """Publish the draft, or a document that becomes the draft. Returns the version, and `warnings` about it."""
    once.check_repeat(context.database)
    fields = parse_body(PublishBody, body)
    stored, document, warnings = _check_document(context, principal, agent_id, fields.dsl, is_release=True)
    with once.transaction(context.database) as tx:
        version = canvases.publish(
            tx,
            principal.tenant_id,
            stored.id,
            dsl=_encrypt_secrets(tx, context, stored, document),
            title=fields.title,
            description=fields.description,
            token_id=principal.token_id,
        )
        principal.record(tx, Action.AGENT_PUBLISHED, stored.id, version_id=version.id.hex)
        return once.store_reply(tx, success({**version_row(version), "warnings": findings_json(warnings)}))


def with_etag(reply: Response, revision: int) -> Response:
    """Return a reply with the ETag of a draft."""
    reply.headers["ETag"] = etag_of(revision)
    return reply


def get_caller_canvas(
    tx: Transaction, principal: RequestPrincipal, agent_id: str, *, locked: bool = False
) -> StoredCanvas:
    """Return the caller's canvas; `locked` if its draft is read here in order to be changed.

    Raises RequestRefused, with the same reply for a missing canvas and for one of another tenant.
    """
    canvas_id = parse_canvas_id(agent_id)
    if canvas_id is None:
        raise no_access()
    read = canvases.lock if locked else canvases.get
    try:
        return read(tx, principal.tenant_id, canvas_id)
    except NotFound:
        raise no_access() from None


def _check_document(
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str,
    dsl: str | Mapping[str, Any] | None,
    *,
    is_release: bool,
) -> tuple[StoredCanvas, Document | None, list[Finding]]:
    """Return the caller's canvas, the document of the body if there is one, and warnings about it.

    Checks that the document, or the draft that is to be released, can run. Raises InvalidCanvas if it cannot.
    """
    with context.database.transaction() as tx:
        stored = get_caller_canvas(tx, principal, agent_id)
    if dsl is None and not is_release:
        return stored, None, []
    document = parse_document(dsl if dsl is not None else stored.draft, context.max_canvas_bytes)
    findings = findings_of(document)
    refuse_errors(findings)
    with context.database.transaction() as tx:
        findings += find_missing(tx, context, principal, document)
    return stored, document if dsl is not None else None, findings


def _record_change(tx: Transaction, principal: RequestPrincipal, stored: StoredCanvas, fields: CanvasFields) -> None:
    """Add to the audit log that the document was saved, and which other fields were changed, without their values."""
    if fields.dsl is not None:
        principal.record_save(tx, stored.id)
    names = [name for name in _LOGGED if getattr(fields, name) not in (None, getattr(stored, name))]
    if names:
        principal.record(tx, Action.AGENT_CHANGED, stored.id, fields=names)


def _encrypt_secrets(
    tx: Transaction, context: ApiContext, stored: StoredCanvas, document: Document | None
) -> dict[str, Any] | None:
    """Return the document with encrypted secrets. Raises InvalidCanvas for a mask without a stored secret."""
    if document is None:
        return None
    secrets = context.canvas_secrets(stored.tenant_id, stored.id)
    return canvas_secrets.seal_saved(tx, secrets, document.raw, stored.draft)


def find_missing(
    tx: Transaction, context: ApiContext, principal: RequestPrincipal, document: Document
) -> list[Finding]:
    """Return a warning for everything that a document names and that its tenant does not have."""
    models = missing_models(tx, principal.tenant_id, document, context.shared_accounts)
    return models + missing_sources(tx, principal.tenant_id, document, elsewhere=context.has_search_server)


def _parse_version_id(text: str) -> VersionId:
    version_id = parse_id(text)
    if version_id is None:
        raise not_found("Version not found.")
    return VersionId(version_id)


# -- shapes -----------------------------------------------------------------------------------------------------------


def _ids(principal: RequestPrincipal, written: list[str]) -> list[CanvasId]:
    """Return the ids of a filter; with a token of one agent, its agent or an id that no agent has."""
    ids = [CanvasId(id_or_unused(entry)) for entry in written]
    if principal.agent is None:
        return ids
    return [principal.agent if not ids or principal.agent in ids else CanvasId(id_or_unused(""))]


def _count_for_filter(tx: Transaction, principal: RequestPrincipal) -> dict[str, Any]:
    if principal.agent is None:
        counts = canvas_list.count_by_category(tx, principal.tenant_id)
    else:
        counts = {canvases.get(tx, principal.tenant_id, principal.agent).canvas_category: 1}
    total = sum(counts.values())
    owner = {"id": principal.user_id, "label": principal.user_id, "count": total}
    return {
        "filter": {
            "owner": [owner] if total else [],
            "canvas_category": [{"id": category, "count": count} for category, count in counts.items()],
        },
        "total": total,
    }


def _list_item(canvas: StoredCanvas) -> dict[str, Any]:
    return {
        "id": canvas.id.hex,
        "avatar": canvas.avatar,
        "title": canvas.title,
        "description": canvas.description,
        "permission": canvas.permission,
        "tenant_id": canvas.tenant_id.hex,
        "nickname": canvas.owner,
        "tenant_avatar": None,
        "update_time": milliseconds(canvas.updated_at),
        "create_time": milliseconds(canvas.created_at),
        "canvas_type": canvas.canvas_type,
        "canvas_category": canvas.canvas_category,
        "tags": canvas.tags,
        "release_time": milliseconds(canvas.published_at),
        "type": "agent",
    }


def _row(context: ApiContext, canvas: StoredCanvas) -> dict[str, Any]:
    return {
        "id": canvas.id.hex,
        "avatar": canvas.avatar,
        "title": canvas.title,
        "dsl": context.canvas_secrets(canvas.tenant_id, canvas.id).mask_document(
            component_names.rename_components(canvas.draft)
        ),
        "description": canvas.description,
        "permission": canvas.permission,
        "user_id": canvas.tenant_id.hex,
        "nickname": canvas.owner,
        "tenant_avatar": None,
        "canvas_type": canvas.canvas_type,
        "canvas_category": canvas.canvas_category,
        "tags": canvas.tags,
        "release": canvas.release,
        "last_publish_time": milliseconds(canvas.published_at),
        "create_time": milliseconds(canvas.created_at),
        "create_date": date(canvas.created_at),
        "update_time": milliseconds(canvas.updated_at),
        "update_date": date(canvas.updated_at),
    }


def version_row(version: Version) -> dict[str, Any]:
    """Return a version without its document, as replies show it."""
    return {
        "id": version.id.hex,
        "user_canvas_id": version.canvas_id.hex,
        "title": version.title,
        "description": version.description,
        "release": version.released,
        "create_time": milliseconds(version.created_at),
        "create_date": date(version.created_at),
        "update_time": milliseconds(version.updated_at),
        "update_date": date(version.updated_at),
    }
