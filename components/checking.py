"""Whether a canvas can run: everything that its document, its nodes and its graph have against it."""

from canvas import validation
from canvas.document import Document
from canvas.errors import InvalidCanvas
from canvas.graph import compile_canvas
from canvas.validation import Finding
from components import registry


def findings_of(document: Document) -> list[Finding]:
    """Every finding, errors and warnings: across nodes, in their parameters, and what keeps it from being compiled."""
    found = validation.check(document)
    found += [Finding("error", node, field, message) for node, field, message in registry.check(document)]
    if not validation.errors_of(found):
        try:
            compile_canvas(document)
        except InvalidCanvas as defect:
            found.append(Finding("error", defect.node, defect.field, defect.message))
    return found


def refusals_of(document: Document, findings: list[Finding]) -> list[Finding]:
    """The errors for which a new canvas is not even stored.

    A model that has not been chosen is none of them: templates come without one, and the author picks it next.
    """
    errors = validation.errors_of(findings)
    return [finding for finding in errors if not _lacks_a_model(document, finding)]


def _lacks_a_model(document: Document, finding: Finding) -> bool:
    entry = document.entries.get(finding.node) if finding.node else None
    return entry is not None and finding.field == "llm_id" and not entry.params.get("llm_id")
