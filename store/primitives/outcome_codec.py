"""Outcomes as a column: what routing needs, without the values (they have rows of their own)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from canvas.errors import StateError
from canvas.events import run_warnings
from canvas.events.run_warnings import Notice
from canvas.outcome import Chose, Expanded, Failed, Finished, Left, MessageEnd, Outcome, Repeated, Waiting


@dataclass(frozen=True, slots=True)
class Told:
    """An outcome as it was stored, with what the worker adds to it.

    `used` is the usage that this report adds to the run's; None: all that the activation's row has.
    """

    outcome: Outcome
    error: str | None
    retake: bool
    spoke: bool
    used: Mapping[str, int] | None = None


def to_column(
    outcome: Outcome,
    *,
    error: str | None,
    retake: bool,
    spoke: bool,
    used: Mapping[str, int] | None = None,
    warnings: Sequence[Notice] = (),
) -> dict[str, Any]:
    """The JSON of an outcome; members that say nothing are left out."""
    data = _members(outcome)
    if warnings:
        data[run_warnings.WARNINGS] = run_warnings.to_column(warnings)
    data |= {"is": type(outcome).__name__, "retake": retake, "spoke": spoke, "used": used}
    if error is not None:
        data["told"] = error
    return {name: value for name, value in data.items() if value is not None and value is not False}


def _members(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Finished(end=end):
            return _end(end) if end is not None else {}
        case Repeated() | Left():
            return {}
        case Chose(to=to):
            return {"to": list(to)}
        case Expanded(count=count, concurrency=concurrency):
            return {"count": count, "concurrency": concurrency}
        case Waiting(inputs=inputs, tips=tips):
            return {"inputs": dict(inputs), "tips": tips}
        case Failed(error=error, code=code, retryable=retryable, details=details, again_in=again_in):
            return {
                "error": error, "code": code, "retryable": retryable, "details": dict(details) or None,
                "again_in": again_in or None,
            }  # fmt: skip
        case _:
            assert_never(outcome)


def _end(end: MessageEnd) -> dict[str, Any]:
    return {
        "status": end.status,
        "attachment": end.attachment,
        "downloads": list(end.downloads) or None,
        "reference": end.reference,
        "ends": True,
    }


def from_column(data: Mapping[str, Any]) -> Told:
    """The inverse of `to_column`, without values."""
    used = data.get("used")
    return Told(_outcome(data), data.get("told"), data.get("retake", False), data.get("spoke", False), used)


def _outcome(data: Mapping[str, Any]) -> Outcome:
    match data.get("is"):
        case "Finished" if data.get("ends"):
            downloads = tuple(data.get("downloads", ()))
            return Finished(
                end=MessageEnd(data.get("status"), data.get("attachment"), downloads, data.get("reference"))
            )
        case "Finished":
            return Finished()
        case "Chose":
            return Chose(to=tuple(data["to"]))
        case "Expanded":
            return Expanded(count=data.get("count"), concurrency=data["concurrency"])
        case "Repeated":
            return Repeated()
        case "Left":
            return Left()
        case "Waiting":
            return Waiting(inputs=data["inputs"], tips=data["tips"])
        case "Failed":
            return Failed(
                data["error"], data["code"], data.get("retryable", False), details=data.get("details") or {},
                again_in=data.get("again_in") or 0.0,
            )  # fmt: skip
        case other:
            raise StateError("An activation has an outcome of a kind we do not know.", kind=other)
