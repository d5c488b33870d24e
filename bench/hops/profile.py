"""A profile of a worker: py-spy samples it, and the samples become tables and a flame graph."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.hops import flame
from bench.hops.hops import ROOT, HopBench

PACKAGE_ROWS, FUNCTION_ROWS = 12, 24  # rows of the two tables
SAMPLES_PER_SECOND = 250  # samples
SECONDS = 12


def flame_table(stand: HopBench, runs: int, file: Path) -> Iterator[str]:
    """Yield the profile of one worker during parallel runs, with its advances; write a flame graph to `file`."""
    spy = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if spy is None:
        raise RuntimeError("py-spy is not installed. Install it beside Easel: pip install py-spy")
    raw = stand.folder / "samples.txt"
    (worker, *_) = stand.processes["worker"]
    argv = [spy, "record", "--pid", str(worker.session), "--duration", str(SECONDS), "--rate", str(SAMPLES_PER_SECOND)]
    argv += ["--gil", "--function", "--nonblocking", "--format", "raw", "--output", str(raw)]
    with (stand.folder / "py-spy.log").open("wb") as log:
        spying = subprocess.Popen(argv, stdout=log, stderr=log)  # noqa: S603 (a program of the user's own)
    while spying.poll() is None:
        stand.run_all(runs, runs)
    if not raw.exists():
        raise RuntimeError(f"py-spy wrote no samples: {(stand.folder / 'py-spy.log').read_text()}")
    stacks = flame.parse_stacks(raw.read_text().splitlines(), ROOT)
    file.write_text(
        flame.flame_graph(stacks, "a worker during parallel runs: threads that hold the interpreter's lock")
    )
    yield f"{sum(stacks.values()):,} samples of threads that held a worker's interpreter lock, {runs} parallel runs."
    yield ""
    yield from _shares_table("package of the running code", flame.shares_by_package(stacks)[:PACKAGE_ROWS])
    yield ""
    yield from _shares_table(
        "Easel's functions, with the functions they call", flame.shares_by_function(stacks)[:FUNCTION_ROWS]
    )


def _shares_table(title: str, shares: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"| {title} | share |"
    yield "|---|---:|"
    for name, share in shares:
        yield f"| `{name}` | {share:.0%} |"
