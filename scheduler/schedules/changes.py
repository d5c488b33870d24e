"""Changes of schedules by their owners: create, change, pause, resume. Each is called in a transaction of its own.

The fields are those of the HTTP API; `null` counts as absent:

    name        text
    spec        scheduler/schedules/slots.py
    start       options of the runs, as `scheduler.start` takes them
    session     new: a session for each run; same: one session for all of them
    overlap     what happens to a slot while a run of the schedule is open: skip, enqueue, cancel_previous, allow
    catch_up    {window_seconds, at_most}
    end_at      no slot is later; "" for no end
    max_runs    how many slots are fired; 0 for no limit
    paused      true or false
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from canvas.errors import InvalidRequest
from canvas.ids import CanvasId, TenantId
from scheduler.coordinator.version_cache import VersionCache
from scheduler.lifecycle import start_options
from scheduler.schedules.planning import CatchUp, first_slot
from scheduler.schedules.slots import Cron, Interval, Spec, parse_moment, parse_spec
from store.agents import canvases, schedules
from store.agents.schedules import Schedule
from store.db.transaction import Transaction
from store.primitives.ids import new_id

NEW, SAME = "new", "same"
SESSIONS = (NEW, SAME)
SKIP, ENQUEUE, CANCEL_PREVIOUS, ALLOW = "skip", "enqueue", "cancel_previous", "allow"
OVERLAPS = (SKIP, ENQUEUE, CANCEL_PREVIOUS, ALLOW)

MAX_NAME = 255  # characters
MAX_WINDOW = timedelta(days=7)
MAX_AT_MOST = 100
MAX_RUNS = 1_000_000_000
DEFAULT_CATCH_UP = CatchUp(timedelta(hours=1), 1)

PAUSED_BY_USER = "It was paused."

_NOT_OPTIONS = {
    "session_id": "`session` of the schedule says whether its runs share a session.",
    "on_busy": "`overlap` of the schedule says what happens while a run is open.",
    "idempotency_key": "Each slot starts one run anyway.",
}
"""Options of a start that a schedule does not take, with what it has in their place."""


def create(
    tx: Transaction,
    tenant_id: TenantId,
    canvas_id: CanvasId,
    fields: Mapping[str, Any],
    *,
    now: datetime,
    token_id: UUID | None = None,
) -> Schedule:
    """Store a new schedule of an agent, and return it. Raises InvalidRequest, which names the field, and NotFound."""
    canvases.get(tx, tenant_id, canvas_id)
    spec = parse_spec(_object(fields, "spec") or {})
    catch_up = _catch_up(fields, DEFAULT_CATCH_UP)
    end_at = _end_at(fields, None)
    paused = bool(fields.get("paused"))
    following = first_slot(spec, now, end_at=end_at)
    if following is None:
        raise _no_slot_left(spec, end_at)
    values = {
        "canvas_id": canvas_id,
        "name": _name(fields, describe_spec(spec)),
        "spec": spec.to_json(),
        "start": _start(tx, tenant_id, canvas_id, _object(fields, "start") or {}),
        "session": _choice(fields, "session", SESSIONS, NEW),
        "overlap": _choice(fields, "overlap", OVERLAPS, SKIP),
        "catch_up_window": catch_up.window,
        "catch_up_at_most": catch_up.at_most,
        "end_at": end_at,
        "max_runs": _max_runs(fields, None),
        "paused": paused,
        "paused_reason": PAUSED_BY_USER if paused else "",
        "next_at": None if paused else following,
        "due_at": None if paused else following,
        "token_id": token_id,
    }
    return schedules.create(tx, tenant_id, new_id(), values)


def change(
    tx: Transaction, tenant_id: TenantId, schedule_id: UUID, fields: Mapping[str, Any], *, now: datetime
) -> Schedule:
    """Change the fields that are given, and return the schedule. Slots that have passed are not fired anew.

    Raises InvalidRequest, which names the field, and NotFound.
    """
    before = schedules.lock(tx, tenant_id, schedule_id)
    written = _object(fields, "spec")
    spec = parse_spec(written if written is not None else before.spec)
    catch_up = _catch_up(fields, CatchUp(before.catch_up_window, before.catch_up_at_most))
    start = _object(fields, "start")
    end_at = _end_at(fields, before.end_at)
    paused = fields.get("paused")
    after = replace(
        before,
        name=_name(fields, before.name),
        spec=spec.to_json(),
        start=_start(tx, tenant_id, before.canvas_id, start) if start is not None else before.start,
        session=_choice(fields, "session", SESSIONS, before.session),
        overlap=_choice(fields, "overlap", OVERLAPS, before.overlap),
        catch_up_window=catch_up.window,
        catch_up_at_most=catch_up.at_most,
        end_at=end_at,
        max_runs=_max_runs(fields, before.max_runs),
        updated_at=now,
    )
    if paused is not None and bool(paused) != before.paused:
        after = _with_pause(after, PAUSED_BY_USER if paused else None)
    has_other_slots = after.spec != before.spec or after.end_at != before.end_at
    if has_other_slots and first_slot(spec, now, end_at=end_at) is None:
        raise _no_slot_left(spec, end_at)
    is_resumed = before.paused and not after.paused
    if has_other_slots or is_resumed or after.paused != before.paused or after.max_runs != before.max_runs:
        after = with_next_slot(after, spec, now)
    elif after.overlap != before.overlap:
        after = replace(after, due_at=after.next_at, waiting_since=None)  # it need not wait any more
    schedules.save(tx, after)
    return after


def pause(tx: Transaction, tenant_id: TenantId, schedule_id: UUID, reason: str, *, now: datetime) -> Schedule:
    """Pause a schedule: no slot is fired until it is resumed. Raises NotFound."""
    before = schedules.lock(tx, tenant_id, schedule_id)
    after = replace(_with_pause(before, reason or PAUSED_BY_USER), updated_at=now)
    schedules.save(tx, after)
    return after


def resume(tx: Transaction, tenant_id: TenantId, schedule_id: UUID, *, now: datetime) -> Schedule:
    """Resume a schedule at its next slot; slots of the pause are not caught up. Raises NotFound."""
    before = schedules.lock(tx, tenant_id, schedule_id)
    if not before.paused:
        return before
    after = with_next_slot(replace(_with_pause(before, None), updated_at=now), parse_spec(before.spec), now)
    schedules.save(tx, after)
    return after


def with_next_slot(schedule: Schedule, spec: Spec, now: datetime) -> Schedule:
    """Return a schedule that is due at its next slot after now; one that is paused or over is not due."""
    is_over = schedule.max_runs is not None and schedule.started >= schedule.max_runs
    following = first_slot(spec, now, last=schedule.last_at, end_at=schedule.end_at)
    due = None if schedule.paused or is_over else following
    return replace(schedule, next_at=due, due_at=due, waiting_since=None)


def describe_spec(spec: Spec) -> str:
    """Return a specification for people, in few words."""
    match spec:
        case Cron(expression, zone):
            return f"{expression} {zone}"
        case Interval(every, offset):
            return f"every {every} s" + (f" from {offset} s" if offset else "")
        case _:
            return f"once at {spec.at.isoformat()}"


def _with_pause(schedule: Schedule, reason: str | None) -> Schedule:
    """Return a schedule that is paused for a reason, or with None one that is not; the latter has no next slot yet."""
    if reason is None:
        return replace(schedule, paused=False, paused_reason="", refusals=0)
    return replace(schedule, paused=True, paused_reason=reason[:1000], next_at=None, due_at=None, waiting_since=None)


def _start(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the runs, after the checks that a start makes. Raises InvalidRequest and NotFound."""
    for name, instead in _NOT_OPTIONS.items():
        if options.get(name) is not None:
            raise InvalidRequest(f"`start.{name}` is not an option of a schedule. {instead}", field=f"start.{name}")
    given = {name: value for name, value in options.items() if value is not None}
    try:
        start_options.check_options(given)
        start = start_options.parse_start(tx, tenant_id, None, canvas_id, given)
    except InvalidRequest as error:
        raise InvalidRequest(f"`start`: {error.message}", **{"field": "start", **error.details}) from error
    fields = VersionCache(1).get_or_empty(tx, start.version_id).canvas.password_fields
    for name in (given.get("inputs") or {}).keys() & set().union(*fields.values()):
        raise InvalidRequest(
            f"`start.inputs.{name}` is a password, which a schedule would keep and show. Put it into the canvas, whose "
            "secrets are encrypted.",
            field=f"start.inputs.{name}",
        )
    return given


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidRequest(f"`{name}` must be an object.", field=name)
    return value


def _name(fields: Mapping[str, Any], default: str) -> str:
    name = fields.get("name")
    if name is None:
        return default
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME:
        raise InvalidRequest(f"`name` must be a text of 1 to {MAX_NAME} characters.", field="name")
    return name.strip()


def _choice(fields: Mapping[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    value = fields.get(name)
    if value is None:
        return default
    if value not in choices:
        raise InvalidRequest(f"`{name}` is {str(value)[:64]!r}. Use one of: {', '.join(choices)}.", field=name)
    return value


def _catch_up(fields: Mapping[str, Any], default: CatchUp) -> CatchUp:
    written = _object(fields, "catch_up") or {}
    for name in written.keys() - {"window_seconds", "at_most"}:
        raise InvalidRequest(
            f"`catch_up.{name[:64]}` is not a field. Its fields are: window_seconds, at_most.",
            field=f"catch_up.{name[:64]}",
        )
    most = int(MAX_WINDOW.total_seconds())
    window = _whole(written, "catch_up.window_seconds", 0, most)
    at_most = _whole(written, "catch_up.at_most", 1, MAX_AT_MOST)
    return CatchUp(
        timedelta(seconds=window) if window is not None else default.window,
        at_most if at_most is not None else default.at_most,
    )


def _end_at(fields: Mapping[str, Any], default: datetime | None) -> datetime | None:
    written = fields.get("end_at")
    if written is None:
        return default
    return parse_moment(written, "end_at") if written != "" else None


def _max_runs(fields: Mapping[str, Any], default: int | None) -> int | None:
    most = _whole(fields, "max_runs", 0, MAX_RUNS)
    return default if most is None else most or None


def _whole(values: Mapping[str, Any], field: str, least: int, most: int) -> int | None:
    value = values.get(field.rpartition(".")[2])
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequest(f"`{field}` must be a whole number from {least} to {most}.", field=field)
    return value


def _no_slot_left(spec: Spec, end_at: datetime | None) -> InvalidRequest:
    if end_at is None:
        return InvalidRequest("`spec.at` has passed. Send a later time.", field="spec.at")
    return InvalidRequest(
        f"No slot of {describe_spec(spec)} is left until `end_at`. Send a later `end_at`.", field="end_at"
    )
