"""Where a worker spends its time, by samples: py-spy looks at it from outside, and we draw and count what it saw."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.hops import flame
from bench.hops.hops import ROOT, Stand

PACKAGES, STEPS = 12, 24  # rows of the two tables
EACH_SECOND = 250  # samples
SECONDS = 12


def flame_table(stand: Stand, runs: int, file: Path) -> Iterator[str]:
    """Samples of one worker, which carries out the coordinator's part as well, while runs go side by side."""
    spy = shutil.which("py-spy", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))
    if spy is None:
        raise RuntimeError("py-spy is not there. Install it beside Easel: pip install py-spy")
    raw = stand.folder / "samples.txt"
    (worker, *_) = stand.processes["worker"]
    argv = [spy, "record", "--pid", str(worker.session), "--duration", str(SECONDS), "--rate", str(EACH_SECOND)]
    argv += ["--gil", "--function", "--nonblocking", "--format", "raw", "--output", str(raw)]
    with (stand.folder / "py-spy.log").open("wb") as log:
        spying = subprocess.Popen(argv, stdout=log, stderr=log)  # noqa: S603 (a program of the user's own)
    while spying.poll() is None:
        stand.run_all(runs, runs)
    if not raw.exists():
        raise RuntimeError(f"py-spy gave nothing: {(stand.folder / 'py-spy.log').read_text()}")
    stacks = flame.read(raw.read_text().splitlines(), ROOT)
    file.write_text(flame.svg(stacks, "a worker while runs go side by side: whoever holds the interpreter's lock"))
    yield f"{sum(stacks.values()):,} samples of whoever held a worker's interpreter, {runs} runs side by side."
    yield ""
    yield from _shares("whose code was at work", flame.by_package(stacks)[:PACKAGES])
    yield ""
    yield from _shares("our functions, with what they call", flame.by_step(stacks)[:STEPS])


def _shares(told: str, shares: Sequence[tuple[str, float]]) -> Iterator[str]:
    yield f"| {told} | share |"
    yield "|---|---:|"
    for name, share in shares:
        yield f"| `{name}` | {share:.0%} |"
