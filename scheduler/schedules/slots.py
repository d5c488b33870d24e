"""Slots: the moments at which a schedule is due, from its specification.

A specification is one of three objects:

    {"cron": "30 7 * * mon-fri", "time_zone": "Europe/Berlin"}   five fields, or @daily and the like
    {"every_seconds": 900, "offset": 0}                          counted from 1970-01-01T00:00:00Z
    {"at": "2027-01-01T09:00:00+01:00"}                          once

Where clocks change, an expression that names hours follows the wall clock: a slot in the hour that is skipped is due at
the moment after the gap, together with others of that gap as one slot; a slot in the hour that is repeated is due once,
the first time. An expression for every hour (`*` in the field of hours) follows elapsed time: it is due each hour.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from itertools import count, islice
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from canvas.errors import InvalidRequest

MAX_EXPRESSION = 200  # characters of a cron expression
MAX_EVERY = 366 * 24 * 3600  # seconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SHORTHANDS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, or L for the last"),
    ("month", "1 to 12, or jan to dec"),
    ("day of the week", "0 to 7 (0 and 7 are Sunday), or sun to sat"),
)
"""The fields of a cron expression, with their values."""


@dataclass(frozen=True, slots=True)
class Cron:
    """Slots by a cron expression of five fields, in a time zone."""

    expression: str
    time_zone: str

    def to_json(self) -> dict[str, Any]:
        """Return the specification as it is stored."""
        return {"cron": self.expression, "time_zone": self.time_zone}


@dataclass(frozen=True, slots=True)
class Interval:
    """Slots every so many seconds since the epoch, moved by an offset in seconds."""

    every: int
    offset: int

    def to_json(self) -> dict[str, Any]:
        """Return the specification as it is stored."""
        return {"every_seconds": self.every, "offset": self.offset}


@dataclass(frozen=True, slots=True)
class Once:
    """One slot."""

    at: datetime

    def to_json(self) -> dict[str, Any]:
        """Return the specification as it is stored."""
        return {"at": self.at.isoformat()}


Spec: TypeAlias = Cron | Interval | Once


def parse_spec(written: Mapping[str, Any]) -> Spec:
    """Return a parsed specification. Raises InvalidRequest, which names the field and the remedy."""
    kinds = [name for name in ("cron", "every_seconds", "at") if written.get(name) is not None]
    if len(kinds) != 1:
        found = " and ".join(kinds) or "none of them"
        raise InvalidRequest(
            f"`spec` has {found}. Send one of `cron` (with `time_zone`), `every_seconds` (with `offset`) or `at`.",
            field="spec",
        )
    (kind,) = kinds
    allowed = {"cron": {"cron", "time_zone"}, "every_seconds": {"every_seconds", "offset"}, "at": {"at"}}[kind]
    for name, value in written.items():
        if value is not None and name not in allowed:
            raise InvalidRequest(
                f"`spec.{name[:64]}` does not go with `{kind}`. Its fields are: {', '.join(sorted(allowed))}.",
                field=f"spec.{name[:64]}",
            )
    if kind == "cron":
        return _parse_cron(written["cron"], written.get("time_zone"))
    if kind == "every_seconds":
        return _parse_interval(written["every_seconds"], written.get("offset"))
    return Once(parse_moment(written["at"], "spec.at"))


def next_slot(spec: Spec, after: datetime) -> datetime | None:
    """Return the first slot after a moment, in UTC; None if there is none."""
    return next(slots_after(spec, after), None)


def next_slots(spec: Spec, after: datetime, number: int, until: datetime | None = None) -> list[datetime]:
    """Return the first slots after a moment, up to `until` (included)."""
    return [slot for slot in islice(slots_after(spec, after), number) if until is None or slot <= until]


def slots_after(spec: Spec, after: datetime) -> Iterator[datetime]:
    """Yield the slots after a moment, in order and in UTC, up to the last year that there is (9999)."""
    with suppress(OverflowError, ValueError):
        yield from _slots_after(spec, after)


def _slots_after(spec: Spec, after: datetime) -> Iterator[datetime]:
    match spec:
        case Cron():
            yield from _cron_slots(spec, after)
        case Interval(every, offset):
            step, origin = timedelta(seconds=every), EPOCH + timedelta(seconds=offset)
            for number in count((after - origin) // step + 1):
                yield origin + number * step
        case Once(at):
            if at > after:
                yield at


# -- cron -------------------------------------------------------------------------------------------------------------
def _cron_slots(spec: Cron, after: datetime) -> Iterator[datetime]:
    zone = load_zone(spec.time_zone)
    expression = _normalise(spec.expression)
    local = after.astimezone(zone)
    if expression.split()[1] == "*":  # each hour, as time passes
        for moment in CronSim(expression, local):
            yield moment.astimezone(UTC)
        return
    last = after
    for wall in CronSim(expression, local.replace(tzinfo=None)):
        moment = moment_of(wall, zone)
        if moment > last:  # else it is of a gap that has a slot, or the first time of an hour that is repeated now
            last = moment
            yield moment


def moment_of(wall: datetime, zone: tzinfo) -> datetime:
    """Return when clocks of a zone show a time, in UTC: the first time if they show it twice.

    For a time that they skip, return the moment after the gap.
    """
    first = wall.replace(tzinfo=zone, fold=0)
    moment = first.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    after, before = moment, wall.replace(tzinfo=zone, fold=1).astimezone(UTC)  # the clock is set between the two
    offset = after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0)
        if middle <= before:
            break
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after


@lru_cache(maxsize=1000)
def load_zone(name: str) -> tzinfo:
    """Return the time zone of an IANA name. Raises InvalidRequest for an unknown name."""
    if name.upper() == "UTC":
        return timezone.utc  # noqa: UP017 (what CronSim compares with)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # not found; not a name; a folder
        near = get_close_matches(name, available_timezones(), 1)
        meant = f" Did you mean {near[0]}?" if near else ""
        message = f"`spec.time_zone` {name[:64]!r} is not a time zone.{meant} Use an IANA name such as Europe/Berlin."
        raise InvalidRequest(message, field="spec.time_zone") from None


def _parse_cron(written: Any, time_zone: Any) -> Cron:
    if not isinstance(written, str) or len(written) > MAX_EXPRESSION:
        raise InvalidRequest(
            f"`spec.cron` must be a text of {MAX_EXPRESSION} characters at most, such as 30 7 * * mon-fri.",
            field="spec.cron",
        )
    if time_zone is not None and not isinstance(time_zone, str):
        raise InvalidRequest("`spec.time_zone` must be a text, such as Europe/Berlin.", field="spec.time_zone")
    expression = " ".join(written.split())
    if expression.startswith("@") and expression.lower() not in SHORTHANDS:
        raise InvalidRequest(
            f"`spec.cron` {expression[:64]!r} is not known. Use one of: {', '.join(SHORTHANDS)}.", field="spec.cron"
        )
    _check_fields(_normalise(expression))
    zone = time_zone or "UTC"
    load_zone(zone)
    return Cron(expression, zone)


def _normalise(expression: str) -> str:
    """Return an expression as CronSim reads it: without shorthands, and with Sunday as 7 where a range ends with it."""
    return re.sub(r"-sun\b", "-7", SHORTHANDS.get(expression.lower(), expression), flags=re.IGNORECASE)


def _check_fields(expression: str) -> None:
    """Raise InvalidRequest, which names the wrong field, for an expression that is not valid or has no slot."""
    parts = expression.split()
    if len(parts) != len(FIELDS):
        raise InvalidRequest(
            f"`spec.cron` has {len(parts)} fields. Write five: {', '.join(name for name, _ in FIELDS)}. For less than "
            "a minute use `every_seconds`.",
            field="spec.cron",
        )
    for number, (part, (name, values)) in enumerate(zip(parts, FIELDS, strict=True)):
        alone = " ".join(part if position == number else "*" for position in range(len(FIELDS)))
        try:
            CronSim(alone, EPOCH)
        except (CronSimError, ValueError, TypeError, AssertionError):
            raise InvalidRequest(
                f"`spec.cron`: the field {name} is {part[:64]!r}, which is not valid. Values are {values}; also *, "
                "ranges (1-5), lists (1,3) and steps (*/15).",
                field="spec.cron",
            ) from None
    try:
        has_slot = next(CronSim(expression, EPOCH), None) is not None
    except (CronSimError, ValueError, TypeError, AssertionError):
        has_slot = False
    if not has_slot:
        raise InvalidRequest(
            f"`spec.cron` {expression[:64]!r} names no date that exists. Correct the day or the month.",
            field="spec.cron",
        )


# -- intervals and single moments -------------------------------------------------------------------------------------
def _parse_interval(every: Any, offset: Any) -> Interval:
    if not _is_whole(every) or not 1 <= every <= MAX_EVERY:
        raise InvalidRequest(
            f"`spec.every_seconds` must be a whole number from 1 to {MAX_EVERY}.", field="spec.every_seconds"
        )
    moved = 0 if offset is None else offset
    if not _is_whole(moved) or not 0 <= moved < every:
        raise InvalidRequest(
            "`spec.offset` must be a whole number of seconds from 0 to less than `every_seconds`.", field="spec.offset"
        )
    return Interval(every, moved)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def parse_moment(written: Any, field: str) -> datetime:
    """Return a point in time written in ISO 8601 with its offset, in UTC. Raises InvalidRequest."""
    try:
        moment = datetime.fromisoformat(written) if isinstance(written, str) else None
        if moment is not None and moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise InvalidRequest(
        f"`{field}` must be a time in ISO 8601 with its offset, such as 2027-01-01T09:00:00+01:00 or ...Z.", field=field
    )
