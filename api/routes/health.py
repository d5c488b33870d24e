"""alive · ready (database, migrations, broker, bus), for everybody who gets there · counters · the schema. At the root.

Counters are those of all tenants, so they need an admin token unless EASEL_OPEN_METRICS opens them; the schema needs
any API token unless EASEL_OPEN_SCHEMA does.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response

from api import auth
from api.edge import Edge, TheEdge, in_thread
from api.errors import FORBIDDEN, Refused
from api.replies import json_reply
from store import migrate
from store.outages import trouble

log = structlog.get_logger()
router = APIRouter(tags=["health"])

PATIENCE = 3.0  # seconds for all checks together; whoever asks has a limit of its own


@router.get("/healthz")
def alive(request: Request) -> Response:
    """The process answers, and says of which release it is."""
    return json_reply({"status": "ok", "version": request.app.version})


@router.get("/readyz")
def ready(edge: TheEdge) -> Response:
    """Whether requests would be served: 503 and what is missing, if they would not."""
    checks: dict[str, Callable[[Edge], str]] = {
        "database": _database,
        "migrations": _migrations,
        "broker": _broker,
        "bus": _bus,
    }
    threads = ThreadPoolExecutor(len(checks), thread_name_prefix="easel-ready")
    asked = {name: threads.submit(check, edge) for name, check in checks.items()}
    wait(asked.values(), PATIENCE)
    found: dict[str, str] = {}
    for name, answer in asked.items():
        problem = answer.exception() if answer.done() else TimeoutError("no answer in time")
        if problem is not None:
            log.warning("not_ready", check=name, error=(str(problem).splitlines() or [type(problem).__name__])[0])
        found[name] = answer.result() if problem is None else trouble(problem)
    threads.shutdown(wait=False, cancel_futures=True)
    is_ready = set(found.values()) == {"ok"}
    return json_reply({"status": "ok" if is_ready else "unavailable", "checks": found}, 200 if is_ready else 503)


@dataclass(frozen=True, slots=True)
class OpenRoutes:
    """Which of the routes need no token."""

    metrics: bool
    schema: bool


@router.get("/metrics")
async def metrics(request: Request, edge: TheEdge, _for_openapi: auth.Bearer) -> Response:
    """This process's counters for Prometheus."""
    if not request.app.state.open_routes.metrics:
        principal = await auth.caller(await auth.anyone(request, edge, None))
        if principal.kind != "admin":
            raise Refused(FORBIDDEN, "Counters are those of all tenants. Use a token of kind `admin`.", status=403)
    page, content_type = await in_thread(edge.counters)
    return Response(page, media_type=content_type)


@router.get("/openapi.json", include_in_schema=False)
async def schema(request: Request, edge: TheEdge) -> Response:
    """Every route with its schemas, as OpenAPI."""
    if not request.app.state.open_routes.schema:
        await auth.caller(await auth.anyone(request, edge, None))
    return json_reply(await in_thread(request.app.openapi))


def _database(edge: Edge) -> str:
    edge.database.check_writable()
    return "ok"


def _migrations(edge: Edge) -> str:
    missing = migrate.missing(edge.database)
    return f"missing {', '.join(missing)}: run `easel migrate`" if missing else "ok"


def _broker(edge: Edge) -> str:
    with edge.broker.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=PATIENCE)
    return "ok"


def _bus(edge: Edge) -> str:
    edge.lifecycle.coordinator.dispatch.bus.ping()
    return "ok"
