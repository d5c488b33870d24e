"""Whether a canvas can run: everything that its document, its nodes and its graph have against it."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any
from uuid import UUID

from canvas import dsl, graph, validation
from canvas.document import Document
from canvas.errors import InvalidCanvas
from canvas.validation import Finding
from components import registry
from scheduler.versions import Versions
from store.database import Transaction

KEPT = 1024


def findings_of(document: Document) -> list[Finding]:
    """Every finding, errors and warnings; each names its node and field."""
    found = validation.check(document)
    found += [Finding("error", node, field, message) for node, field, message in registry.check(document)]
    if not validation.errors_of(found):
        try:
            graph.compile_canvas(document)
        except InvalidCanvas as invalid:
            found.append(Finding("error", invalid.node, invalid.field, invalid.message))
    return found


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
        raise InvalidCanvas(first.message, node=first.node, field=first.field, data={"findings": shown(findings)})


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
