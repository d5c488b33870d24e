"""Routes of schedules: create, list, change, pause, resume, trigger, delete, and what came of their slots."""

from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import Field

from api.http.query_values import parse_number, parse_position, parse_time
from api.http.replies import json_reply, parse_canvas_id, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import Body
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.idempotency import OnceByViewer
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ, NEEDS_RUN
from api.schedules.reply_models import (
    FireListReply,
    PreviewReply,
    ScheduleListReply,
    ScheduleReply,
    TriggerReply,
)
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import CanvasId
from scheduler.lifecycle.accept import Started
from scheduler.schedules import changes, slots
from scheduler.schedules.firing import Firing
from scheduler.schedules.schedule_json import fire_json, schedule_json
from scheduler.views.json_values import iso
from store.agents import schedules
from store.monitoring import server_info
from store.primitives.ids import NO_ID

router = APIRouter(prefix="/schedules", tags=["schedules"], dependencies=[NEEDS_EDIT], route_class=OwnRoute)

MAX_LIMIT = 100
SHOWN_SLOTS = 5

SPEC = (
    "{cron, time_zone}: five fields in an IANA time zone (UTC by default); {every_seconds, offset}: counted from "
    "1970-01-01T00:00:00Z; or {at}: once"
)
START = "query, inputs, files, user_id, name, version, release, budget and chat_template_kwargs of the runs"
CATCH_UP = (
    "{window_seconds, at_most}: slots that are late by more than 10 s are fired if they are not older than the window "
    "(3600 by default, 604800 at most) and among the last `at_most` (1 by default, 100 at most) of them"
)


class ScheduleFields(Body):
    """The fields of a schedule; a change has those that change."""

    name: str | None = Field(default=None, description="By default the specification, in words")
    spec: dict[str, Any] | None = Field(default=None, description=SPEC)
    start: dict[str, Any] | None = Field(default=None, description=START)
    session: str | None = Field(default=None, description="new (default): a session for each run; same: one for all")
    overlap: str | None = Field(
        default=None,
        description="What a slot does while a run of the schedule is open: skip (default), enqueue, cancel_previous, "
        "allow",
    )
    catch_up: dict[str, Any] | None = Field(default=None, description=CATCH_UP)
    end_at: str | None = Field(default=None, description='ISO 8601 with offset: no slot is later; "" for no end')
    max_runs: int | None = Field(default=None, description="How many runs slots start; 0 for no limit")
    paused: bool | None = None


class NewScheduleBody(ScheduleFields):
    """A new schedule of an agent."""

    agent_id: str | None = Field(default=None, description="Required")


class PauseBody(Body):
    """Why a schedule is paused."""

    reason: str = Field(default="", max_length=1000)


class TriggerBody(Body):
    """How a run is started by hand."""

    overlap: str | None = Field(default=None, description="The policy of this run instead of the schedule's")


class PreviewBody(Body):
    """A specification whose slots are asked for."""

    spec: dict[str, Any] | None = Field(default=None, description=SPEC)
    after: str | None = Field(default=None, description="ISO 8601 with offset; by default now")
    number: int = Field(default=SHOWN_SLOTS, ge=1, le=MAX_LIMIT)


@router.post("", status_code=201, response_model=ScheduleReply, openapi_extra=body_openapi(NewScheduleBody))
def create_schedule(context: ApiContextDep, principal: Viewer, body: SmallBody, once: OnceByViewer) -> Response:
    """Create a schedule of an agent: 201 with the schedule and its next slots."""
    fields = parse_body(NewScheduleBody, body).model_dump(exclude_none=True)
    agent_id = _agent_id(fields.pop("agent_id", ""))
    with once.transaction(context.database) as tx:
        now = server_info.read_clock(tx)
        made = changes.create(tx, principal.tenant_id, agent_id, fields, now=now, token_id=principal.token_id)
        reply = once.store_reply(tx, json_reply(_whole(made, now), 201))
    context.lifecycle.coordinator.dispatch.bus.publish_schedule_change()
    return reply


@router.get("", response_model=ScheduleListReply, dependencies=[NEEDS_READ])
def list_schedules(
    context: ApiContextDep, principal: Viewer, agent_id: str = "", after: str = "", limit: str = "50"
) -> Response:
    """List the schedules of the tenant, or of one agent, the oldest first."""
    most = parse_number("limit", limit, MAX_LIMIT)
    chosen = _agent_id(agent_id) if agent_id else None
    first = parse_position("after", after) or NO_ID
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        found = schedules.list_schedules(tx, principal.tenant_id, canvas_id=chosen, after=first, most=most + 1)
    shown = [schedule_json(each) for each in found[:most]]
    next_page = shown[-1]["id"] if len(found) > most else None
    return json_reply({"now": iso(now), "schedules": shown, "next": next_page})


@router.post("/preview", response_model=PreviewReply, openapi_extra=body_openapi(PreviewBody), dependencies=[NEEDS_RUN])
def preview_slots(context: ApiContextDep, principal: Viewer, body: SmallBody) -> Response:
    """Return the next slots of a specification, without storing anything."""
    fields = parse_body(PreviewBody, body)
    spec = slots.parse_spec(fields.spec or {})
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
    first = slots.parse_moment(fields.after, "after") if fields.after is not None else now
    zone = slots.load_zone(spec.time_zone if isinstance(spec, slots.Cron) else "UTC")
    found = slots.next_slots(spec, first, fields.number)
    rows = [{"at": iso(slot), "local": slot.astimezone(zone).isoformat()} for slot in found]
    return json_reply({"now": iso(now), "slots": rows})


@router.get("/{schedule_id}", response_model=ScheduleReply, dependencies=[NEEDS_READ])
def get_schedule(context: ApiContextDep, principal: Viewer, schedule_id: str) -> Response:
    """Return a schedule with its next five slots."""
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        found = schedules.get(tx, principal.tenant_id, _schedule_id(schedule_id))
    return json_reply(_whole(found, now))


@router.patch("/{schedule_id}", response_model=ScheduleReply, openapi_extra=body_openapi(ScheduleFields))
def change_schedule(context: ApiContextDep, principal: Viewer, schedule_id: str, body: SmallBody) -> Response:
    """Change the fields that are sent. `start` and `spec` are replaced as a whole."""
    fields = parse_body(ScheduleFields, body).model_dump(exclude_none=True)
    chosen = _schedule_id(schedule_id)
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        after = changes.change(tx, principal.tenant_id, chosen, fields, now=now)
    context.lifecycle.coordinator.dispatch.bus.publish_schedule_change()
    return json_reply(_whole(after, now))


@router.delete("/{schedule_id}", status_code=204)
def delete_schedule(context: ApiContextDep, principal: Viewer, schedule_id: str) -> Response:
    """Delete a schedule. Its runs stay."""
    with context.database.transaction() as tx:
        schedules.delete_schedule(tx, principal.tenant_id, _schedule_id(schedule_id))
    return Response(status_code=204)


@router.post("/{schedule_id}/pause", response_model=ScheduleReply, openapi_extra=body_openapi(PauseBody))
def pause_schedule(context: ApiContextDep, principal: Viewer, schedule_id: str, body: SmallBody) -> Response:
    """Pause a schedule: no slot is fired until it is resumed."""
    fields = parse_body(PauseBody, body)
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        after = changes.pause(tx, principal.tenant_id, _schedule_id(schedule_id), fields.reason, now=now)
    return json_reply(_whole(after, now))


@router.post("/{schedule_id}/resume", response_model=ScheduleReply)
def resume_schedule(context: ApiContextDep, principal: Viewer, schedule_id: str) -> Response:
    """Resume a schedule at its next slot. Slots of the pause are not caught up."""
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        after = changes.resume(tx, principal.tenant_id, _schedule_id(schedule_id), now=now)
    context.lifecycle.coordinator.dispatch.bus.publish_schedule_change()
    return json_reply(_whole(after, now))


@router.post(
    "/{schedule_id}/trigger", status_code=202, response_model=TriggerReply, openapi_extra=body_openapi(TriggerBody)
)
def trigger_schedule(
    context: ApiContextDep, principal: Viewer, schedule_id: str, body: SmallBody, once: OnceByViewer
) -> Response:
    """Start a run of a schedule now, also of a paused one: 202 with the run. Its slots stay as they are.

    409 while a run is open that `overlap` does not allow to overlap.
    """
    fields = parse_body(TriggerBody, body)
    if fields.overlap is not None and fields.overlap not in changes.OVERLAPS:
        message = f"`overlap` is {fields.overlap[:64]!r}. Use one of: {', '.join(changes.OVERLAPS)}."
        raise InvalidRequest(message, field="overlap")
    once.check_repeat(context.database)
    started, now = Firing(context.lifecycle).trigger(
        principal.tenant_id,
        _schedule_id(schedule_id),
        fields.overlap,
        open_transaction=lambda: once.transaction(context.database),
        before_commit=lambda tx, started, now: once.store_reply(tx, _trigger_reply(started, now)),
    )
    return _trigger_reply(started, now)


@router.get("/{schedule_id}/fires", response_model=FireListReply, dependencies=[NEEDS_READ])
def list_fires(
    context: ApiContextDep, principal: Viewer, schedule_id: str, before: str = "", limit: str = "50"
) -> Response:
    """List what came of the slots of a schedule, the latest first: the last 100, and those of open runs."""
    most = parse_number("limit", limit, MAX_LIMIT)
    until = parse_time("before", before) if before else None
    chosen = _schedule_id(schedule_id)
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        schedules.get(tx, principal.tenant_id, chosen)
        found = schedules.list_fires(tx, principal.tenant_id, chosen, before=until, most=most + 1)
    shown = [fire_json(each) for each in found[:most]]
    next_page = found[most - 1].slot.isoformat() if len(found) > most else None
    return json_reply({"now": iso(now), "fires": shown, "next": next_page})


def _trigger_reply(started: Started, now: datetime) -> Response:
    shown = {
        "run_id": started.run_id.hex,
        "session_id": started.conversation_id.hex,
        "slot": iso(now),
        "queued": started.queued,
    }
    return json_reply(shown, 202)


def _whole(schedule: schedules.Schedule, now: datetime) -> dict[str, Any]:
    """Return a schedule with its next slots."""
    spec = slots.parse_spec(schedule.spec)
    number = SHOWN_SLOTS
    if schedule.max_runs is not None:
        number = max(0, min(number, schedule.max_runs - schedule.started))
    found: list[datetime] = []
    if schedule.next_at is not None and number:
        later = slots.next_slots(spec, schedule.next_at, number - 1, until=schedule.end_at)
        found = [schedule.next_at, *later]
    return {**schedule_json(schedule), "now": iso(now), "next_slots": [iso(slot) for slot in found]}


def _schedule_id(written: str) -> UUID:
    parsed = parse_id(written)
    if parsed is None:
        raise NotFound(f"There is no schedule {written[:64]}.", schedule_id=written[:64])
    return parsed


def _agent_id(written: str) -> CanvasId:
    """Return the id of an agent. Raises InvalidRequest for a missing one, NotFound for a text that is not an id."""
    if not written:
        raise InvalidRequest(
            "`agent_id` is missing. Send the id of the agent whose runs are started.", field="agent_id"
        )
    parsed = parse_canvas_id(written)
    if parsed is None:
        raise NotFound("canvas not found.")
    return parsed
