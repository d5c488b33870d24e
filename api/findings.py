"""What is wrong with a canvas, as clients see it, and versions that were found able to run."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any
from uuid import UUID

from canvas import dsl, validation
from canvas.document import Document
from canvas.errors import InvalidCanvas
from canvas.validation import Finding
from components.checking import findings_of
from scheduler.versions import Versions
from store.database import Transaction

KEPT = 1024


def shown(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as clients see them."""
    return [
        {"severity": found.severity, "node": found.node, "field": found.field, "message": found.message}
        for found in findings
    ]


def refuse_errors(findings: Sequence[Finding]) -> None:
    """Raise InvalidCanvas, which names the first error and lists all, if there is any."""
    errors = validation.errors_of(findings)
    if errors:
        first = errors[0]
        raise InvalidCanvas(first.message, node=first.node, field=first.field, findings=shown(findings))


def parsed(source: str | Mapping[str, Any], max_bytes: int) -> Document:
    """The document that a request brings. Raises InvalidCanvas."""
    return dsl.parse(source, max_bytes=max_bytes)


class Checked:
    """Versions that were found able to run. They never change, so once is enough."""

    def __init__(self) -> None:
        self._known: OrderedDict[UUID, None] = OrderedDict()
        self._lock = Lock()

    def version(self, tx: Transaction, versions: Versions, version_id: UUID) -> None:
        """Raise InvalidCanvas if a version cannot run."""
        with self._lock:
            if version_id in self._known:
                return
        refuse_errors(findings_of(versions.get(tx, version_id).document))
        with self._lock:
            self._known[version_id] = None
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
