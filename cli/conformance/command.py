"""`easel conformance DIR...`: run recorded cases through the real stack, and print how the results differ."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

import settings
from cli.conformance.cases import MalformedCase, load_folder, select
from cli.conformance.report import (
    FailedCase,
    SkippedCase,
    Verdict,
    failure_line,
    has_failures,
    report_json,
    totals_line,
)
from cli.shell.connection import configure_logging

BAD_INPUT = 2


def conformance(
    folders: Annotated[list[Path], typer.Argument(help="Folders with cases/*.json.")],
    match: Annotated[
        str | None, typer.Option(help="Only cases of this class, or with a name that matches this pattern.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Only cases with one of these tags.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cases run at the same time.")] = 4,
    json: Annotated[Path | None, typer.Option(help="Write the verdicts to this file.")] = None,
    include_deviations: Annotated[bool, typer.Option(help="Also run cases that name deviations.")] = False,
    replay: Annotated[
        bool, typer.Option(help="Then record each run, replay it as `easel replay` does, and compare the two.")
    ] = False,
) -> None:
    """Run recorded cases and compare the results. Print a line for each failure, then totals; exit 1 if one failed."""
    from cli.conformance.play.replays import record_runs, replay_runs
    from cli.conformance.play.runner import Fixtures, judge_all, start_engine

    configure_logging(settings.load())  # to stderr: stdout is for verdicts
    try:
        found = [case for folder in folders for case in load_folder(folder)]
    except MalformedCase as error:
        typer.echo(error.message, err=True)
        raise typer.Exit(BAD_INPUT) from None
    selected = select(found, match, tag or ())
    judged = [case for case in selected if include_deviations or not case.deviations]
    verdicts: list[Verdict] = [
        SkippedCase(case.name, "names deviations") for case in selected if not include_deviations and case.deviations
    ]
    fixtures = Fixtures()
    with start_engine(settings.load(), fixtures, jobs) as engine:
        verdicts += _print_each(judge_all(engine, fixtures, judged, jobs))
        recorded = record_runs(engine, fixtures) if replay else []
    if recorded:
        verdicts += _print_each(replay_runs(settings.load(), fixtures, recorded, jobs))
    if json is not None:
        json.write_text(report_json(verdicts), encoding="utf-8")
    typer.echo(totals_line(verdicts))
    if has_failures(verdicts):
        raise typer.Exit(1)


def _print_each(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Yield verdicts, and print those that are not good."""
    for verdict in verdicts:
        if isinstance(verdict, FailedCase):
            typer.echo(failure_line(verdict))
        elif isinstance(verdict, SkippedCase):
            typer.echo(f"{verdict.case}: skipped, {verdict.reason}", err=True)
        yield verdict
