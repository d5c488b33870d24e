"""Who is asking: a bearer token becomes a Principal. The one dependency of every route that has data.

RAGFlow's wire knows no tenants beside users, so the caller's tenant id is the caller's user id. A token of kind `beta`
is a share link: it opens the routes that say so, there one agent's published version, and sessions, files and logs that
came by the link (`Principal.link`). Tokens of kind `admin` open all that `api` ones do, and may set what a tenant's
runs may spend.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.dependencies import Edge, TheEdge, in_thread
from api.http.errors import Unauthorized
from api.http.query_parameters import refuse_unknown_parameters
from store.tenants import tenants

_bearer = HTTPBearer(auto_error=False, description="An API token: `easel tokens create`")

NO_AGENT = "This share link names no agent. Ask for a new link. (Operators: `easel tokens bind TOKEN --agent AGENT`)"


Bearer = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
"""What shows in OpenAPI that a route needs a token."""


@dataclass(frozen=True, slots=True)
class ShareLink:
    """What a share link opens: the published version of one agent, and what came by this link."""

    token_id: UUID
    canvas_id: UUID

    def key_route(self, route: str) -> str:
        """The route of an idempotency key that came by the link: keys of others are not seen."""
        return f"{route} link {self.token_id.hex}"


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `kind`: `api`, `admin`, or `beta` for share links, which alone have a `link`."""

    tenant_id: UUID
    user_id: str
    kind: str
    token_id: UUID
    link: ShareLink | None = None

    def opens(self, canvas_id: UUID) -> bool:
        """Whether an agent of the tenant is open to the caller."""
        return self.link is None or self.link.canvas_id == canvas_id


async def anyone(request: Request, edge: TheEdge, _for_openapi: Bearer) -> Principal:
    """The caller, by a token of any kind. Raises Unauthorized, and UnknownParameter for a query that makes no sense."""
    written = request.headers.get("authorization", "").strip()
    scheme, _, rest = written.partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else written  # the bare token will do
    if not token:
        raise Unauthorized
    found = await in_thread(lambda: _known(edge, token))
    if found is None:
        raise Unauthorized
    refuse_unknown_parameters(request)  # here, because every route that has data asks who the caller is
    return Principal(found.tenant_id, found.tenant_id.hex, found.kind, found.token_id, _link(found))


async def caller(principal: Annotated[Principal, Depends(anyone)]) -> Principal:
    """The caller, by an API token. Raises Unauthorized."""
    if principal.kind not in ("api", "admin"):
        raise Unauthorized
    return principal


def _link(found: tenants.Principal) -> ShareLink | None:
    if found.kind != tenants.SHARE_LINK:
        return None
    if found.canvas_id is None:  # made before links named their agent
        raise Unauthorized(NO_AGENT)
    return ShareLink(found.token_id, found.canvas_id)


def _known(edge: Edge, token: str) -> tenants.Principal | None:
    with edge.database.statements() as tx:  # one statement, so one round trip, unless its use is to be noted
        return tenants.principal_of(tx, token)


Anyone = Annotated[Principal, Depends(anyone)]
Caller = Annotated[Principal, Depends(caller)]
