"""Routes for editors of a draft: reset its state, and get the input form of one node."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.agents.agents import get_caller_canvas
from api.findings import parse_document
from api.http.errors import not_found
from api.http.replies import success
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContextDep
from canvas.document import defaults
from canvas.document.document import Entry
from canvas.validation import reference_scan
from components.nodes.flow import form_fields
from store.agents import canvases

router = APIRouter(tags=["agents"])

_FORM_COMPONENTS = frozenset({"begin", "userfillup"})  # components with a form of their own


@router.post("/agents/{agent_id}/reset")
def reset_draft(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str) -> Response:
    """Remove the state of runs from a draft, reset its variables to their declared values, and return it."""
    with context.database.transaction() as tx:
        stored = get_caller_canvas(tx, principal, agent_id, locked=True)
        document = defaults.reset_by_type(parse_document(stored.draft, context.max_canvas_bytes))
        canvases.put_draft(tx, principal.tenant_id, stored.id, document.raw)
    return success(context.canvas_secrets(principal.tenant_id, stored.id).mask_document(document.raw))


@router.get("/agents/{agent_id}/components/{component_id}/input-form")
def input_form(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, component_id: str) -> Response:
    """Get the input form of a node: its own fields, or a text field for every reference that it reads."""
    with context.database.statements() as tx:
        stored = get_caller_canvas(tx, principal, agent_id)
    entry = parse_document(stored.draft, context.max_canvas_bytes).entries.get(component_id)
    if entry is None:
        raise not_found(f"component not found: {component_id[:128]}")
    return success(_form(entry))


def _form(entry: Entry) -> Mapping[str, Any]:
    if entry.component.lower() in _FORM_COMPONENTS:
        return form_fields.fields_of(entry.params.get("inputs"))
    names = [read.ref.expression for read in reference_scan.references_of(entry) if not read.is_target]
    return {name: {"type": "line", "name": name} for name in names}
