"""Read a canvas from a file, check it, and print its findings."""

from collections.abc import Mapping, Sized
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from canvas.document import parsing
from canvas.document.document import Document
from canvas.errors import InvalidCanvas, InvalidRequest
from canvas.validation.findings import Finding, errors_of, format_node
from cli.agents.checked_canvas import CheckedCanvas
from cli.shell import output
from cli.shell.output import RED, YELLOW
from components import plugins
from components.checks.check import errors_in, findings_of
from settings import load


def check_file(path: Path, max_bytes: int) -> CheckedCanvas:
    """Read a file and check its canvas. Raises InvalidRequest if the file itself cannot be read."""
    _load_plugins()
    try:
        return _check(_read_bytes(path, max_bytes), max_bytes)
    except InvalidCanvas as defect:
        return CheckedCanvas(None, [Finding("error", defect.node, defect.field, defect.message, "unreadable")], [])


def load_runnable(path: Path, max_bytes: int) -> CheckedCanvas:
    """Return a file's canvas that can run, and print its warnings. Raises InvalidCanvas with every error."""
    judged = check_file(path, max_bytes)
    _raise_errors(str(path), judged)
    for finding in judged.warnings:
        output.print_message(f"warning  {format_finding_line(finding)}", YELLOW)
    return judged


def require_runnable(what: str, draft: Mapping[str, Any]) -> None:
    """Raise InvalidCanvas with every error if a stored draft cannot run."""
    _load_plugins()
    document = parsing.parse(draft, max_bytes=parsing.MAX_BYTES)
    _raise_errors(what, CheckedCanvas(document, [_name_node(document, finding) for finding in errors_in(document)], []))


def _load_plugins() -> None:
    """Load the plugins that this deployment's workers load, so that canvases may use them."""
    plugins.load(load().allowed_plugins)


def title_of(path: Path) -> str:
    """Return the title of an agent from a file: the file's name without its extension."""
    return path.stem.strip() or path.name


def is_file(named: str) -> bool:
    """Return whether FILE|AGENT is a file: one exists, or the text looks like a path."""
    return Path(named).is_file() or named.endswith(".json") or "/" in named


def print_findings(path: Path, judged: CheckedCanvas) -> None:
    """Print every finding on a line, errors first, then a summary."""
    for finding in (*judged.errors, *judged.warnings):
        colour = RED if finding.severity == "error" else YELLOW
        output.print_in_colour(colour, f"{finding.severity:<9}", format_finding_line(finding))
    counted = f"{_format_count(judged.errors, 'error')}, {_format_count(judged.warnings, 'warning')}"
    if judged.document is None or judged.errors:
        output.print_message(f"{path}: {counted}. It cannot run.", RED)
    else:
        output.print_message(f"{path}: {counted}. It can run: {_format_count(judged.document.entries, 'node')}.")


def format_finding_line(finding: Finding) -> str:
    """Return a finding as one line: node and field, then the defect."""
    if finding.node is None or finding.field is None:
        return finding.message
    for node in (f"({finding.node})", f"Node {finding.node}"):
        before, found, reason = finding.message.partition(f"{node}: ")
        if found:
            return f"{before}{node}, field {finding.field}: {reason}"
    return f"Node {finding.node}, field {finding.field}: {finding.message}"


def _name_node(document: Document, finding: Finding) -> Finding:
    """Return the finding with a message that begins with its node."""
    entry = document.entries.get(finding.node) if finding.node else None
    if entry is None or f"{format_node(entry)}: " in finding.message:
        return finding
    reason = finding.message.removeprefix(f"{entry.name or entry.id}: ").rstrip(".")
    return replace(finding, message=f"{format_node(entry)}: {reason}.")


def _format_count(things: Sized, what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _check(source: bytes | Mapping[str, Any], max_bytes: int) -> CheckedCanvas:
    document = parsing.parse(source, max_bytes=max_bytes)
    findings = [_name_node(document, finding) for finding in findings_of(document)]
    errors = errors_of(findings)
    return CheckedCanvas(document, errors, [finding for finding in findings if finding.severity == "warning"])


def _raise_errors(what: str, judged: CheckedCanvas) -> None:
    if judged.errors:
        lines = "\n".join(f"  {format_finding_line(finding)}" for finding in judged.errors)
        raise InvalidCanvas(f"{what} cannot run:\n{lines}", findings=[asdict(finding) for finding in judged.errors])


def _read_bytes(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file; of a larger one, only the bytes that show that it is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
    if len(content) > max_bytes:
        raise InvalidCanvas(f"The canvas has more than the {max_bytes} bytes that EASEL_MAX_CANVAS_BYTES allows.")
    return content
