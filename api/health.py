"""alive · ready (database, migrations, broker, bus), for everybody who gets there · counters · the schema. At the root.

Counters are those of all tenants, so they need an admin token unless EASEL_OPEN_METRICS opens them; the schema needs
any API token unless EASEL_OPEN_SCHEMA does.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.dependencies import Edge, TheEdge, in_thread
from api.http import auth
from api.http.errors import FORBIDDEN, Refused
from api.http.replies import json_reply
from store.maintenance import migrate
from store.primitives.db_errors import outage_reason

log = structlog.get_logger()
router = APIRouter(tags=["health"])

PATIENCE = 3.0  # seconds for all checks together; whoever asks has a limit of its own


@router.get("/healthz")
def alive(request: Request) -> Response:
    """The process answers, and says of which release it is."""
    return json_reply({"status": "ok", "version": request.app.version})


class Readiness:
    """What has to work for requests to be served, each looked at in a thread of its own.

    A look that hangs is waited for by whoever asks next, so it never takes more than its one thread.
    """

    def __init__(self, checks: Mapping[str, Callable[[Edge], str]]) -> None:
        self._checks = checks
        self._threads = ThreadPoolExecutor(len(checks), thread_name_prefix="easel-ready")
        self._looks: dict[str, Future[str]] = {}
        self._lock = Lock()

    def found(self, edge: Edge, seconds: float) -> dict[str, str]:
        """What was found by name: `ok`, or what is wrong. Looks without an end by then have not answered."""
        with self._lock:
            for name, check in self._checks.items():
                known = self._looks.get(name)
                if known is None or known.done():
                    self._looks[name] = self._threads.submit(check, edge)
            looks = dict(self._looks)
        wait(looks.values(), seconds)
        return {name: _found(name, look) for name, look in looks.items()}

    def close(self) -> None:
        """Begin no look any more; those under way end with the process."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def readiness() -> Readiness:
    """The looks of one process."""
    return Readiness({"database": _database, "migrations": _migrations, "broker": _broker, "bus": _bus})


@router.get("/readyz")
def ready(request: Request, edge: TheEdge) -> Response:
    """Whether requests would be served: 503 and what is missing, if they would not."""
    looks: Readiness = request.app.state.readiness
    found = looks.found(edge, PATIENCE)
    is_ready = set(found.values()) == {"ok"}
    return json_reply({"status": "ok" if is_ready else "unavailable", "checks": found}, 200 if is_ready else 503)


def _found(name: str, look: Future[str]) -> str:
    problem = look.exception() if look.done() else TimeoutError("no answer in time")
    if problem is None:
        return look.result()
    log.warning("not_ready", check=name, error=(str(problem).splitlines() or [type(problem).__name__])[0])
    return outage_reason(problem)


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
