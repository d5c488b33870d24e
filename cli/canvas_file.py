"""A canvas in a file: read it, and say everything that is wrong with it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from canvas import dsl, validation
from canvas.document import Document
from canvas.errors import InvalidCanvas, InvalidRequest
from canvas.graph import compile_canvas
from canvas.validation import Finding
from cli import output
from cli.output import RED, YELLOW
from components import registry


@dataclass(frozen=True, slots=True)
class Judged:
    """A file's canvas, None if it holds none, with its findings, errors first."""

    document: Document | None
    errors: Sequence[Finding]
    warnings: Sequence[Finding]

    @property
    def stored(self) -> dict[str, Any]:
        """The document as it is stored. Only for one that can run."""
        assert self.document is not None
        return dsl.dump(self.document)


def judge(path: Path, max_bytes: int) -> Judged:
    """Read a file and check its canvas. Raises InvalidRequest if the file itself cannot be read."""
    try:
        document = dsl.parse(_bytes_of(path, max_bytes), max_bytes=max_bytes)
    except InvalidCanvas as defect:
        return Judged(None, [Finding("error", defect.node, defect.field, defect.message)], [])
    findings = findings_of(document)
    errors = validation.errors_of(findings)
    return Judged(document, errors, [finding for finding in findings if finding not in errors])


def findings_of(document: Document) -> list[Finding]:
    """Every defect of a document: across its nodes, in their parameters, and what keeps it from being compiled."""
    findings = validation.check(document)
    for node, field, message in registry.check(document):
        name = document.entries[node].name
        where = f'Node "{name}" ({node})' if name else f"Node {node}"
        reason = message.removeprefix(f"{name}: ")
        findings.append(Finding("error", node, field, f"{where}: {reason.rstrip('.')}."))
    if not validation.errors_of(findings):
        try:
            compile_canvas(document)
        except InvalidCanvas as defect:
            findings.append(Finding("error", defect.node, defect.field, defect.message))
    return findings


def accepted(path: Path, max_bytes: int) -> Judged:
    """A file's canvas that can run; its warnings are told. Raises InvalidCanvas, with every finding in its message."""
    judged = judge(path, max_bytes)
    if judged.errors or judged.document is None:
        lines = "\n".join(f"  {line(finding)}" for finding in judged.errors)
        raise InvalidCanvas(
            f"{path} cannot run:\n{lines}", findings=[asdict(finding) for finding in judged.errors]
        )
    for finding in judged.warnings:
        output.tell(f"warning: {line(finding)}", YELLOW)
    return judged


def show(path: Path, judged: Judged) -> None:
    """Every finding for people: errors apart from warnings, each naming node and field."""
    for title, findings, colour in (("Errors", judged.errors, RED), ("Warnings", judged.warnings, YELLOW)):
        if findings:
            output.say(f"{title} in {path}, {len(findings)}:")
        for finding in findings:
            output.say(f"  {line(finding)}")
        if findings:
            output.tell("It cannot run." if colour == RED else "It can run, if this is meant.", colour)
    if not judged.errors and not judged.warnings:
        nodes = len(judged.document.entries) if judged.document else 0
        output.say(f"{path} is valid: {nodes} nodes.")


def line(finding: Finding) -> str:
    """A finding on one line: where, then what. The message names the node; the field stands in front."""
    where = ".".join(part for part in (finding.node, finding.field) if part)
    return f"{where}: {finding.message}" if where else finding.message


def _bytes_of(path: Path, max_bytes: int) -> bytes:
    """The file's content; of one that is too large no more than shows that it is."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > max_bytes:
        raise InvalidCanvas(f"The canvas has more than the {max_bytes} bytes that EASEL_MAX_CANVAS_BYTES allows.")
    return content

