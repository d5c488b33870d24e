"""Findings of validation: each names its node and field, and says what to do.

An error keeps the canvas from running. A warning marks what probably does not do what its author meant, or fails when a
run reaches it. A finding's `code` is stable; its text may change between releases.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from canvas.document.document import Entry

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect of a canvas. `node` is an id, None for the canvas as a whole; the message is for people."""

    severity: Severity
    node: str | None
    field: str | None
    message: str
    code: str = "invalid"


def error(entry: Entry, field: str | None, code: str, reason: str) -> Finding:
    """Return an error of a node."""
    return Finding("error", entry.id, field, f"{format_node(entry)}: {reason}.", code)


def warning(entry: Entry, field: str | None, code: str, reason: str) -> Finding:
    """Return a warning of a node."""
    return Finding("warning", entry.id, field, f"{format_node(entry)}: {reason}.", code)


def format_node(entry: Entry) -> str:
    """Return the name of a node in messages."""
    return f'Node "{entry.name}" ({entry.id})' if entry.name else f"Node {entry.id}"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings that keep a canvas from running."""
    return [finding for finding in findings if finding.severity == "error"]
