"""What is wrong with a canvas, as it is told: each finding names its node and field, and says what to do.

Errors are what cannot run. Warnings are what runs and probably does something else than its author meant, or fails
when it gets there. A finding's `code` stays the same when its words change.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from canvas.document.document import Entry

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect. `node` is an id, None for the canvas as a whole; the message is for people."""

    severity: Severity
    node: str | None
    field: str | None
    message: str
    code: str = "invalid"


def error(entry: Entry, field: str | None, code: str, reason: str) -> Finding:
    """What keeps the canvas from running."""
    return Finding("error", entry.id, field, f"{format_finding(entry)}: {reason}.", code)


def warning(entry: Entry, field: str | None, code: str, reason: str) -> Finding:
    """What is probably not meant, or fails when a run gets there."""
    return Finding("warning", entry.id, field, f"{format_finding(entry)}: {reason}.", code)


def format_finding(entry: Entry) -> str:
    """A node as its author knows it."""
    return f'Node "{entry.name}" ({entry.id})' if entry.name else f"Node {entry.id}"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that keep a canvas from running."""
    return [finding for finding in findings if finding.severity == "error"]
