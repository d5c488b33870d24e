"""Refuse query parameters that a route does not declare, with the names of those that it does.

Otherwise a misspelt filter would return everything, and a misspelt option would be silently ignored.
"""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.http.errors import UnknownParameter


class AnyQueryRoute(APIRoute):
    """A route that accepts any query: a webhook."""


def refuse_unknown_parameters(request: Request) -> None:
    """Raise UnknownParameter for a query parameter that the request's route does not declare."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute) or isinstance(route, AnyQueryRoute):
        return
    known = sorted(set(_declared_names(route.dependant)))
    for name in request.query_params:
        if name not in known:
            parameters = f"Its parameters are: {', '.join(known)}." if known else "It has none."
            raise UnknownParameter(f"`{name[:64]}` is not a parameter of this route. {parameters}", field=name[:64])


def _declared_names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for dependency in dependant.dependencies:
        yield from _declared_names(dependency)
