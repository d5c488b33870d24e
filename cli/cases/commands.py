"""`easel record` and `easel replay`: a run as a test case, and whether it still comes out the same."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from canvas.document.json_checks import parse_json
from canvas.document.parsing import MAX_BYTES
from canvas.errors import ExecutorError
from canvas.ids import CanvasId
from cli.agents import drafts
from cli.cases import case_file
from cli.cases.case_diff import ReplayDifference, compare
from cli.cases.case_file import MAX_VALUE_BYTES, MalformedRunCase, RunCase
from cli.cases.recorder import RecordSource, record_run
from cli.models import models
from cli.shell import output
from cli.shell.connection import configure_logging, find_run_id, open_connection
from cli.shell.exit_codes import Exit
from cli.shell.options import LOCAL_TENANT, OfTenant, Run
from cli.shell.value_pairs import NOTHING, shown_pair
from providers.models.chat.catalogue import resolve
from providers.models.types.chat import ModelSpec
from settings import load
from store.db.transaction import USE_SNAPSHOT
from telemetry import VERSION

MAX_PRINTED = 20  # differences of a case that are printed; --json has all


# -- record -----------------------------------------------------------------------------------------------------------
def record(
    run: Run,
    to: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the case to this file, and large values beside it.", metavar="FILE"),
    ] = None,
    name: Annotated[str, typer.Option(help="The name of the case; the agent's title by default.")] = "",
    most: Annotated[
        int, typer.Option("--max-value", min=1024, help="Bytes of a value that the file itself holds.")
    ] = MAX_VALUE_BYTES,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Print a run as a test case: canvas, inputs, answers of models, results of tools, and what came of it.

    `easel replay` runs the case without any of these. Secrets are masked.
    """
    case = _record(run, tenant, name)
    if to is None:
        output.print_text(case_file.case_text(case, None, most))
    else:
        case_file.write_case(case, to, most)
    for line in _summary(case):
        output.print_message(line)


def _record(run: str, tenant: str, name: str) -> RunCase:
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)
        accounts = models.accounts_of(connection, tenant_id)

        def find_model(llm_id: str) -> ModelSpec | None:
            try:
                return resolve(llm_id, accounts)
            except ExecutorError:  # its account was removed since
                return None

        with connection.database.transaction() as tx:
            tx.execute(USE_SNAPSHOT)
            source = RecordSource(
                tx,
                connection.versions,
                tenant_id,
                connection.blobs,
                lambda canvas_id: drafts.canvas_secrets_of(tenant_id, CanvasId(canvas_id)),
                find_model,
            )
            return record_run(source, find_run_id(tx, tenant_id, run), name=name, release=VERSION)


def _summary(case: RunCase) -> Iterator[str]:
    calls = sum(len(step.model_calls) for step in case.steps if not step.as_recorded)
    yield f"Steps: {len(case.steps)}. Answers of models: {calls}."
    as_recorded = sorted({step.node for step in case.steps if step.as_recorded})
    if as_recorded:
        yield f"A replay reports these as they were recorded, and does not run their code: {', '.join(as_recorded)}."


# -- replay -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """What came of one replay: its differences, or why there was none."""

    file: Path
    name: str
    differences: Sequence[ReplayDifference] = ()
    error: str = ""
    is_malformed: bool = False
    seconds: float = 0.0

    @property
    def is_same(self) -> bool:
        """Return whether everything came out as recorded."""
        return not self.error and not self.differences

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for other programs. A side without a value has none."""
        found = [
            {
                "step": each.step,
                "path": each.path,
                **({"recorded": each.recorded} if each.recorded is not NOTHING else {}),
                **({"replayed": each.replayed} if each.replayed is not NOTHING else {}),
            }
            for each in self.differences
        ]
        return {
            "case": str(self.file),
            "name": self.name,
            "verdict": "same" if self.is_same else "malformed" if self.is_malformed else "differs",
            "error": self.error or None,
            "differences": found,
            "lines": list(lines_of(self)),
            "ms": round(1000 * self.seconds),
        }


def replay(
    cases: Annotated[list[Path] | None, typer.Argument(help="Cases, or folders of cases.", metavar="CASE")] = None,
    update: Annotated[bool, typer.Option("--update", help="Accept what came out: write it into the cases.")] = False,
    canvas: Annotated[
        Path | None,
        typer.Option(help="Replay with this canvas in place of the recorded one.", metavar="FILE"),
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", help="Write the verdicts to this file, a line each.", metavar="FILE")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Cases replayed at the same time.")] = 2,
    from_stdin: Annotated[
        bool,
        typer.Option("--from-stdin", help="Read paths of cases from stdin; print a JSON line for each at once."),
    ] = False,
) -> None:
    """Run recorded cases offline, and print what comes out differently, by step.

    Exit code 0: all came out as recorded; 1: something differs; 2: a case cannot be read.
    """
    configure_logging(load())  # to stderr: stdout is for verdicts
    if from_stdin:
        _serve()
        return
    files = list(_files_of(cases or ()))
    if not files:
        raise MalformedRunCase(
            "No case was found. Name a file that `easel record` has written, or a folder of such files."
        )
    document = _read_canvas(canvas) if canvas is not None else None
    from cli.cases.replayer import open_replayer

    verdicts: list[ReplayVerdict] = []
    with open_replayer(load(), jobs=jobs) as replayer, ThreadPoolExecutor(jobs) as pool:
        judge = partial(_judge, replayer, document=document, update=update)
        for verdict in pool.map(judge, files):
            verdicts.append(verdict)
            for line in lines_of(verdict):
                output.print_line(line)
    if as_json is not None:
        text = "".join(json.dumps(verdict.to_json(), ensure_ascii=False) + "\n" for verdict in verdicts)
        as_json.write_text(text, encoding="utf-8")
    same = sum(verdict.is_same for verdict in verdicts)
    output.print_message(f"{same} of {len(verdicts)} cases came out as recorded.")
    if update and same < len(verdicts):
        output.print_message("The cases that differ now expect what came out.")
    if any(verdict.is_malformed for verdict in verdicts):
        raise typer.Exit(Exit.BAD_INPUT)
    if same < len(verdicts) and not (update and all(not verdict.error for verdict in verdicts)):
        raise typer.Exit(Exit.FAILED)


def _serve() -> None:
    """Replay cases as their paths arrive, until stdin ends."""
    from cli.cases.replayer import open_replayer

    with open_replayer(load()) as replayer:
        for line in sys.stdin:
            verdict = _judge(replayer, Path(line.rstrip("\n")))
            output.print_json(verdict.to_json())
            sys.stdout.flush()


def _judge(replayer: Any, file: Path, *, document: dict[str, Any] | None = None, update: bool = False) -> ReplayVerdict:
    began = time.monotonic()
    try:
        case = case_file.read_case(file)
    except MalformedRunCase as error:
        return ReplayVerdict(file, file.stem, error=error.message, is_malformed=True)
    if document is not None:
        case = case.model_copy(update={"document": document})
    try:
        replayed: RunCase = replayer.replay(case)
    except ExecutorError as error:
        return ReplayVerdict(file, case.name, error=error.message, seconds=time.monotonic() - began)
    differences = compare(case, replayed)
    if update and differences:
        case_file.write_case(accept_replay(case, replayed), file)
    return ReplayVerdict(file, case.name, differences, seconds=time.monotonic() - began)


def accept_replay(case: RunCase, replayed: RunCase) -> RunCase:
    """Return a case that expects what a replay has brought, with everything that replays need of the recording."""
    recorded = {step.key: step for step in case.steps}
    steps = [
        step.model_copy(
            update={name: getattr(recorded[step.key], name) for name in ("as_recorded", "journal", "cites", "usage")}
        )
        if step.key in recorded
        else step
        for step in replayed.steps
    ]
    return case.model_copy(update={"steps": tuple(steps), "parts": replayed.parts, "result": replayed.result})


def _files_of(named: Sequence[Path]) -> Iterator[Path]:
    for each in named:
        if each.is_dir():
            yield from (file for file in sorted(each.rglob("*.json")) if not _is_value(file))
        else:
            yield each


def _is_value(file: Path) -> bool:
    """Return whether a file is a large value beside a case."""
    return file.parent.suffix == ".values"


def _read_canvas(file: Path) -> dict[str, Any]:
    try:
        read = parse_json(file.read_bytes(), MAX_BYTES)
    except OSError as error:
        raise MalformedRunCase(f"The canvas cannot be read: {error}") from error
    if not isinstance(read, dict):
        raise MalformedRunCase(f"{file} is not a canvas: it must be a JSON object.")
    return read


# -- what people read -------------------------------------------------------------------------------------------------
def lines_of(verdict: ReplayVerdict) -> Iterator[str]:
    """Yield the lines that tell a verdict: one, or the differences by step."""
    if verdict.error:
        yield verdict.error if verdict.is_malformed else f"{verdict.file}: {verdict.error}"
        return
    if not verdict.differences:
        yield f"{verdict.file}: as recorded ({verdict.seconds:.1f} s)"
        return
    number = len(verdict.differences)
    yield f"{verdict.file}: {number} difference{'s' if number > 1 else ''}"
    yield from lines_of_differences(verdict.differences)


def lines_of_differences(differences: Sequence[ReplayDifference]) -> Iterator[str]:
    """Yield lines that tell differences by step, the first MAX_PRINTED of them."""
    for former, each in pairwise([None, *differences[:MAX_PRINTED]]):
        assert each is not None
        if former is None or former.step != each.step:
            yield f"  {each.step}"
        recorded, replayed = shown_pair(each.recorded, each.replayed)
        yield f"    {each.path}"
        yield f"      recorded: {recorded}"
        yield f"      replayed: {replayed}"
    if len(differences) > MAX_PRINTED:
        yield f"  and {len(differences) - MAX_PRINTED} more (--json has all)"
