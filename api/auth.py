"""Who is asking: a bearer token becomes a Principal. The one dependency of every route that has data.

RAGFlow's wire knows no tenants beside users, so the caller's tenant id is the caller's user id. Tokens of kind `beta`
(share links) open the routes that say so and nothing else.
"""

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from api.edge import TheEdge
from api.errors import Unauthorized
from store import tenants

_bearer = HTTPBearer(auto_error=False, description="An API token: `easel tokens create`")


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. `kind`: `api`, or `beta` for share links."""

    tenant_id: UUID
    user_id: str
    kind: str


def anyone(
    request: Request, edge: TheEdge, _for_openapi: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """The caller, by a token of any kind. Raises Unauthorized."""
    written = request.headers.get("authorization", "").strip()
    scheme, _, rest = written.partition(" ")
    token = rest.strip() if scheme.lower() == "bearer" else written  # the bare token will do
    if not token:
        raise Unauthorized
    with edge.database.transaction() as tx:
        found = tenants.principal_of(tx, token)
    if found is None:
        raise Unauthorized
    return Principal(found.tenant_id, found.tenant_id.hex, found.kind)


def caller(principal: Annotated[Principal, Depends(anyone)]) -> Principal:
    """The caller, by an API token. Raises Unauthorized."""
    if principal.kind != "api":
        raise Unauthorized
    return principal


Anyone = Annotated[Principal, Depends(anyone)]
Caller = Annotated[Principal, Depends(caller)]
