"""A plugin of pytest that records which lines of the product each test runs, in all threads of its process.

Use `-p tests.mutation.recorder`, with the folder for its files in EASEL_MUTATION_MAP. Each process of xdist writes a
file of its own.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

PACKAGES = ["api", "canvas", "components", "knowledge", "providers", "scheduler", "store", "worker"]

_FOLDER = Path(os.environ["EASEL_MUTATION_MAP"])
_NAME = os.environ.get("PYTEST_XDIST_WORKER", "main")
_coverage = coverage.Coverage(
    data_file=str(_FOLDER / f"lines.{_NAME}"), config_file=False, source=PACKAGES, messages=False
)
_seconds: dict[str, float] = {}
_coverage.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count what runs from here on as the test's."""
    _coverage.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        _coverage.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how long a test takes."""
    _seconds[report.nodeid] = _seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Write what was recorded."""
    _coverage.stop()
    _coverage.save()
    (_FOLDER / f"seconds.{_NAME}.json").write_text(json.dumps(_seconds))
