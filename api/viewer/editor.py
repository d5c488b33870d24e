"""Routes for the editor of an agent: title, draft, publishing, restoring, running a node, export.

A draft may be half-drawn. It is stored as it is written, and what is wrong with it comes back as findings; a start and
a publication refuse it with the same findings. A save stores no version: publishing does, and so does a start of a
draft that has changed. Secrets are masked, and a mask that comes back keeps the secret that it stands for.

Changes name the draft that their author has seen (`If-Match`), so two editors never overwrite each other.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field, JsonValue

from api.agents.agents import find_missing, with_etag
from api.findings import draft_findings, findings_json
from api.http.errors import ARGUMENT, HasErrors, RequestRefused
from api.http.replies import json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import Body, Text
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.idempotency import OnceByViewer
from api.requests.preconditions import IfMatch, check_if_match, etag_of, require_if_match
from api.requests.request_bodies import CanvasBody, PatchBody, SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ, NEEDS_RUN
from api.runs.node_runs import plan_node
from api.runs.reply_models import StartedReply
from api.runs.turn import begin, id_headers
from api.viewer.reply_models import AgentTitleReply, DraftReply, SavedDraftReply, VersionRow
from api.viewer.versions import RECENT, get_canvas, version_json
from canvas.document import draft_edits
from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.ids import VersionId
from canvas.validation.findings import Finding, errors_of
from scheduler.lifecycle.accept import Started
from scheduler.views.json_values import hex_of, iso
from store.agents import canvas_secrets, canvases, version_list, versions
from store.agents.canvases import StoredCanvas
from store.db.transaction import Transaction
from store.monitoring import server_info
from store.primitives.encryption import CannotUnseal
from store.primitives.json_codec import encode
from store.tenants.audit import Action

router = APIRouter(prefix="/viewer/agents/{agent_id}", tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_EDIT])

MAX_TITLE_LENGTH = 255

PATCH_OPENAPI: Mapping[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json-patch+json": {"schema": {"type": "array", "items": {"type": "object"}}},
            "application/json": {"schema": {"type": "array", "items": {"type": "object"}}},
        },
    }
}
DOCUMENT_OPENAPI: Mapping[str, Any] = {
    "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
}


class TitleBody(Body):
    """The title and description of the agent; what is absent or null stays."""

    title: Annotated[str, Field(max_length=MAX_TITLE_LENGTH)] | None = None
    description: Text | None = None


class PublicationBody(Body):
    """The title and description of the version; both may be absent."""

    title: Annotated[str, Field(max_length=MAX_TITLE_LENGTH)] | None = None
    description: Text | None = None


class RestoreBody(Body):
    """The version that becomes the draft."""

    version_id: str


class NodeRunBody(Body):
    """The values of a node's inputs, by the names of its input form."""

    values: dict[str, Any] = Field(default_factory=dict[str, Any], max_length=1000)


@router.patch("", response_model=AgentTitleReply, openapi_extra=body_openapi(TitleBody))
def change_title(context: ApiContextDep, principal: Viewer, agent_id: str, body: SmallBody) -> Response:
    """Change title and description of the agent, those that are given. Its draft and its versions stay as they are."""
    fields = parse_body(TitleBody, body)
    if fields.title is None and fields.description is None:
        raise InvalidRequest("The body has neither `title` nor `description`. Send what is to change.")
    if fields.title is not None and not fields.title.strip():
        raise InvalidRequest("`title` is empty. Give the agent a name.", field="title")
    with context.database.transaction() as tx:
        canvas = get_canvas(tx, principal, agent_id, locked=True)
        canvases.describe(tx, principal.tenant_id, canvas.id, title=fields.title, description=fields.description)
        details = {"fields": sorted(fields.model_fields_set)}
        principal.record(tx, Action.AGENT_CHANGED, canvas.id, **details)
        changed = canvases.get(tx, principal.tenant_id, canvas.id)
    reply = {
        "id": changed.id.hex,
        "title": changed.title,
        "description": changed.description,
        "updated_at": iso(changed.updated_at),
    }
    return json_reply(reply)


@router.get("/draft", response_model=DraftReply, dependencies=[NEEDS_READ])
def get_draft(context: ApiContextDep, principal: Viewer, agent_id: str) -> Response:
    """Get the draft as it is stored, with masks in place of secrets, its `etag`, and what validation finds in it."""
    with context.database.transaction() as tx:
        canvas = get_canvas(tx, principal, agent_id)
        findings = find_in_draft(tx, context, principal, canvas.draft)
        try:
            released = versions.lock_latest_released(tx, principal.tenant_id, canvas.id)
        except NotFound:
            released = None
    published = {"version_id": released.id.hex, "digest": released.digest.hex()} if released is not None else None
    reply = {
        "document": context.canvas_secrets(principal.tenant_id, canvas.id).mask_document(canvas.draft),
        "etag": etag_of(canvas.draft_revision),
        "updated_at": iso(canvas.updated_at),
        "updated_by": hex_of(canvas.draft_token_id),
        "digest": versions.digest_of(canvas.draft).hex(),
        "findings": findings_json(findings),
        "published": published,
    }
    return with_etag(json_reply(reply), canvas.draft_revision)


@router.patch("/draft", response_model=SavedDraftReply, openapi_extra=dict(PATCH_OPENAPI))
def patch_draft(
    context: ApiContextDep, principal: Viewer, agent_id: str, body: PatchBody, if_match: IfMatch = None
) -> Response:
    """Change the draft by a JSON Patch (RFC 6902) on the document that `GET` shows.

    Entries of `components` follow from the drawing where a form or an edge has changed, and `env.*` of `globals` from
    `variables`.
    """

    def change(shown: Mapping[str, Any]) -> Mapping[str, Any]:
        patched = draft_edits.apply_patch(shown, body, context.max_canvas_bytes)
        return draft_edits.follow_variables(shown, draft_edits.follow_drawing(shown, patched))

    return _save(context, principal, agent_id, if_match, change)


@router.put("/draft", response_model=SavedDraftReply, openapi_extra=dict(DOCUMENT_OPENAPI))
def put_draft(
    context: ApiContextDep, principal: Viewer, agent_id: str, body: CanvasBody, if_match: IfMatch = None
) -> Response:
    """Replace the draft by a document, bare or under `dsl`. Variables without an `env.*` in its `globals` get one."""
    if not body:
        raise InvalidRequest("The request body has no document. Send one as a JSON object.")
    document = draft_edits.complete_variables(draft_edits.unwrap(body))
    return _save(context, principal, agent_id, if_match, lambda _: document)


@router.post("/publish", response_model=VersionRow, openapi_extra=body_openapi(PublicationBody))
def publish_draft(
    context: ApiContextDep,
    principal: Viewer,
    agent_id: str,
    body: SmallBody,
    once: OnceByViewer,
    if_match: IfMatch = None,
) -> Response:
    """Publish the draft; return the version. 409 `has_errors` with the findings of a draft that cannot run."""
    fields = parse_body(PublicationBody, body)
    once.check_repeat(context.database)
    with once.transaction(context.database) as tx:
        canvas = _lock(tx, principal, agent_id, if_match)
        found = find_in_draft(tx, context, principal, canvas.draft)
        if errors := errors_of(found):
            raise HasErrors(f"The draft cannot run. {errors[0].message}", findings=findings_json(found))
        version = canvases.publish(
            tx, principal.tenant_id, canvas.id, title=fields.title, description=fields.description
        )
        principal.record(tx, Action.AGENT_PUBLISHED, canvas.id, version_id=version.id.hex)
        since = server_info.read_clock(tx) - RECENT
        listed = version_list.find(tx, principal.tenant_id, canvas.id, version.id, since=since)
        assert listed is not None  # since it was stored in this transaction
        return with_etag(once.store_reply(tx, json_reply(version_json(listed))), canvas.draft_revision)


@router.post("/restore", response_model=SavedDraftReply, openapi_extra=body_openapi(RestoreBody))
def restore_version(
    context: ApiContextDep,
    principal: Viewer,
    agent_id: str,
    body: SmallBody,
    once: OnceByViewer,
    if_match: IfMatch = None,
) -> Response:
    """Make a version the draft."""
    once.check_repeat(context.database)
    with once.transaction(context.database) as tx:
        canvas = _lock(tx, principal, agent_id, if_match)
        version_id = parse_id(parse_body(RestoreBody, body).version_id)
        if version_id is None:
            raise NotFound("The agent has no such version.")
        version = versions.lock_by_id(tx, principal.tenant_id, canvas.id, VersionId(version_id))
        principal.record(tx, Action.AGENT_RESTORED, canvas.id, version_id=version.id.hex)
        return once.store_reply(tx, _store(tx, context, principal, canvas, version.dsl))


@router.post(
    "/nodes/{node_id}/run",
    status_code=202,
    response_model=StartedReply,
    openapi_extra=body_openapi(NodeRunBody),
    dependencies=[NEEDS_RUN],
)
async def run_node(
    context: ApiContextDep, principal: Viewer, agent_id: str, node_id: str, body: SmallBody, once: OnceByViewer
) -> Response:
    """Start a run of one node of the draft alone, with given values. The node acts for real."""
    values = parse_body(NodeRunBody, body).values

    def plan() -> Any:
        with context.database.transaction() as tx:
            get_canvas(tx, principal, agent_id)
        return plan_node(context, principal, agent_id, node_id, values, once)

    planned = await run_in_thread(plan)
    is_form = not isinstance(planned.turn, Started) and planned.inputs.answers and node_id != "begin"
    if is_form:
        raise InvalidRequest(f"{node_id[:128]} asks a person, so it does not run alone here. Run the agent.")
    talk = await begin(context, principal.tenant_id, planned.turn, token_id=principal.token_id)
    await talk.close()
    ids = {
        "run_id": talk.started.run_id.hex,
        "session_id": talk.started.conversation_id.hex,
        "message_id": talk.started.message_id.hex,
    }
    return json_reply(ids, 202, {"Location": f"/api/v1/runs/{ids['run_id']}", **id_headers(talk)})


@router.get("/export", response_model=JsonValue)
def export_draft(context: ApiContextDep, principal: Viewer, agent_id: str, version: str = "draft") -> Response:
    """Get the document of the draft, or of a version, as it is stored, secrets included, as a file."""
    with context.database.transaction() as tx:
        canvas = get_canvas(tx, principal, agent_id)
        document: Mapping[str, Any] = canvas.draft
        if version != "draft":
            version_id = parse_id(version)
            if version_id is None:
                raise NotFound(f"The agent has no version {version[:64]}. Use `draft` or the id of a version.")
            document = versions.lock_by_id(tx, principal.tenant_id, canvas.id, VersionId(version_id)).dsl
    try:
        opened = context.canvas_secrets(principal.tenant_id, canvas.id).open_document(document)
    except CannotUnseal as error:
        raise Conflict(error.message) from None
    headers = {"Content-Disposition": f'attachment; filename="{canvas.id.hex}.json"', "Cache-Control": "no-store"}
    return json_reply(opened, headers=headers)


def find_in_draft(
    tx: Transaction, context: ApiContext, principal: RequestPrincipal, draft: Mapping[str, Any]
) -> list[Finding]:
    """Return what is wrong with a draft, including models and sources that the tenant does not have."""
    document, findings = draft_findings(draft, context.max_canvas_bytes)
    return findings if document is None else [*findings, *find_missing(tx, context, principal, document)]


def _lock(tx: Transaction, principal: RequestPrincipal, agent_id: str, if_match: str | None) -> StoredCanvas:
    """Return the agent, locked, if its draft is the one that the header names."""
    canvas = get_canvas(tx, principal, agent_id, locked=True)
    check_if_match(require_if_match(if_match), canvas)
    return canvas


def _save(
    context: ApiContext,
    principal: RequestPrincipal,
    agent_id: str,
    if_match: str | None,
    change: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> Response:
    """Store the changed draft. `change` gets the draft with masks in place of secrets."""
    with context.database.transaction() as tx:
        canvas = _lock(tx, principal, agent_id, if_match)
        secrets = context.canvas_secrets(principal.tenant_id, canvas.id)
        changed = change(secrets.mask_document(canvas.draft))
        principal.record_save(tx, canvas.id)
        return _store(tx, context, principal, canvas, canvas_secrets.seal_saved(tx, secrets, changed, canvas.draft))


def _store(
    tx: Transaction, context: ApiContext, principal: RequestPrincipal, canvas: StoredCanvas, draft: Mapping[str, Any]
) -> Response:
    limit = context.max_canvas_bytes
    if (size := len(encode(draft).encode())) > limit:
        message = f"The document has {size} bytes, and EASEL_MAX_CANVAS_BYTES allows {limit}."
        raise RequestRefused(ARGUMENT, message, status=413)
    revision = canvases.put_draft(tx, principal.tenant_id, canvas.id, draft, token_id=principal.token_id)
    reply = {
        "etag": etag_of(revision),
        "digest": versions.digest_of(draft).hex(),
        "findings": findings_json(find_in_draft(tx, context, principal, draft)),
    }
    return with_etag(json_reply(reply), revision)
