"""Every recorded case that names no deviation comes out as RAGFlow's own executor recorded it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conformance.cases import Case, load_case
from cli.conformance.report import PassedCase, Verdict

RECORDINGS = Path(__file__).parents[1] / "recordings"


def undisputed() -> list[str]:
    """Names of the cases without deviations."""
    files = sorted((RECORDINGS / "cases").glob("*.json"))
    return [file.stem for file in files if not json.loads(file.read_text())["deviations"]]


@pytest.mark.parametrize("name", undisputed())
def test_a_recorded_canvas_runs_as_it_is(name: str, verdict_of: Callable[[Case], Verdict]):
    case = load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)

    assert verdict_of(case) == PassedCase(name)
