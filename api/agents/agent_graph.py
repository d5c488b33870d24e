"""The graph of an agent's draft or version, for pages that show it, and the reply with a graph."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel

from api.http.replies import large_json_reply, parse_canvas_id, parse_id
from api.http.reply_styles import OwnRoute
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_READ
from canvas.document import parsing
from canvas.document.document import Document
from canvas.document.graph_view import graph_json
from canvas.errors import NotFound
from canvas.ids import VersionId
from store.agents import canvases, versions

router = APIRouter(tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_READ])

DRAFT = "draft"
FIXED = "private, max-age=31536000, immutable"
CHECKED = "private, no-cache"


class GraphBranch(BaseModel):
    """A branch of a Switch or Categorize. Edges name its key."""

    key: str
    label: str


class GraphNode(BaseModel):
    """A node as it is drawn; positions of a node with a parent are relative to it."""

    id: str
    kind: str
    component: str
    name: str
    x: float | None
    y: float | None
    w: float | None
    h: float | None
    parent: str | None
    branches: list[GraphBranch]
    is_start: bool


class GraphReply(BaseModel):
    """The graph of a canvas. `drawn`: every node has a place of its own."""

    digest: str
    drawn: bool
    nodes: list[GraphNode]
    edges: list[dict[str, Any]]
    size: dict[str, float] | None
    components: list[str]


@router.get("/viewer/agents/{agent_id}/graph", response_model=GraphReply)
def get_agent_graph(
    request: Request, context: ApiContextDep, principal: Viewer, agent_id: str, version: str = DRAFT
) -> Response:
    """Get the graph of an agent's draft, or of the version with this id, as its author drew it."""
    canvas_id = parse_canvas_id(agent_id)
    with context.database.transaction() as tx:
        if canvas_id is None:
            raise _agent_not_found(agent_id)
        if version == DRAFT:
            try:
                draft = canvases.get(tx, principal.tenant_id, canvas_id).draft
            except NotFound:
                raise _agent_not_found(agent_id) from None
            return graph_reply(request, parsing.parse(draft), versions.digest_of(draft), is_fixed=False)
        version_id = parse_id(version)
        found = versions.find(tx, principal.tenant_id, canvas_id, VersionId(version_id)) if version_id else None
        if found is None:
            raise NotFound(f"The agent has no version {version[:64]}. Use `draft` or the id of a version.")
        document = context.versions.get(tx, found.id).document
    return graph_reply(request, document, found.digest, is_fixed=True)


def graph_reply(request: Request, document: Document, digest: bytes, *, is_fixed: bool) -> Response:
    """Return the graph of a document, or 304 if the client has it. `is_fixed`: the URL always shows this document."""
    tag = f'"{digest.hex()}"'
    headers = {"ETag": tag, "Cache-Control": FIXED if is_fixed else CHECKED}
    known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
    if tag in known:
        return Response(status_code=304, headers=headers)
    return large_json_reply(request, {"digest": digest.hex(), **graph_json(document)}, headers)


def _agent_not_found(agent_id: str) -> NotFound:
    return NotFound(f"There is no agent {agent_id[:64]}.")
