"""A profile of a worker: py-spy samples it twice at a time, for tables and for its flame graph."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.hops import stack_samples
from bench.hops.hops import ROOT, HopBench

PACKAGE_ROWS, FUNCTION_ROWS = 12, 24  # rows of the two tables
SAMPLES_PER_SECOND = 250  # samples
SECONDS = 12


def flame_table(stand: HopBench, runs: int, file: Path) -> Iterator[str]:
    """Yield the profile of one worker during parallel runs, with its advances; write a flame graph to `file`."""
    spy = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if spy is None:
        raise RuntimeError("py-spy is not installed. Install it beside Easel: pip install py-spy")
    (worker, *_) = stand.processes["worker"]
    samples, log_file = stand.folder / "samples.txt", stand.folder / "py-spy.log"
    argv = [spy, "record", "--pid", str(worker.session), "--duration", str(SECONDS), "--rate", str(SAMPLES_PER_SECOND)]
    argv += ["--gil", "--function", "--nonblocking"]
    with log_file.open("wb") as log:
        recordings = [
            subprocess.Popen([*argv, "--format", kind, "--output", str(output)], stdout=log, stderr=log)  # noqa: S603 (a program of the user's own)
            for kind, output in (("raw", samples), ("flamegraph", file))
        ]
    while any(recording.poll() is None for recording in recordings):
        stand.run_all(runs, runs)
    if not samples.exists() or not file.exists():
        raise RuntimeError(f"py-spy wrote no samples: {log_file.read_text()}")
    stacks = stack_samples.parse_stacks(samples.read_text().splitlines(), ROOT)
    yield f"{sum(stacks.values()):,} samples of threads that held a worker's interpreter lock, {runs} parallel runs."
    yield ""
    yield from _shares_table("package of the running code", stack_samples.shares_by_package(stacks)[:PACKAGE_ROWS])
    yield ""
    yield from _shares_table(
        "Easel's functions, with the functions they call", stack_samples.shares_by_function(stacks)[:FUNCTION_ROWS]
    )


def _shares_table(title: str, shares: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"| {title} | share |"
    yield "|---|---:|"
    for name, share in shares:
        yield f"| `{name}` | {share:.0%} |"
