"""Refuse query parameters that a route does not declare, with the names of those that it does.

Otherwise a misspelt filter would return everything, and a misspelt option would be silently ignored.

What a route declares is what its handler and its dependencies have as parameters, so no route lists names for this
check. On RAGFlow's and OpenAI's paths a GET may also have a cache buster, a parameter with a changing number that HTTP
clients add so that no proxy answers. It changes no answer.
"""

import re
from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from api.http.errors import UnknownParameter
from api.http.reply_styles import OwnRoute
from api.http.similar_names import nearest_first

CACHE_BUSTERS = frozenset({"_", "_t", "t", "ts", "timestamp", "cachebuster"})
_NUMBER = re.compile(r"\d{1,20}(\.\d{1,20})?", re.ASCII)


class AnyQueryRoute(APIRoute):
    """A route that accepts any query: a webhook."""


def refuse_unknown_parameters(request: Request) -> None:
    """Raise UnknownParameter for a query parameter that the request's route does not declare."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute) or isinstance(route, AnyQueryRoute):
        return
    known = set(_declared_names(route.dependant))
    has_cache_busters = request.method == "GET" and not isinstance(route, OwnRoute)
    for name, value in request.query_params.multi_items():
        if name not in known and not (has_cache_busters and _is_cache_buster(name, value)):
            listed = nearest_first(name[:64], known)
            parameters = f"Its parameters are: {', '.join(listed)}." if listed else "It has none."
            raise UnknownParameter(f"`{name[:64]}` is not a parameter of this route. {parameters}", field=name[:64])


def _is_cache_buster(name: str, value: str) -> bool:
    return name in CACHE_BUSTERS and _NUMBER.fullmatch(value) is not None


def _declared_names(dependant: Dependant) -> Iterator[str]:
    for parameter in dependant.query_params:
        yield parameter.alias
    for dependency in dependant.dependencies:
        yield from _declared_names(dependency)
