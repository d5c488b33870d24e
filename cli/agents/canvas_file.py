"""Read a canvas from a file, check it, and print its findings."""

from collections.abc import Mapping, Sized
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from canvas.document import parsing
from canvas.document.document import Document
from canvas.errors import InvalidCanvas, InvalidRequest
from canvas.validation.findings import Finding, errors_of, format_finding
from cli.agents.checked_canvas import Judged
from cli.shell import output
from cli.shell.output import RED, YELLOW
from components import plugins
from components.checks.check import errors_in, findings_of
from settings import load


def judge(path: Path, max_bytes: int) -> Judged:
    """Read a file and check its canvas. Raises InvalidRequest if the file itself cannot be read."""
    _know_plugins()
    try:
        return _judged(_bytes_of(path, max_bytes), max_bytes)
    except InvalidCanvas as defect:
        return Judged(None, [Finding("error", defect.node, defect.field, defect.message, "unreadable")], [])


def accepted(path: Path, max_bytes: int) -> Judged:
    """Return a file's canvas that can run, and print its warnings. Raises InvalidCanvas with every error."""
    judged = judge(path, max_bytes)
    _refuse(str(path), judged)
    for finding in judged.warnings:
        output.tell(f"warning  {line(finding)}", YELLOW)
    return judged


def must_run(what: str, draft: Mapping[str, Any]) -> None:
    """Raise InvalidCanvas with every error if a stored draft cannot run."""
    _know_plugins()
    document = parsing.parse(draft, max_bytes=parsing.MAX_BYTES)
    _refuse(what, Judged(document, [_told(document, finding) for finding in errors_in(document)], []))


def _know_plugins() -> None:
    """Load the plugins that this deployment's workers load, so that canvases may use them."""
    plugins.load(load().allowed_plugins)


def title_of(path: Path) -> str:
    """Return the title of an agent from a file: the file's name without its extension."""
    return path.stem.strip() or path.name


def is_file(named: str) -> bool:
    """Return whether FILE|AGENT is a file: one exists, or the text looks like a path."""
    return Path(named).is_file() or named.endswith(".json") or "/" in named


def show(path: Path, judged: Judged) -> None:
    """Print every finding on a line, errors first, then a summary."""
    for finding in (*judged.errors, *judged.warnings):
        colour = RED if finding.severity == "error" else YELLOW
        output.say_in(colour, f"{finding.severity:<9}", line(finding))
    counted = f"{_counted(judged.errors, 'error')}, {_counted(judged.warnings, 'warning')}"
    if judged.document is None or judged.errors:
        output.tell(f"{path}: {counted}. It cannot run.", RED)
    else:
        output.tell(f"{path}: {counted}. It can run: {_counted(judged.document.entries, 'node')}.")


def line(finding: Finding) -> str:
    """Return a finding as one line: node and field, then the defect."""
    if finding.node is None or finding.field is None:
        return finding.message
    for node in (f"({finding.node})", f"Node {finding.node}"):
        before, found, reason = finding.message.partition(f"{node}: ")
        if found:
            return f"{before}{node}, field {finding.field}: {reason}"
    return f"Node {finding.node}, field {finding.field}: {finding.message}"


def _told(document: Document, finding: Finding) -> Finding:
    """Return the finding with a message that begins with its node."""
    entry = document.entries.get(finding.node) if finding.node else None
    if entry is None or f"{format_finding(entry)}: " in finding.message:
        return finding
    reason = finding.message.removeprefix(f"{entry.name or entry.id}: ").rstrip(".")
    return replace(finding, message=f"{format_finding(entry)}: {reason}.")


def _counted(things: Sized, what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _judged(source: bytes | Mapping[str, Any], max_bytes: int) -> Judged:
    document = parsing.parse(source, max_bytes=max_bytes)
    findings = [_told(document, finding) for finding in findings_of(document)]
    errors = errors_of(findings)
    return Judged(document, errors, [finding for finding in findings if finding.severity == "warning"])


def _refuse(what: str, judged: Judged) -> None:
    if judged.errors:
        lines = "\n".join(f"  {line(finding)}" for finding in judged.errors)
        raise InvalidCanvas(f"{what} cannot run:\n{lines}", findings=[asdict(finding) for finding in judged.errors])


def _bytes_of(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file; of a larger one, only the bytes that show that it is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > max_bytes:
        raise InvalidCanvas(f"The canvas has more than the {max_bytes} bytes that EASEL_MAX_CANVAS_BYTES allows.")
    return content
