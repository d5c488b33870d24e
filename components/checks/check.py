"""Whether a canvas can run, and whether it will do what its author means: everything that its document, its nodes and
its graph have against it.

Whether the models are there depends on whose canvas it is; `chosen_models` looks them up.
"""

from collections.abc import Iterator
from itertools import chain, islice

from canvas.document.document import Document
from canvas.validation import check
from canvas.validation.findings import Finding, errors_of
from components import registry
from components.checks import known_outputs, parameter_warnings

MOST = 1000  # warnings; whoever has more has another problem


def findings_of(document: Document) -> list[Finding]:
    """Every finding, errors first: across nodes, in their parameters, and what keeps it from being compiled."""
    errors, suspicions = check.check(document, known_outputs.outputs_of)
    warnings = list(islice(chain(suspicions, parameter_warnings.about(document)), MOST + 1))
    if len(warnings) > MOST:
        warnings[MOST:] = [Finding("warning", None, None, f"There is more than these {MOST} warnings.", "more")]
    return [*errors, *_of_parameters(document), *warnings]


def errors_in(document: Document) -> list[Finding]:
    """Only what keeps a canvas from running, found faster."""
    errors, _ = check.check(document)
    return [*errors, *_of_parameters(document)]


def refusals_of(document: Document, findings: list[Finding]) -> list[Finding]:
    """The errors for which a new canvas is not even stored.

    A model that has not been chosen is none of them: templates come without one, and the author picks it next.
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
