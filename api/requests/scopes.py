"""The scope that each route needs, and what a route is for tokens of one agent.

A router or a route names its scope as a dependency; that of the route precedes that of its router:

    router = APIRouter(tags=["agents"], dependencies=[NEEDS_READ])

    @router.delete("/agents/{agent_id}", dependencies=[NEEDS_EDIT])

These dependencies only mark the route. The authentication (api/requests/auth.py) checks the mark once it knows the
caller, and refuses a route without one. `tests/integration/api/test_scopes.py` has a table of all routes.

A token may be limited to one agent. Such a token reaches routes that have `agent_id` or `run_id` in their path, where
the authentication compares these with its agent, and routes with the mark OF_ONE_AGENT, whose handlers show and change
only what belongs to the agent (`RequestPrincipal.agent`). All other routes belong to the whole tenant.
"""

from typing import Any

from fastapi import Depends, Request
from fastapi.routing import APIRoute

from store.tenants.scopes import TokenScope


class ScopeMark:
    """The scope that a route needs."""

    def __init__(self, scope: TokenScope) -> None:
        self.scope = scope

    async def __call__(self) -> None:
        """Do nothing: the authentication reads the mark."""


class OneAgentMark:
    """A route whose handler confines a token of one agent."""

    async def __call__(self) -> None:
        """Do nothing: the authentication reads the mark."""


NEEDS_READ: Any = Depends(ScopeMark(TokenScope.READ))
NEEDS_RUN: Any = Depends(ScopeMark(TokenScope.RUN))
NEEDS_EDIT: Any = Depends(ScopeMark(TokenScope.EDIT))
NEEDS_ADMIN: Any = Depends(ScopeMark(TokenScope.ADMIN))
OF_ONE_AGENT: Any = Depends(OneAgentMark())


class UnmarkedRoute(RuntimeError):
    """A route that authenticates its callers names no scope. It is refused to everybody."""


def needed_scope(route: Any) -> TokenScope | None:
    """Return the scope that a route needs; None for a route that names none."""
    marks = [each.dependency for each in route.dependencies] if isinstance(route, APIRoute) else []
    return next((mark.scope for mark in reversed(marks) if isinstance(mark, ScopeMark)), None)


def confines_callers(route: Any) -> bool:
    """Return whether the handler of a route confines tokens of one agent."""
    return isinstance(route, APIRoute) and any(isinstance(each.dependency, OneAgentMark) for each in route.dependencies)


def scope_of_request(request: Request) -> TokenScope:
    """Return the scope that the route of a request needs. Raises UnmarkedRoute."""
    route = request.scope.get("route")
    scope = needed_scope(route)
    if scope is None:
        raise UnmarkedRoute(f"The route {getattr(route, 'path', request.url.path)} names no scope.")
    return scope
