"""`easel validate`: check canvases, without any server unless a tenant is named."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from canvas.document.document import Document
from canvas.errors import InvalidRequest
from canvas.validation.findings import Finding
from cli.agents import canvas_file
from cli.agents.checked_canvas import CheckedCanvas
from cli.shell import output
from cli.shell.exit_codes import Exit
from cli.shell.options import AsJson
from settings import Settings, load

MODELS = "cli.agents.known_models"

Lookup: TypeAlias = Callable[[Document], Sequence[Finding]]
Files = Annotated[list[Path], typer.Argument(help="Canvases as RAGFlow exports them (JSON).", metavar="FILE...")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")]
Accounts = Annotated[
    Path | None, typer.Option("--models", help="Check that this TOML file has the models.", metavar="FILE")
]
Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant", help="Check that this tenant has the models, knowledge bases and servers.", metavar="NAME"
    ),
]


def validate(
    files: Files, strict: Strict = False, models: Accounts = None, tenant: Tenant = None, as_json: AsJson = False
) -> None:
    """Print every defect of canvases. Nothing is stored.

    Exit code 0: all can run, 1: one cannot (with --strict: or has a warning), 2: a file cannot be read.
    """
    settings = load()
    lookup = _make_lookup(settings, models, tenant)
    worst = Exit.DONE
    for path in files:
        try:
            judged = _add_model_warnings(canvas_file.check_file(path, settings.max_canvas_bytes), lookup)
        except InvalidRequest as unreadable:
            output.print_message(unreadable.message, output.RED)
            worst = Exit.BAD_INPUT
            continue
        if as_json:
            for finding in (*judged.errors, *judged.warnings):
                output.print_json({"file": str(path), **asdict(finding)})
        else:
            canvas_file.print_findings(path, judged)
        if judged.errors or (strict and judged.warnings):
            worst = max(worst, Exit.FAILED)
    if worst is not Exit.DONE:
        raise typer.Exit(worst)


def _make_lookup(settings: Settings, models: Path | None, tenant: str | None) -> Lookup | None:
    """Return the function that checks a canvas's models, or None if no source is given. Its import is slow."""
    if models is None and tenant is None and settings.models_file is None:
        return None
    known: Any = importlib.import_module(MODELS)
    elsewhere = settings.ragflow_url is not None
    lookup: Lookup = known.make_lookup(models or settings.models_file, tenant, elsewhere=elsewhere)
    return lookup


def _add_model_warnings(judged: CheckedCanvas, lookup: Lookup | None) -> CheckedCanvas:
    if judged.document is None or lookup is None:
        return judged
    return replace(judged, warnings=[*judged.warnings, *lookup(judged.document)])
