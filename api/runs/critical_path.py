"""The critical path of a run as its head shows it, cached for runs that are over."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Request

from api.http.recent_replies import RecentReplies
from canvas.graph.canvas import Canvas
from canvas.ids import ActivationId, RunId
from canvas.state.run_state import RunStatus
from scheduler.views import critical_path
from scheduler.views.json_values import milliseconds
from store.db.transaction import Transaction
from store.runs import step_times
from store.runs.run_queries import RunSummary
from store.runs.step_times import MAX_STEPS

MAX_SHOWN = 2_000  # steps of the path
MAX_ATTEMPTS = 20_000  # earlier attempts of its steps
MAX_AGE = 3_600.0  # seconds
MAX_CACHED = 64  # replies, of at most 80 kB each

Cache = RecentReplies[dict[str, Any]]


def new_cache() -> Cache:
    """Return a cache of the paths of runs that are over, for one process."""
    return Cache(MAX_AGE, MAX_CACHED)


async def get_cache(request: Request) -> Cache:
    """Return the cache of the process. It is async because FastAPI calls other functions in a thread."""
    cache: Cache = request.app.state.critical_paths
    return cache


CacheDep = Annotated[Cache, Depends(get_cache)]


def critical_json(
    tx: Transaction, cache: Cache, run: RunSummary, canvas: Canvas, *, now: int, revision: int, total: int
) -> dict[str, Any]:
    """Return the critical path of a run with `total` activations, or why it is not computed (`unavailable`).

    Parts are milliseconds by kind. `steps` has the last MAX_SHOWN steps of `steps_total`.
    """
    if total > MAX_STEPS:
        reason = f"The run has {total:,} activations. A critical path is computed of {MAX_STEPS:,} at most."
        return {"ms": None, "parts": None, "steps": None, "steps_total": None, "unavailable": reason}
    if not RunStatus(run.status).is_over:
        return _compute(tx, run, canvas, now)
    return cache.get((run.id, revision), lambda: _compute(tx, run, canvas, now))


def _compute(tx: Transaction, run: RunSummary, canvas: Canvas, now: int) -> dict[str, Any]:
    rows = step_times.load_steps(tx, run.id) or []
    chain = critical_path.find_chain(canvas, rows, now)
    path = critical_path.measure(
        chain,
        _attempts(tx, run.id, chain),
        step_times.load_waits(tx, run.id, [ActivationId(UUID(hex=step.id)) for step in chain]),
        now=now,
        ended_at=milliseconds(run.finished_at),
    )
    return {
        "ms": path.ms,
        "parts": path.parts,
        "steps": path.steps[-MAX_SHOWN:],
        "steps_total": len(path.steps),
        "unavailable": None,
    }


def _attempts(tx: Transaction, run_id: RunId, chain: critical_path.Chain) -> list[step_times.AttemptTimes]:
    """Return the earlier attempts of steps; nothing is asked about steps that have none."""
    ids = [ActivationId(UUID(hex=step.id)) for step in chain if step_times.may_have_attempts(step.status, step.attempt)]
    return step_times.load_attempts(tx, run_id, ids, MAX_ATTEMPTS)
