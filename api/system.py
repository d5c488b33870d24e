"""RAGFlow's routes about the system, which probes and clients ask first: whether it answers, its version, its state.

All but `/system/status` need no token, and show nothing of a tenant.
"""

from fastapi import APIRouter, Depends, Request
from fastapi.responses import PlainTextResponse, Response

from api.health import CHECK_TIMEOUT, ReadinessChecks
from api.http.query_parameters import refuse_unknown_parameters
from api.http.replies import json_reply, success
from api.requests.auth import ApiTokenCaller
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_READ
from store.files.blobs import can_be_created

router = APIRouter(tags=["health"], dependencies=[Depends(refuse_unknown_parameters)])
old_router = APIRouter(
    tags=["health"], dependencies=[Depends(refuse_unknown_parameters)]
)  # paths of older probes, below `/v1`

HEALTH_NAMES = {"database": "db", "bus": "redis", "broker": "broker", "migrations": "migrations"}
"""What RAGFlow calls the checks of `/readyz`; the last two are ours alone."""


@router.get("/system/ping")
async def ping() -> Response:
    """Answer `pong`, which proves that the process is alive."""
    return PlainTextResponse("pong")


@router.get("/system/version")
def version(request: Request) -> Response:
    """Return the release."""
    return success(request.app.version)


@router.get("/system/config")
def config() -> Response:
    """Return how people sign in: with tokens, so they can neither register nor use a password."""
    return success({"registerEnabled": 0, "disablePasswordLogin": True})


@router.get("/system/healthz")
@old_router.get("/v1/system/healthz", operation_id="healthz_v1", deprecated=True)
def healthz(request: Request, context: ApiContextDep) -> Response:
    """Check what requests need, like `/readyz`: 200 if all is `ok`, else 500. Documents are searched in `db`."""
    found = _check(request, context)
    is_healthy = set(found.values()) == {"ok"}
    body = {name: "ok" if found[name] == "ok" else "nok" for name in found}
    reasons = {name: {"error": reason} for name, reason in found.items() if reason != "ok"}
    shown = {**body, "doc_engine": body["db"], "status": "ok" if is_healthy else "nok"}
    return json_reply({**shown, "_meta": reasons} if reasons else shown, 200 if is_healthy else 500)


@router.get("/system/status", dependencies=[NEEDS_READ])
def status(request: Request, context: ApiContextDep, principal: ApiTokenCaller) -> Response:
    """Return the state of database, search, file storage and Redis: `green` or `red`."""
    found = _check(request, context)
    colours = {name: "green" if reason == "ok" else "red" for name, reason in found.items()}
    database = {"database": "postgresql", "status": colours["db"]}
    return success(
        {
            "doc_engine": {"type": "postgresql", "status": colours["db"]},
            "database": database,
            "storage": {"status": colours["storage"]},
            "redis": {"status": colours["redis"]},
        }
    )


def _check(request: Request, context: ApiContext) -> dict[str, str]:
    """Return the result of each check by RAGFlow's name: `ok`, or what is wrong."""
    checks: ReadinessChecks = request.app.state.readiness
    found = checks.run(context, CHECK_TIMEOUT)
    is_stored = context.blobs.is_reachable() or can_be_created(context.blobs)
    storage = "ok" if is_stored else "this process cannot reach the file storage"
    return {**{HEALTH_NAMES[name]: reason for name, reason in found.items()}, "storage": storage}
