"""Change the product in small ways, and see whether a test notices: `python -m tests.mutation` (`make mutants`).

    --number N    how many mutants (200)
    --seed S      which ones (the same for the same tree and seed)
    --jobs J      how many at once (as many as cores)
    --seconds T   the most that the tests of one mutant may take (240)
    --only TEXT   only mutants whose name contains it
    --record      record anew which tests run which line
    --json FILE   write every result as it comes, one JSON object a line

Each mutant is written into a copy of the tree. Only the tests that run its line are executed there, the fastest first,
until one fails. A survivor that `survivors.toml` explains does not count: a user could not notice it.
Prints a line for each survivor and the share that was killed; the exit code is 1 below 90 %.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutation.mutants import Mutant, draw
from tests.mutation.selection import Selection, record, state_of

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / ".mutants"
MIN_KILLED_SHARE = 0.9
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".mutants", "__pycache__", ".pytest_cache", ".hypothesis")
START = 45.0  # seconds that pytest and the servers may take before the first test
_KILLER = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a mutant: killed, survived or explained; by which test, or why."""

    mutant: Mutant
    outcome: str
    by: str
    seconds: float


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n")[0])
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.record or not (RECORDED / "of").exists():
        record(RECORDED, ROOT, options.jobs)
    if (RECORDED / "of").read_text() != state_of(ROOT, ("tests",)):
        print("Tests have changed since lines were recorded; --record does it anew.", file=sys.stderr)
    mutants = [mutant for mutant in draw(ROOT, options.number, options.seed) if options.only in mutant.name]
    if options.json is not None:
        options.json.write_text("")
    results = _run(mutants, options.jobs, options.seconds, options.json)
    counted = [result for result in results if result.outcome != "explained"]
    killed = sum(result.outcome == "killed" for result in counted)
    print(f"seed {options.seed}: {killed} of {len(counted)} killed, {len(results) - len(counted)} explained")
    return 0 if killed >= MIN_KILLED_SHARE * len(counted) else 1


def _run(mutants: list[Mutant], jobs: int, most: float, path: Path | None) -> list[Result]:
    selection, explained = Selection(RECORDED, ROOT), _explained()
    with tempfile.TemporaryDirectory(prefix="easel-mutants-") as folder:
        trees: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            tree = Path(folder) / str(number)
            shutil.copytree(ROOT, tree, ignore=NOT_COPIED)
            compiled = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", str(tree)]
            subprocess.run(compiled, stdout=subprocess.DEVNULL, check=False)  # a changed file is recognised by its hash
            trees.put(tree)

        def judge(mutant: Mutant) -> Result:
            reason = explained.get((mutant.path, mutant.operator, _line_of(mutant)))
            if reason is not None:
                return Result(mutant, "explained", reason, 0.0)
            tree = trees.get()
            try:
                result = _judge(mutant, tree, selection.tests(mutant.path, mutant.line), most)
            finally:
                trees.put(tree)
            if path is not None:
                with path.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
            if result.outcome != "killed":
                print(f"{result.outcome}: {mutant.name}\n    {_line_of(mutant)}\n    {result.by}", flush=True)
            return result

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, mutants))


def _judge(mutant: Mutant, tree: Path, tests: list[tuple[str, float]], most: float) -> Result:
    began = time.monotonic()
    source = (ROOT / mutant.path).read_text()
    if not tests:
        return Result(mutant, "survived", "no test runs this module", 0.0)
    chosen, planned = list[str](), 0.0
    for test, seconds in tests:
        if planned > most / 2:
            break
        chosen.append(test)
        planned += seconds
    names = tree / "chosen-tests"
    names.write_text("\n".join(chosen))
    changed = tree / mutant.path
    changed.write_text(mutant.applied(source))
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", f"@{names}"]
    try:
        ended = subprocess.run(
            command, cwd=tree, capture_output=True, text=True, timeout=START + 3 * planned, check=False
        )
        is_killed = ended.returncode != 0
        found = _KILLER.search(ended.stdout)
        by = found[1] if found else ended.stdout[-300:]
    except subprocess.TimeoutExpired:
        is_killed, by = True, "the tests did not end"
    finally:
        changed.write_text(source)
    if not is_killed:
        by = f"{len(chosen)} of {len(tests)} tests that run it passed"
    return Result(mutant, "killed" if is_killed else "survived", by, round(time.monotonic() - began, 1))


def _line_of(mutant: Mutant) -> str:
    return (ROOT / mutant.path).read_text().splitlines()[mutant.line - 1].strip()


def _explained() -> dict[tuple[str, str, str], str]:
    """Return the reasons of accepted survivors, by (file, operator, the line's text)."""
    listed = tomllib.loads((Path(__file__).parent / "survivors.toml").read_text()).get("survivor", [])
    return {(each["path"], each["operator"], each["line"]): each["reason"] for each in listed}


if __name__ == "__main__":
    sys.exit(main())
