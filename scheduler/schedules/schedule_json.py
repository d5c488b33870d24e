"""Schedules and what came of their slots, as the HTTP API and the commands show them."""

from typing import Any

from scheduler.views.json_values import iso
from store.agents.schedules import Fire, Schedule


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as JSON, without its next slots."""
    return {
        "id": schedule.id.hex,
        "agent_id": schedule.canvas_id.hex,
        "name": schedule.name,
        "spec": dict(schedule.spec),
        "start": dict(schedule.start),
        "session": schedule.session,
        "overlap": schedule.overlap,
        "catch_up": {
            "window_seconds": int(schedule.catch_up_window.total_seconds()),
            "at_most": schedule.catch_up_at_most,
        },
        "end_at": iso(schedule.end_at),
        "max_runs": schedule.max_runs,
        "status": status_of(schedule),
        "paused": schedule.paused,
        "paused_reason": schedule.paused_reason,
        "next_at": iso(schedule.next_at),
        "last_at": iso(schedule.last_at),
        "last_run_id": schedule.last_run.hex if schedule.last_run is not None else None,
        "runs": schedule.started,
        "refusals": schedule.refusals,
        "session_id": schedule.conversation_id.hex if schedule.conversation_id is not None else None,
        "created_by": schedule.token_id.hex if schedule.token_id is not None else None,
        "created_at": iso(schedule.created_at),
        "updated_at": iso(schedule.updated_at),
    }


def status_of(schedule: Schedule) -> str:
    """Return `active`, `waiting` (for the previous run), `paused` or `ended`."""
    if schedule.paused:
        return "paused"
    if schedule.has_ended:
        return "ended"
    return "waiting" if schedule.waiting_since is not None else "active"


def fire_json(fire: Fire) -> dict[str, Any]:
    """Return what came of a slot as JSON."""
    return {
        "slot": iso(fire.slot),
        "outcome": fire.outcome,
        "run_id": fire.run_id.hex if fire.run_id is not None else None,
        "reason": fire.reason,
        "slots": fire.slots,
        "by_hand": fire.by_hand,
        "at": iso(fire.created_at),
    }
