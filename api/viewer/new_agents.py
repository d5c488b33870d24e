"""The route with which the editor makes an agent: blank, from a template, from another agent, or from a document."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import Response

from api.agents.agents import with_etag
from api.agents.templates import read_templates, with_model
from api.findings import findings_json
from api.http.errors import ARGUMENT, RequestRefused
from api.http.replies import json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import RequestPrincipal, Viewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.idempotency import OnceByViewerCanvas
from api.requests.preconditions import etag_of
from api.requests.request_bodies import CanvasBody
from api.requests.scopes import NEEDS_EDIT
from api.viewer.editor import MAX_TITLE_LENGTH, find_in_draft
from api.viewer.reply_models import NewAgentReply
from api.viewer.versions import get_canvas
from canvas.document import draft_edits
from canvas.document.document import BEGIN
from canvas.errors import Conflict, InvalidRequest, NotFound
from canvas.ids import CanvasId
from components.forms.catalogue import defaults_of, form_of
from store.agents import canvases
from store.db.transaction import Transaction
from store.primitives.encryption import CannotUnseal
from store.primitives.ids import new_id
from store.tenants.audit import Action

router = APIRouter(tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_EDIT])

UNTITLED = "Untitled agent"
MAX_SAME_TITLES = 100

DOCUMENT_OPENAPI: Mapping[str, Any] = {
    "requestBody": {"required": False, "content": {"application/json": {"schema": {"type": "object"}}}}
}


@router.post(
    "/viewer/agents",
    operation_id="create_viewer_agent",
    status_code=201,
    response_model=NewAgentReply,
    openapi_extra=dict(DOCUMENT_OPENAPI),
)
def create_agent(
    context: ApiContextDep,
    principal: Viewer,
    body: CanvasBody,
    once: OnceByViewerCanvas,
    title: Annotated[str, Query(max_length=MAX_TITLE_LENGTH)] = "",
    template: str = "",
    copy_of: str = "",
    model: Annotated[str, Query(max_length=MAX_TITLE_LENGTH)] = "",
) -> Response:
    """Make an agent from a template, as a copy of another agent, from the document in the body, or blank.

    `model` replaces the built-in model in the nodes of a template. A title that exists gets a number. What is wrong
    with the document comes back as findings.
    """
    if sum(map(bool, (template, copy_of, body))) > 1:
        raise InvalidRequest(
            "`template`, `copy_of` and a document in the body exclude each other. Send one of them.",
            field="template" if template else "copy_of",
        )
    if model and not template:
        raise InvalidRequest("`model` is for a new agent from a `template`. Name one, or leave it out.", field="model")
    once.check_repeat(context.database)
    canvas_id = CanvasId(new_id())
    with once.transaction(context.database) as tx:
        document, default_title, fields = _choose_document(
            tx, context, principal, template=template, model=model, copy_of=copy_of, body=body
        )
        sealed = context.canvas_secrets(principal.tenant_id, canvas_id).seal_document(document)
        wanted = title.strip() or default_title.strip() or UNTITLED
        _create_with_free_title(tx, principal, canvas_id, wanted, sealed, fields)
        stored = canvases.get(tx, principal.tenant_id, canvas_id)
        reply = {
            "id": stored.id.hex,
            "title": stored.title,
            "etag": etag_of(stored.draft_revision),
            "findings": findings_json(find_in_draft(tx, context, principal, stored.draft)),
        }
        answer = once.store_reply(tx, json_reply(reply, 201, {"Location": f"/api/v1/viewer/agents/{stored.id.hex}"}))
        return with_etag(answer, stored.draft_revision)


def _choose_document(
    tx: Transaction,
    context: ApiContext,
    principal: RequestPrincipal,
    *,
    template: str,
    model: str,
    copy_of: str,
    body: Mapping[str, Any],
) -> tuple[Mapping[str, Any], str, Mapping[str, Any]]:
    """Return the document of the new agent, its title if the request has none, and further fields of it."""
    if template:
        found = read_templates().get(template)
        if found is None:
            raise NotFound(
                f"The template {template[:64]!r} does not exist. GET /api/v1/agents/templates lists those that do."
            )
        fields = {"description": found["description"]["en"], "canvas_type": found["canvas_type"]}
        document = with_model(found["dsl"], model) if model else found["dsl"]
        return document, found["title"]["en"], fields
    if copy_of:
        source = get_canvas(tx, principal, copy_of)
        try:
            document = context.canvas_secrets(principal.tenant_id, source.id).open_document(source.draft)
        except CannotUnseal as error:
            raise Conflict(error.message) from None
        fields = {
            "description": source.description,
            "avatar": source.avatar,
            "canvas_type": source.canvas_type,
            "canvas_category": source.canvas_category,
        }
        return document, source.title, fields
    if body:
        written = body.get("title")
        return draft_edits.unwrap(body), written[:MAX_TITLE_LENGTH] if isinstance(written, str) else "", {}
    return _blank_document(), "", {}


def _blank_document() -> dict[str, Any]:
    """Return a document with Begin alone."""
    form = form_of("Begin")
    assert form is not None  # since it is a component
    params = defaults_of(form)
    node = {
        "id": BEGIN,
        "type": "beginNode",
        "position": {"x": 50, "y": 200},
        "sourcePosition": "right",
        "targetPosition": "left",
        "data": {"label": "Begin", "name": "Begin", "form": params},
    }
    entry = {"obj": {"component_name": "Begin", "params": params}, "downstream": [], "upstream": []}
    return {
        "components": {BEGIN: entry},
        "graph": {"nodes": [node], "edges": []},
        "globals": {},
        "variables": {},
        "history": [],
        "path": [],
        "retrieval": [],
        "memory": [],
    }


def _create_with_free_title(
    tx: Transaction,
    principal: RequestPrincipal,
    canvas_id: CanvasId,
    title: str,
    document: Mapping[str, Any],
    fields: Mapping[str, Any],
) -> None:
    """Store the agent, with a number in its title if the tenant has one with that title."""
    for number in range(1, MAX_SAME_TITLES + 1):
        suffix = f" ({number})" if number > 1 else ""
        try:
            canvases.create(
                tx,
                principal.tenant_id,
                title[: MAX_TITLE_LENGTH - len(suffix)] + suffix,
                document,
                canvas_id=canvas_id,
                token_id=principal.token_id,
                **fields,
            )
        except Conflict:
            continue
        principal.record(tx, Action.AGENT_CREATED, canvas_id, title=title)
        return
    raise RequestRefused(ARGUMENT, f"There are {MAX_SAME_TITLES} agents with the title {title!r}. Use another one.")
