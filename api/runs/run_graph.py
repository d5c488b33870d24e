"""The graph of the version that a run executes."""

from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.agents.agent_graph import GraphReply, graph_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import RunViewer
from api.requests.dependencies import ApiContextDep
from api.runs.run_lookup import find_run_id, run_not_found
from canvas.errors import NotFound
from canvas.state.run_state import RunStatus
from store.agents import versions
from store.agents.versions import VERSION_GONE_TEXT
from store.runs import run_queries

router = APIRouter(tags=["runs"], route_class=OwnRoute)


@router.get("/runs/{run_id}/graph", response_model=GraphReply)
def get_run_graph(request: Request, context: ApiContextDep, principal: RunViewer, run_id: str) -> Response:
    """Get the graph of the run's version, as its author drew it."""
    with context.database.transaction() as tx:
        run = run_queries.get_summary(tx, principal.tenant_id, find_run_id(tx, principal.tenant_id, run_id))
        if run is None:
            raise run_not_found(run_id)
        if run.status == RunStatus.REFUSED:
            raise NotFound("The start of this run was refused, so it has no graph.")
        version = versions.find(tx, principal.tenant_id, run.canvas_id, run.version_id)
        if version is None:
            raise versions.VersionGone(VERSION_GONE_TEXT, version_id=run.version_id.hex)
        document = context.versions.get(tx, run.version_id).document
    reply = graph_reply(request, document, version.digest, is_fixed=True)
    if principal.share is not None:  # a browser must ask again when the share is over
        reply.headers["Cache-Control"] = "no-store"
    return reply
