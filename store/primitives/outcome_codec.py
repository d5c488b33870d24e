"""Outcomes as the JSON of a column: what routing needs, without the values, which have rows of their own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from canvas import run_warnings
from canvas.errors import StateError
from canvas.outcome import (
    ContainerExited,
    ContainerOpened,
    Failed,
    Finished,
    MessageEnd,
    NextIteration,
    Outcome,
    Routed,
    WaitingForInput,
)
from canvas.run_warnings import Notice

STORED_NAMES: Mapping[type[Outcome], str] = {
    Finished: "Finished",
    Routed: "Chose",
    ContainerOpened: "Expanded",
    NextIteration: "Repeated",
    ContainerExited: "Left",
    WaitingForInput: "Waiting",
    Failed: "Failed",
}
"""The names of the kinds of outcomes in rows and in metrics. They never change, because earlier releases read them."""


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """An outcome as it was stored, with what the worker adds to it.

    `used` is the usage that this report adds to the run's; None: the whole usage of the activation's row.
    """

    outcome: Outcome
    error: str | None
    restarts_text: bool
    has_written: bool
    used: Mapping[str, int] | None = None


def encode_outcome(
    outcome: Outcome,
    *,
    error: str | None,
    restarts_text: bool,
    has_written: bool,
    used: Mapping[str, int] | None = None,
    warnings: Sequence[Notice] = (),
) -> dict[str, Any]:
    """Return the JSON of an outcome; members that are null or false are left out."""
    data = _members(outcome)
    if warnings:
        data[run_warnings.WARNINGS] = run_warnings.to_column(warnings)
    data |= {"is": STORED_NAMES[type(outcome)], "retake": restarts_text, "spoke": has_written, "used": used}
    if error is not None:
        data["told"] = error
    return {name: value for name, value in data.items() if value is not None and value is not False}


def _members(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Finished(end=end):
            return _end(end) if end is not None else {}
        case NextIteration() | ContainerExited():
            return {}
        case Routed(to=to):
            return {"to": list(to)}
        case ContainerOpened(count=count, concurrency=concurrency):
            return {"count": count, "concurrency": concurrency}
        case WaitingForInput(inputs=inputs, tips=tips):
            return {"inputs": dict(inputs), "tips": tips}
        case Failed(error=error, code=code, retryable=retryable, details=details, retry_in=again_in):
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


def decode_outcome(data: Mapping[str, Any]) -> StoredOutcome:
    """Return the outcome of a JSON that `encode_outcome` made, without values."""
    used = data.get("used")
    return StoredOutcome(_outcome(data), data.get("told"), data.get("retake", False), data.get("spoke", False), used)


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
            return Routed(to=tuple(data["to"]))
        case "Expanded":
            return ContainerOpened(count=data.get("count"), concurrency=data["concurrency"])
        case "Repeated":
            return NextIteration()
        case "Left":
            return ContainerExited()
        case "Waiting":
            return WaitingForInput(inputs=data["inputs"], tips=data["tips"])
        case "Failed":
            return Failed(
                data["error"], data["code"], data.get("retryable", False), details=data.get("details") or {},
                retry_in=data.get("again_in") or 0.0,
            )  # fmt: skip
        case other:
            raise StateError("An activation has an outcome of an unknown kind.", kind=other)
