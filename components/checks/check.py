"""The check of a canvas: errors that keep it from running, and warnings about what its author may not have meant.

Missing models and sources depend on the tenant; `missing_models` and `missing_sources` check them.
"""

from collections.abc import Iterator
from itertools import chain, islice

from canvas.document.document import Document
from canvas.validation import check
from canvas.validation.findings import Finding, errors_of
from components import registry
from components.checks import known_outputs, parameter_warnings

MAX_WARNINGS = 1000  # a longer list is not useful


def findings_of(document: Document) -> list[Finding]:
    """Return every finding, errors first: those of the graph, then those of the nodes' parameters, then warnings."""
    errors, document_warnings = check.check(document, known_outputs.outputs_of)
    warnings = list(islice(chain(document_warnings, parameter_warnings.find_warnings(document)), MAX_WARNINGS + 1))
    if len(warnings) > MAX_WARNINGS:
        warnings[MAX_WARNINGS:] = [
            Finding("warning", None, None, f"There are more than {MAX_WARNINGS} warnings.", "more")
        ]
    return [*errors, *_of_parameters(document), *warnings]


def errors_in(document: Document) -> list[Finding]:
    """Return only the errors, which is faster than all findings."""
    errors, _ = check.check(document)
    return [*errors, *_of_parameters(document)]


def refusals_of(document: Document, findings: list[Finding]) -> list[Finding]:
    """Return the errors for which a new canvas is not stored at all.

    A model that has not been chosen is not one of them: templates come without a model, and the author picks it next.
    """
    return [finding for finding in errors_of(findings) if not _lacks_a_model(document, finding)]


def _of_parameters(document: Document) -> Iterator[Finding]:
    for node, field, message in registry.check(document):
        code = "bad_parameter"
        if registry.find(document.entries[node].component) is None:
            code = "unknown_component"
        elif field == "llm_id" and not document.entries[node].params.get("llm_id"):
            code = "no_model"
        yield Finding("error", node, field, message, code)


def _lacks_a_model(document: Document, finding: Finding) -> bool:
    entry = document.entries.get(finding.node) if finding.node else None
    return entry is not None and finding.field == "llm_id" and not entry.params.get("llm_id")
