"""Authentication: turn a bearer token into a RequestPrincipal. Every route that returns data depends on it.

RAGFlow's API has users and no tenants, so the caller's tenant id is also the user id. A token of kind `beta` is a share
link. It is accepted on the routes that declare so, for one agent's published version, and for sessions, files and logs
that were created by the link (`RequestPrincipal.link`). Tokens of kind `admin` may do everything that `api` tokens may,
and set the budgets of a tenant.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.http.errors import Unauthorized
from api.http.query_parameters import refuse_unknown_parameters
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from canvas.ids import CanvasId, TenantId
from store.tenants import tenants

_bearer = HTTPBearer(auto_error=False, description="An API token: `easel tokens create`")

NO_AGENT = "This share link names no agent. Request a new link. (Operators: `easel tokens bind TOKEN --agent AGENT`)"


Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
"""The dependency that marks a route in OpenAPI as needing a token."""


@dataclass(frozen=True, slots=True)
class ShareLink:
    """A share link: it opens the published version of one agent, and everything that was created by the link."""

    token_id: UUID
    canvas_id: CanvasId

    def key_route(self, route: str) -> str:
        """Return the route for idempotency keys of this link, which keeps them apart from keys of other callers."""
        return f"{route} link {self.token_id.hex}"


@dataclass(frozen=True, slots=True)
class RequestPrincipal:
    """The caller. `kind`: `api`, `admin`, or `beta` for share links. Only share links have a `link`."""

    tenant_id: TenantId
    user_id: str
    kind: str
    token_id: UUID
    link: ShareLink | None = None

    def may_use(self, canvas_id: CanvasId) -> bool:
        """Return whether the caller may use an agent of the tenant."""
        return self.link is None or self.link.canvas_id == canvas_id


async def authenticate(request: Request, context: ApiContextDep, _for_openapi: Bearer) -> RequestPrincipal:
    """Return the caller, with a token of any kind. Raises Unauthorized; UnknownParameter for an invalid query."""
    written = request.headers.get("authorization", "").strip()
    scheme, _, rest = written.partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else written  # a bare token is accepted too
    if not token:
        raise Unauthorized
    found = await run_in_thread(lambda: _find_principal(context, token))
    if found is None:
        raise Unauthorized
    refuse_unknown_parameters(request)  # here, since every route that returns data depends on the caller
    return RequestPrincipal(found.tenant_id, found.tenant_id.hex, found.kind, found.token_id, _link(found))


async def authenticate_api_token(principal: Annotated[RequestPrincipal, Depends(authenticate)]) -> RequestPrincipal:
    """Return the caller, with an API token. Raises Unauthorized, also for share links."""
    if principal.kind not in ("api", "admin"):
        raise Unauthorized
    return principal


def _link(found: tenants.Principal) -> ShareLink | None:
    if found.kind != tenants.SHARE_LINK:
        return None
    if found.canvas_id is None:  # created by a release whose links named no agent
        raise Unauthorized(NO_AGENT)
    return ShareLink(found.token_id, found.canvas_id)


def _find_principal(context: ApiContext, token: str) -> tenants.Principal | None:
    # one statement and one round trip, unless the use of the token must be recorded
    with context.database.statements() as tx:
        return tenants.find_principal(tx, token)


AnyTokenCaller = Annotated[RequestPrincipal, Depends(authenticate)]
ApiTokenCaller = Annotated[RequestPrincipal, Depends(authenticate_api_token)]
