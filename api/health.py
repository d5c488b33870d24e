"""Routes at the root: liveness, readiness (database, migrations, broker, bus), metrics, and the OpenAPI schema.

Liveness and readiness need no token. Metrics cover all tenants, so they need the scope `admin` unless
EASEL_OPEN_METRICS is set. The schema needs the scope `read` unless EASEL_OPEN_SCHEMA is set.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Lock

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.http.replies import json_reply
from api.requests import auth
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from store.db.db_errors import outage_reason
from store.maintenance import migrate
from store.tenants.scopes import TokenScope

log = structlog.get_logger()
router = APIRouter(tags=["health"])

CHECK_TIMEOUT = 3.0  # seconds for all checks together; load balancers have limits of their own


@router.get("/healthz")
def alive(request: Request) -> Response:
    """Answer with the release, which proves that the process is alive."""
    return json_reply({"status": "ok", "version": request.app.version})


class ReadinessChecks:
    """Checks of everything that requests need, each in its own thread.

    If a check hangs, the next request waits for the same check, so a check never occupies more than one thread.
    """

    def __init__(self, checks: Mapping[str, Callable[[ApiContext], str]]) -> None:
        self._checks = checks
        self._threads = ThreadPoolExecutor(len(checks), thread_name_prefix="easel-ready")
        self._looks: dict[str, Future[str]] = {}
        self._lock = Lock()

    def run(self, context: ApiContext, seconds: float) -> dict[str, str]:
        """Return the result of each check by name: `ok` or the defect, also for a check that takes too long."""
        with self._lock:
            for name, check in self._checks.items():
                known = self._looks.get(name)
                if known is None or known.done():
                    self._looks[name] = self._threads.submit(check, context)
            looks = dict(self._looks)
        wait(looks.values(), seconds)
        return {name: _describe_result(name, look) for name, look in looks.items()}

    def close(self) -> None:
        """Start no further checks; running ones end with the process."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def make_readiness_checks() -> ReadinessChecks:
    """Return the checks of one process."""
    return ReadinessChecks({"database": _database, "migrations": _migrations, "broker": _broker, "bus": _bus})


@router.get("/readyz")
def ready(request: Request, context: ApiContextDep) -> Response:
    """Check whether requests can be served; answer 503 with the defects if they cannot."""
    looks: ReadinessChecks = request.app.state.readiness
    found = looks.run(context, CHECK_TIMEOUT)
    is_ready = set(found.values()) == {"ok"}
    return json_reply({"status": "ok" if is_ready else "unavailable", "checks": found}, 200 if is_ready else 503)


def _describe_result(name: str, look: Future[str]) -> str:
    problem = look.exception() if look.done() else TimeoutError("no answer in time")
    if problem is None:
        return look.result()
    log.warning("not_ready", check=name, error=(str(problem).splitlines() or [type(problem).__name__])[0])
    return outage_reason(problem)


@dataclass(frozen=True, slots=True)
class OpenRoutes:
    """Which of these routes need no token."""

    metrics: bool
    schema: bool


@router.get("/metrics")
async def metrics(request: Request, context: ApiContextDep, _for_openapi: auth.Bearer) -> Response:
    """Return the metrics of this process for Prometheus."""
    if not request.app.state.open_routes.metrics:
        await auth.authenticate_for(request, context, TokenScope.ADMIN)
    page, content_type = await run_in_thread(context.metrics_page)
    return Response(page, media_type=content_type)


@router.get("/openapi.json", include_in_schema=False)
async def schema(request: Request, context: ApiContextDep) -> Response:
    """Return every route with its schemas, as OpenAPI."""
    if not request.app.state.open_routes.schema:
        await auth.authenticate_for(request, context, TokenScope.READ)
    return json_reply(await run_in_thread(request.app.openapi))


def _database(context: ApiContext) -> str:
    context.database.check_writable()
    return "ok"


def _migrations(context: ApiContext) -> str:
    missing = migrate.missing_revisions(context.database)
    return f"missing {', '.join(missing)}: run `easel migrate`" if missing else "ok"


def _broker(context: ApiContext) -> str:
    with context.broker.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=CHECK_TIMEOUT)
    return "ok"


def _bus(context: ApiContext) -> str:
    context.lifecycle.coordinator.dispatch.bus.ping()
    return "ok"
