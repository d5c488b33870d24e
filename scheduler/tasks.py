"""The scheduler's Celery app: `celery -A scheduler.tasks worker -Q runs -P threads`."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import settings
import telemetry
from scheduler.broker import ADVANCE, START, make_app
from scheduler.coordinator import Coordinator
from scheduler.counting import Counters
from scheduler.lifecycle import Lifecycle
from scheduler.process import coordinator_of
from scheduler.requests import start_of

_settings = settings.load()
telemetry.configure(_settings.log_level, _settings.log_format)
_database_url, _redis_url, _broker_url = _settings.servers()

app = make_app(_broker_url, publishers=_settings.scheduler_threads)
_coordinator: Coordinator | None = None


def coordinator() -> Coordinator:
    """This process's coordinator, put together at its first task (so after any fork)."""
    global _coordinator
    if _coordinator is None:
        _coordinator = coordinator_of(
            app,
            _database_url,
            _redis_url,
            pool_size=_settings.scheduler_threads,
            application="easel-scheduler",
            form_expiry=_settings.form_expiry,
            max_running=_settings.max_running,
            counters=Counters(**telemetry.counting()),
        )
        if _settings.metrics_port is not None:
            telemetry.serve_counters(_settings.metrics_port)
    return _coordinator


@app.task(name=ADVANCE, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def advance(run_id: str) -> None:
    """Carry a run to its next checkpoint."""
    coordinator().advance_run(UUID(run_id))


@app.task(name=START, ignore_result=True)  # pyright: ignore[reportUntypedFunctionDecorator] (Celery is untyped)
def start(tenant_id: str, run_id: str, agent_id: str, **options: Any) -> None:
    """Start a run for another service, which has chosen its id (decisions.md 22). Sending it twice starts one run.

    Options are those of the HTTP trigger: query, inputs, files, user_id, session_id, version, release, on_busy,
    idempotency_key.
    """
    mine = coordinator()
    known: Mapping[str, Any] = options
    with mine.database.transaction() as tx:
        chosen = start_of(tx, UUID(tenant_id), UUID(run_id), UUID(agent_id), known)
    Lifecycle(mine).start_run(chosen)
