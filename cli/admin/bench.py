"""`easel bench`: measure the cost of a step on this machine, compared with a hand-written control."""

import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from canvas.errors import InvalidRequest
from cli.shell import output
from cli.shell.exit_codes import Exit
from settings import load


def bench(
    only: Annotated[str | None, typer.Option(help="Workloads, for example W1,W3.", metavar="NAMES")] = None,
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements of each workload.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Worker processes of Easel.")] = 2,
    modes: Annotated[
        str,
        typer.Option(
            help="Columns of Easel: as it is by default, with local continuation, with advances by the scheduler only.",
            metavar="NAMES",
        ),
    ] = "easel,local,coordinator",
    json: Annotated[Path | None, typer.Option(help="Also write everything to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="Run everything briefly, once: a test, not a measurement.")] = False,
) -> None:
    """Compare Easel with hand-written Celery and PostgreSQL code, and print a Markdown table. Takes half an hour."""
    from bench.compare.comparison import open_comparison
    from bench.compare.side import MODES
    from bench.compare.table import results_json, results_markdown
    from bench.compare.workloads import FULL, QUICK, build_workloads

    known = build_workloads(QUICK if quick else FULL)
    names = [name.strip() for name in only.split(",")] if only else list(known)
    if unknown := [name for name in names if name not in known]:
        raise InvalidRequest(f"Unknown workload: {', '.join(unknown)}. Known workloads: {', '.join(known)}.")
    asked = [name.strip() for name in modes.split(",")]
    if unknown := [name for name in asked if name not in MODES]:
        raise InvalidRequest(f"Unknown mode: {', '.join(unknown)}. Known modes: {', '.join(MODES)}.")
    chosen = [mode for mode in MODES if mode in asked]
    signal.signal(signal.SIGTERM, _end)
    settings = load()
    with open_comparison(settings.database_url, settings.redis_url, workers, chosen) as sides:
        played = sides.run([known[name] for name in names], 1 if quick else repetitions, output.print_message)
    if json is not None:
        json.write_text(results_json(played), encoding="utf-8")
    output.print_line(results_markdown(played))
    if not all(one.is_complete for one in played):
        raise typer.Exit(Exit.FAILED)


def _end(number: int, frame: object) -> NoReturn:
    """End like Ctrl-C, so that processes are stopped and databases are dropped."""
    sys.exit(128 + number)
