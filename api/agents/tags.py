"""Routes of the tags of agents."""

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.errors import FORBIDDEN, RequestRefused
from api.http.replies import id_or_unused, success
from api.http.schemas import TagsBody
from api.requests.auth import ApiTokenCaller, Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.errors import NotFound
from canvas.ids import CanvasId
from store.agents import canvas_list
from store.tenants.audit import Action

router = APIRouter(tags=["agents"], dependencies=[NEEDS_READ])


@router.get("/agents/tags")
def list_tags(context: ApiContextDep, principal: Viewer, canvas_category: str = "") -> Response:
    """List the tags of the caller's agents with their counts, the most frequent first; optionally of one category."""
    with context.database.transaction() as tx:
        found = canvas_list.tags_in_use(tx, principal.tenant_id, canvas_category)
    return success([{"tag": tag, "count": count} for tag, count in found])


@router.put("/agents/{agent_id}/tags", openapi_extra=body_openapi(TagsBody), dependencies=[NEEDS_EDIT])
def set_tags(context: ApiContextDep, principal: ApiTokenCaller, agent_id: str, body: SmallBody) -> Response:
    """Replace the tags of an agent, up to 512 characters in all."""
    fields = parse_body(TagsBody, body)
    tags = fields.tags.split(",") if isinstance(fields.tags, str) else fields.tags
    with context.database.transaction() as tx:
        try:
            canvas_id = CanvasId(id_or_unused(agent_id))
            canvas_list.set_tags(tx, principal.tenant_id, canvas_id, tags)
            principal.record(tx, Action.AGENT_CHANGED, canvas_id, fields=["tags"])
        except NotFound as missing:
            raise RequestRefused(FORBIDDEN, missing.message, data=False, is_absent=True) from None
    return success(True)
