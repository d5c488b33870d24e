"""A tenant's agents as OpenAI's clients list models (http-api 8.2)."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth import Anyone
from api.edge import TheEdge
from api.replies import json_reply
from store import gallery

router = APIRouter(tags=["agents"])

MOST_MODELS = 1000


@router.get("/openai/models")
def list_models(edge: TheEdge, principal: Anyone) -> Response:
    """The caller's agents as an OpenAI client lists models: by id. A share link lists the one that it opens."""
    ids = [principal.link.canvas_id] if principal.link is not None else []
    wanted = gallery.Wanted(categories=["agent_canvas"], ids=ids)
    with edge.database.statements() as tx:
        found, _ = gallery.page(tx, principal.tenant_id, wanted, limit=MOST_MODELS)
    told: list[dict[str, Any]] = [
        {"id": each.id.hex, "object": "model", "created": int(each.created_at.timestamp()), "owned_by": "easel"}
        for each in found
    ]
    return json_reply({"object": "list", "data": told})
