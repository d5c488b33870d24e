"""Browsers that sign in, for tests over HTTP."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import httpx2
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts

from api.app import create_app
from tests.integration.api.conftest import NO_TLS, Server, config_of
from tests.integration.api.talking import Client

PAGE = {"X-Easel-Viewer": "1", "Sec-Fetch-Site": "same-origin"}
"""The headers with which a page of ours changes something."""
SESSION = "/api/v1/viewer/session"


def some_address() -> str:
    """Return an address that no other test uses, since tries are counted by address."""
    number = uuid4().int
    return ".".join(str(each) for each in (10, number >> 16 & 255, number >> 8 & 255, number & 255))


def try_to_sign_in(url: str, headers: Mapping[str, str] | None = None, **secret: Any) -> httpx2.Response:
    """Send what a browser signs in with, from an address of its own."""
    with httpx2.Client(base_url=url, verify=NO_TLS) as anonymous:
        return anonymous.post(
            SESSION, json=secret, headers={**PAGE, "X-Forwarded-For": some_address(), **(headers or {})}
        )


def cookie_of(url: str, **secret: Any) -> str:
    """Sign in; return the value of the cookie."""
    reply = try_to_sign_in(url, **secret)
    assert reply.status_code == 204, reply.text
    return reply.cookies["easel"]


@contextmanager
def browser(url: str, cookie: str, *, headers: Mapping[str, str] = PAGE) -> Iterator[httpx2.Client]:
    """A browser with a cookie, whose page sends these headers."""
    with httpx2.Client(
        base_url=url, headers={**headers, "Cookie": f"easel={cookie}"}, timeout=30, verify=NO_TLS
    ) as client:
        yield client


@contextmanager
def signed_in(server: Server, client: Client) -> Iterator[httpx2.Client]:
    """A browser that is signed in with a client's token."""
    with browser(server.url, cookie_of(server.url, token=client.token)) as signed:
        yield signed


def share(client: Client, run_id: str, **fields: Any) -> dict[str, Any]:
    """Share a run; return the reply with its secret."""
    reply = client.http.post(f"/api/v1/runs/{run_id}/shares", json=fields)
    assert reply.status_code == 201, reply.text
    return reply.json()


def list_routes() -> list[tuple[str, str, APIRoute]]:
    """Return method, path and route of every route of the application."""
    app = create_app(config_of("postgresql+psycopg://nowhere/x", "redis://nowhere"))
    return [
        (method, str(found.path), route)
        for found in iter_route_contexts(app.routes)
        if isinstance(route := found.original_route, APIRoute)
        for method in sorted(route.methods)
    ]


def depends_on(route: APIRoute, *calls: Callable[..., Any]) -> bool:
    """Return whether a route depends on one of these functions."""
    return _depends_on(route.dependant, calls)


def _depends_on(dependant: Dependant, calls: Sequence[Callable[..., Any]]) -> bool:
    return any(each.call in calls or _depends_on(each, calls) for each in dependant.dependencies)
