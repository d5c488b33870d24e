"""The route about the deployment, for administrators: readiness, queues, the sweeper, the release and settings."""

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import Response
from kombu.exceptions import KombuError, OperationalError

from api.health import CHECK_TIMEOUT, ReadinessChecks
from api.http.replies import json_reply
from api.http.reply_styles import OwnRoute
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContext, ApiContextDep
from api.requests.scopes import NEEDS_ADMIN
from api.viewer.reply_models import SystemReply
from api.viewer.state import ViewerStateDep
from canvas.events.explain import MAX_PROBE_AGE
from scheduler.messaging.celery_app import NODES, RUNS
from scheduler.messaging.queue_lengths import read_queue_lengths
from scheduler.views.json_values import iso, milliseconds
from store.monitoring import system_facts
from store.monitoring.system_facts import MAX_COUNTED, SystemFacts

log = structlog.get_logger()
router = APIRouter(tags=["viewer"], route_class=OwnRoute, dependencies=[NEEDS_ADMIN])

_FIELDS = (
    "retention", "model_calls", "model_calls_retention", "form_expiry", "max_running", "max_activations", "max_output",
    "max_body_bytes", "max_canvas_bytes", "lease", "renew_every", "inline_advance", "continue_locally_for", "fast_path",
    "large_values", "llm_max_retries", "allow_any_host", "private_models", "model_proxies", "sandbox", "api_pool",
    "worker_threads", "worker_pool", "scheduler_threads", "open_metrics", "open_schema",
)  # fmt: skip
SHOWN_SETTINGS = {f"EASEL_{name.upper()}": name for name in _FIELDS} | {"EASEL_LLM_TIMEOUT_SECONDS": "llm_timeout"}
"""Variable -> field of the settings with consequences for those who look at runs. None is a secret or an address."""

MAX_SWEEPER_AGE = timedelta(seconds=15)
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@router.get("/viewer/system", response_model=SystemReply)
def get_system(request: Request, context: ApiContextDep, principal: Viewer, state: ViewerStateDep) -> Response:
    """Show whether the deployment works, with a token of kind `admin`. The counts are of all tenants.

    The settings are those of this API process. What cannot be read is null, and `checks` says why.
    """
    readiness: ReadinessChecks = request.app.state.readiness
    checks = readiness.run(context, CHECK_TIMEOUT)
    facts = _load_facts(context) if checks["database"] == "ok" else None
    lengths = _read_lengths(context) if checks["broker"] == "ok" else None
    return json_reply(
        {
            "now": milliseconds(facts.now) if facts is not None else round(time.time() * 1000),
            "release": request.app.version,
            "uptime_s": round(time.monotonic() - state.started),
            "checks": checks,
            "queues": _queues_json(lengths, facts),
            "activations": _counts_json(facts.activations) if facts is not None else None,
            "sweeper": _sweeper_json(facts) if facts is not None else None,
            "settings": [{"name": name, "value": _format_setting(value)} for name, value in state.settings.items()],
            "flower_url": state.flower_url,
        }
    )


def _load_facts(context: ApiContext) -> SystemFacts:
    with context.database.transaction() as tx:
        return system_facts.load_facts(tx)


def _queues_json(lengths: Mapping[str, int] | None, facts: SystemFacts | None) -> list[dict[str, Any]]:
    """Return the queues. Probes go through that of nodes only."""
    returned = facts.probe_returned if facts is not None else None
    is_moving = _is_recent(facts.now, returned, MAX_PROBE_AGE) if facts is not None else None
    nodes = {"probe_at": iso(returned), "is_moving": is_moving}
    return [
        {"name": name, "length": lengths[name] if lengths is not None else None, **probes}
        for name, probes in ((NODES, nodes), (RUNS, {"probe_at": None, "is_moving": None}))
    ]


def _read_lengths(context: ApiContext) -> Mapping[str, int] | None:
    try:
        return read_queue_lengths(context.broker)
    except (OperationalError, KombuError, OSError) as error:
        log.warning("queue_lengths_not_read", error=str(error))
        return None


def _counts_json(counts: Mapping[str, int]) -> dict[str, Any]:
    shown: dict[str, Any] = {name: min(count, MAX_COUNTED) for name, count in counts.items()}
    return {**shown, "is_capped": any(count > MAX_COUNTED for count in counts.values())}


def _sweeper_json(facts: SystemFacts) -> dict[str, Any]:
    seen = facts.sweeper
    return {
        "since": iso(seen.since) if seen is not None else None,
        "seen_at": iso(seen.until) if seen is not None else None,
        "is_running": seen is not None and _is_recent(facts.now, seen.until, MAX_SWEEPER_AGE),
    }


def _is_recent(now: datetime, moment: datetime | None, max_age: timedelta) -> bool:
    return moment is not None and now - moment <= max_age


def _format_setting(value: Any) -> Any:
    """Return a setting's value as it is written in the environment: a duration as `30d`; null if it is not set."""
    if not isinstance(value, timedelta):
        return value
    seconds = value.total_seconds()
    for length, unit in _UNITS:
        if seconds and not seconds % length:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:g}s"
