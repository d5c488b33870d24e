"""Who is asking: a bearer token becomes a Principal. The one dependency of every route that has data.

RAGFlow's wire knows no tenants beside users, so the caller's tenant id is the caller's user id. Tokens of kind `beta`
(share links) open the routes that say so and nothing else. Those of kind `admin` open all that `api` ones do, and may
set what a tenant's runs may spend.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.edge import Edge, TheEdge, in_thread
from api.errors import Unauthorized
from api.parameters import refuse_unknown_parameters
from store import tenants

_bearer = HTTPBearer(auto_error=False, description="An API token: `easel tokens create`")


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `kind`: `api`, `admin`, or `beta` for share links."""

    tenant_id: UUID
    user_id: str
    kind: str


async def anyone(
    request: Request, edge: TheEdge, _for_openapi: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
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
    return Principal(found.tenant_id, found.tenant_id.hex, found.kind)


async def caller(principal: Annotated[Principal, Depends(anyone)]) -> Principal:
    """The caller, by an API token. Raises Unauthorized."""
    if principal.kind not in ("api", "admin"):
        raise Unauthorized
    return principal


def _known(edge: Edge, token: str) -> tenants.Principal | None:
    with edge.database.statements() as tx:  # one statement, so one round trip, unless its use is to be noted
        return tenants.principal_of(tx, token)


Anyone = Annotated[Principal, Depends(anyone)]
Caller = Annotated[Principal, Depends(caller)]
