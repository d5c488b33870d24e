"""Which tests run a line: recorded once for a commit, and stored beside the tree (`.mutants/`)."""

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from coverage import CoverageData

DECLARATIONS = {"store/tables/": ("tests/integration/store/test_migrations.py", 30.0)}
"""Tests of modules that only declare something, so that no line of them runs in a test: (tests, seconds)."""
FOLDERS = ("tests/unit", "tests/integration", "tests/simulator", "tests/attacks", "tests/deviations")


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

        For a line outside of functions, which runs when its module is imported: the tests that run a function which
        uses the constant of that line, else any function of the module.
        """
        contexts = self._data.contexts_by_lineno(str(self._root / path))
        source = (self._root / path).read_text()
        found = set[str]()
        for lines in lines_to_run(source, line):
            found = {test for each in lines for test in contexts.get(each, ())} - {""}
            if found:
                break
        if not found:
            return [tests for folder, tests in DECLARATIONS.items() if path.startswith(folder)]
        return sorted(((test, self._seconds.get(test, 1.0)) for test in found), key=lambda each: (each[1], each[0]))


def lines_to_run(source: str, line: int) -> Iterator[set[int]]:
    """Yield the lines of which a test must run one, to be affected by a change of `line`; the best choice first."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    bodies = {node: {inner for each in node.body for inner in range(each.lineno, each.end_lineno + 1)}  # pyright: ignore
              for node in functions}  # fmt: skip
    if any(line in body for body in bodies.values()):
        yield {line}
        return
    names = _constants_with(tree, line)
    yield set().union(*(body for node, body in bodies.items() if _names_in(node) & names))
    yield set().union(*bodies.values())


def _constants_with(tree: ast.Module, line: int) -> set[str]:
    """Return the names of the module's constants whose value contains a line, or a constant whose value does."""
    values = {
        target.id: node
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    names = {name for name, node in values.items() if node.lineno <= line <= (node.end_lineno or 0)}
    while more := {name for name, node in values.items() if _names_in(node) & names} - names:
        names |= more
    return names


def _names_in(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


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
