"""Routes for editors of a draft: reset its state, and get the input form of one node."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.agents.agents import get_caller_canvas
from api.findings import parse_document
from api.http.errors import not_found
from api.http.replies import success
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.document import defaults
from components import node_inputs
from store.agents import canvases

router = APIRouter(tags=["agents"], dependencies=[NEEDS_READ])


@router.post("/agents/{agent_id}/reset", dependencies=[NEEDS_EDIT])
def reset_draft(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str) -> Response:
    """Remove the state of runs from a draft, reset its variables to their declared values, and return it."""
    with context.database.transaction() as tx:
        stored = get_caller_canvas(tx, principal, agent_id, locked=True)
        document = defaults.reset_by_type(parse_document(stored.draft, context.max_canvas_bytes))
        canvases.put_draft(tx, principal.tenant_id, stored.id, document.raw, token_id=principal.token_id)
        principal.record_save(tx, stored.id)
    return success(context.canvas_secrets(principal.tenant_id, stored.id).mask_document(document.raw))


@router.get("/agents/{agent_id}/components/{component_id}/input-form")
def input_form(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, component_id: str) -> Response:
    """Get the input form of a node: its own fields, and a text field for every other reference that it reads."""
    with context.database.statements() as tx:
        stored = get_caller_canvas(tx, principal, agent_id)
    document = parse_document(stored.draft, context.max_canvas_bytes)
    if component_id not in document.entries:
        raise not_found(f"component not found: {component_id[:128]}")
    return success(node_inputs.input_form(document, component_id))
