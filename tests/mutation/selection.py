"""Which tests run a line: recorded once for a commit, and stored beside the tree (`.mutants/`)."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from coverage import CoverageData

DECLARATIONS = {"store/tables/": ("tests/integration/store/test_migrations.py", 30.0)}
"""Tests of modules that only declare something, so that no line of them runs in a test: (tests, seconds)."""
FOLDERS = ("tests/unit", "tests/integration", "tests/simulator", "tests/attacks")


class Selection:
    """Tests by the lines that they run, from the files that `tests.mutation.recorder` has written."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._root = root
        self._data = CoverageData(basename=str(folder / "lines"))
        if not Path(self._data.data_filename()).exists():
            for part in sorted(folder.glob("lines.*")):
                other = CoverageData(basename=str(part))
                other.read()
                self._data.update(other)
            self._data.write()
        self._data.read()
        self._seconds: dict[str, float] = {}
        for part in folder.glob("seconds.*.json"):
            for test, seconds in json.loads(part.read_text()).items():
                self._seconds[test] = max(seconds, self._seconds.get(test, 0.0))

    def tests(self, path: str, line: int) -> list[tuple[str, float]]:
        """Return (test, seconds) of the tests that run a line, the fastest first.

        For a line that runs only while its module is imported: the tests that run anything of the module.
        """
        contexts = self._data.contexts_by_lineno(str(self._root / path))
        found = set(contexts.get(line, ())) - {""}
        if not found:
            found = {test for tests in contexts.values() for test in tests} - {""}
        if not found:
            return [tests for folder, tests in DECLARATIONS.items() if path.startswith(folder)]
        return sorted(((test, self._seconds.get(test, 1.0)) for test in found), key=lambda each: (each[1], each[0]))


def record(folder: Path, root: Path, jobs: int) -> None:
    """Run the tests once and write down which lines each one runs. Takes about twice as long as the tests alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.mutation.recorder", "-p", "no:cacheprovider"]
    environment = {**os.environ, "EASEL_MUTATION_MAP": str(folder)}
    subprocess.run([*command, "-n", str(jobs), *FOLDERS], cwd=root, env=environment, check=False)
    (folder / "of").write_text(state_of(root, ("tests",)))


def state_of(root: Path, folders: Iterable[str]) -> str:
    """A digest of the Python files below some folders, by which a recording is known to be old."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
