"""Routes about what RAGFlow runs elsewhere: pipelines of documents (dataflow canvases), and its other canvas runtime.

Easel runs agents, in its own runtime. Clients that ask for another get a clear answer, and nothing changes.
"""

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from api.http.errors import RefusedAccess, not_found
from api.http.replies import json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import Body
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_ADMIN, NEEDS_RUN
from canvas.errors import InvalidRequest, NotFound

router = APIRouter(tags=["agents"], dependencies=[NEEDS_RUN])
runtime_router = APIRouter(tags=["agents"], dependencies=[NEEDS_ADMIN], route_class=OwnRoute)

DISTRIBUTED = "distributed"


class RerunPipelineBody(Body):
    """The document of a pipeline, and the component to continue from."""

    id: str
    dsl: dict[str, Any] | str
    component_id: str


class RuntimeBody(Body):
    """The runtime of a tenant's canvases."""

    runtime: Literal["distributed", "upstream"]


class RuntimeReply(BaseModel):
    """The runtime of a tenant's canvases."""

    tenant_id: str
    runtime: Literal["distributed"] = Field(description="Easel's own; there is no other")


@router.post("/agents/rerun", openapi_extra=body_openapi(RerunPipelineBody))
def rerun_pipeline(principal: ApiTokenCaller, body: SmallBody) -> Response:
    """Rerun a document in a pipeline of RAGFlow: always `Document not found.`, since Easel runs no pipelines.

    `POST /runs/{run_id}/rerun` repeats the run of an agent.
    """
    parse_body(RerunPipelineBody, body)
    raise not_found("Document not found.")


@runtime_router.get("/admin/canvas-runtime/{tenant_id}", response_model=RuntimeReply)
def get_runtime(principal: ApiTokenCaller, tenant_id: str) -> Response:
    """Get the runtime of the administrator's tenant."""
    return _runtime_reply(principal, tenant_id)


@runtime_router.post(
    "/admin/canvas-runtime/{tenant_id}", response_model=RuntimeReply, openapi_extra=body_openapi(RuntimeBody)
)
def choose_runtime(principal: ApiTokenCaller, tenant_id: str, body: SmallBody) -> Response:
    """Choose the runtime of the administrator's tenant. The only one is `distributed`, so nothing changes."""
    reply = _runtime_reply(principal, tenant_id)
    if parse_body(RuntimeBody, body).runtime != DISTRIBUTED:
        raise InvalidRequest(
            "Easel runs all canvases itself and forwards none to a RAGFlow server. Use `distributed`.", field="runtime"
        )
    return reply


def _runtime_reply(principal: RequestPrincipal, tenant_id: str) -> Response:
    if principal.kind != "admin":
        raise RefusedAccess("Only an administrator chooses the runtime: `easel tokens create --kind admin`.")
    if parse_id(tenant_id) != principal.tenant_id:
        raise NotFound(f"There is no tenant {tenant_id[:64]}.")
    return json_reply({"tenant_id": principal.tenant_id.hex, "runtime": DISTRIBUTED})
