"""The version that a run executes: its graph, and its document."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from api.agents.agent_graph import GraphReply, graph_reply
from api.http.replies import json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import RunViewer, Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_READ
from api.runs.run_lookup import find_run_id, run_not_found
from canvas.errors import NotFound
from canvas.ids import TenantId
from canvas.state.run_state import RunStatus
from store.agents import versions
from store.agents.versions import VERSION_GONE_TEXT, Version
from store.db.transaction import Transaction
from store.runs import run_queries
from store.runs.activation_details import load_baseline_globals

router = APIRouter(tags=["runs"], route_class=OwnRoute, dependencies=[NEEDS_READ])

NOT_SHOWN = ("sys.history", "sys.files")  # the conversation and the files of the request have their own routes


class RunDocumentReply(BaseModel):
    """The document that a run executes."""

    version_id: str
    digest: str = Field(description="SHA-256 of the document")
    document: dict[str, Any] = Field(description="With masks in place of secrets")
    variables: dict[str, Any] = Field(description="The globals, with the values that the run began with")


@router.get("/runs/{run_id}/graph", response_model=GraphReply)
def get_run_graph(request: Request, context: ApiContextDep, principal: RunViewer, run_id: str) -> Response:
    """Get the graph of the run's version, as its author drew it."""
    with context.database.transaction() as tx:
        version = _version_of(tx, principal.tenant_id, run_id)
        document = context.versions.get(tx, version.id).document
    reply = graph_reply(request, document, version.digest, is_fixed=True)
    if principal.share is not None:  # a browser must ask again when the share is over
        reply.headers["Cache-Control"] = "no-store"
    return reply


@router.get("/runs/{run_id}/document", response_model=RunDocumentReply)
def get_run_document(context: ApiContextDep, principal: Viewer, run_id: str) -> Response:
    """Get the document of the run's version, also of one that no list of versions shows. Secrets are masked."""
    with context.database.transaction() as tx:
        version = versions.get(tx, _version_of(tx, principal.tenant_id, run_id).id)
        began_with = load_baseline_globals(tx, principal.tenant_id, find_run_id(tx, principal.tenant_id, run_id))
    secrets = context.canvas_secrets(principal.tenant_id, version.canvas_id)
    began_with = secrets.mask_document({"globals": began_with})["globals"]
    reply = {
        "version_id": version.id.hex,
        "digest": version.digest.hex(),
        "document": secrets.mask_document(version.dsl),
        "variables": {name: value for name, value in began_with.items() if name not in NOT_SHOWN},
    }
    return json_reply(reply)


def _version_of(tx: Transaction, tenant_id: TenantId, run_id: str) -> Version:
    """Return the version of a run without its document. Raises NotFound, VersionGone."""
    run = run_queries.get_summary(tx, tenant_id, find_run_id(tx, tenant_id, run_id))
    if run is None:
        raise run_not_found(run_id)
    if run.status == RunStatus.REFUSED:
        raise NotFound("The start of this run was refused, so it has no graph.")
    version = versions.find(tx, tenant_id, run.canvas_id, run.version_id)
    if version is None:
        raise versions.VersionGone(VERSION_GONE_TEXT, version_id=run.version_id.hex)
    return version
