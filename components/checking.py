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
