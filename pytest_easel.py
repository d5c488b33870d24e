"""A pytest plugin that runs recorded Easel cases as tests: `pytest --easel-cases FOLDER`.

Each case (`easel record RUN -o FOLDER/name.json`) is one test. The cases run in one `easel replay` process, which is
started with the first of them, so that nothing of Easel is imported into the tests' own process.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

CASE_FORMAT = '"easel-case/'
_HEAD_BYTES = 200  # of a file, in which the format of a case stands
_REPLAYER = pytest.StashKey["_Replayer"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--easel-cases`."""
    parser.getgroup("easel").addoption(
        "--easel-cases",
        action="append",
        default=[],
        metavar="FOLDER",
        help="Replay the recorded Easel runs in this folder as tests; may be repeated.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the folders of cases beside what pytest was called with. Refuse a folder that does not exist."""
    for path in _folders(config):
        if not path.exists():
            raise pytest.UsageError(f"--easel-cases: there is no {path}.")
        if str(path) not in config.args:
            config.args.append(str(path))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "CaseCollector | None":
    """Collect a JSON file that is a case and lies in one of the folders."""
    is_inside = any(file_path.resolve().is_relative_to(folder) for folder in _folders(parent.config))
    if file_path.suffix != ".json" or not is_inside:
        return None
    with file_path.open("rb") as file:
        head = file.read(_HEAD_BYTES).decode(errors="replace")
    return CaseCollector.from_parent(parent, path=file_path) if CASE_FORMAT in head else None


def _folders(config: pytest.Config) -> list[Path]:
    named: list[str] = config.getoption("--easel-cases") or []
    return [(config.invocation_params.dir / folder).resolve() for folder in named]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the process that replays."""
    replayer = session.config.stash.get(_REPLAYER, None)
    if replayer is not None:
        replayer.close()


class CaseDiffers(Exception):
    """A case came out differently, or could not be replayed. The text is what `easel replay` says about it."""


class CaseCollector(pytest.File):
    """The file of one case."""

    def collect(self) -> Iterable["CaseItem"]:
        """Yield the only test of the file."""
        yield CaseItem.from_parent(self, name="replay")


class CaseItem(pytest.Item):
    """The replay of one case."""

    def runtest(self) -> None:
        """Replay the case. Raises CaseDiffers."""
        stash = self.config.stash
        if _REPLAYER not in stash:
            stash[_REPLAYER] = _Replayer()
        verdict = stash[_REPLAYER].replay(self.path)
        if verdict["verdict"] != "same":
            raise CaseDiffers("\n".join(verdict["lines"]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what pytest prints of a failure: the differences, without a traceback."""
        if isinstance(excinfo.value, CaseDiffers):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return where the test is, and its title."""
        return self.path, None, f"case {self.path.stem}"


class _Replayer:
    """The process `easel replay --from-stdin`."""

    def __init__(self) -> None:
        command = shutil.which("easel", path=str(Path(sys.executable).parent)) or shutil.which("easel")
        if command is None:
            raise CaseDiffers("The command `easel` is not installed beside this Python: pip install 'easel[embedded]'.")
        self._process = subprocess.Popen(  # noqa: S603 (our own command)
            [command, "replay", "--from-stdin"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def replay(self, case: Path) -> dict[str, Any]:
        """Return the verdict on a case. Raises CaseDiffers if the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{case}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, as the next line shows
        line = self._process.stdout.readline()
        if not line:
            raise CaseDiffers(f"`easel replay` has ended with code {self._process.wait()}; its output says why.")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
