"""Read the present turn of a run from its rows, as one object, for clients that poll or come later."""

import re
from dataclasses import dataclass, field

from api.requests.dependencies import ApiContext, run_in_thread
from api.runs.turn import TurnResult
from canvas.events.stream_sequencer import Position, markers_to_tags
from canvas.ids import RunId, TenantId
from canvas.state.run_state import RunStatus
from scheduler.lifecycle.accept import Started
from scheduler.views import run_view
from store.runs import run_rows
from store.runs.run_queries import PAGE_SIZE, RunSummary

_TAGS = re.compile(r"(</?think>)")


@dataclass(frozen=True, slots=True)
class LoadedTurn:
    """A run, and its present turn as far as it has come."""

    run: RunSummary
    turn_result: TurnResult = field(repr=False)


async def load_turn(context: ApiContext, tenant_id: TenantId, run: RunSummary) -> LoadedTurn:
    """Return the present turn of a run; if its events have been deleted, with the text of the run. Raises NotFound."""
    turn_result = TurnResult()
    after = Position(before_turn(run))
    while True:
        run, wired, after = await context.streams.read(tenant_id, run.id, after)
        for each in wired:
            turn_result.add(each)
        if len(wired) < PAGE_SIZE:
            break
    if not turn_result.texts and RunStatus(run.status).is_over:
        text = await run_in_thread(lambda: _read_text(context, tenant_id, run.id))
        if text:
            turn_result.texts["0"] = [(0, part) for part in _TAGS.split(text)]
    return LoadedTurn(run, turn_result)


def before_turn(run: RunSummary) -> int:
    """Return the number of the last event before the present turn."""
    return max(run.first_event - 1, 0)


def as_started(run: RunSummary) -> Started:
    """Return a run as one whose present turn was accepted just now, to follow it from the first event."""
    queued = run.status == RunStatus.QUEUED
    return Started(run.id, run.conversation_id, run.message_id, before_turn(run), queued=queued)


def _read_text(context: ApiContext, tenant_id: TenantId, run_id: RunId) -> str:
    with context.database.transaction() as tx:
        row = run_rows.read(tx, tenant_id, run_id)
        return markers_to_tags(run_view.answer_text(tx, row)) if row is not None else ""
