"""Every recorded case without deviations has the result that RAGFlow's executor recorded."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.conformance.cases import Case, load_case
from cli.conformance.report import PassedCase, Verdict

RECORDINGS = Path(__file__).parents[1] / "recordings"


def cases_without_deviations() -> list[str]:
    """Return the names of the cases without deviations."""
    files = sorted((RECORDINGS / "cases").glob("*.json"))
    return [file.stem for file in files if not json.loads(file.read_text())["deviations"]]


@pytest.mark.parametrize("name", cases_without_deviations())
def test_recorded_case_matches_its_recording(name: str, verdict_of: Callable[[Case], Verdict]):
    case = load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)

    assert verdict_of(case) == PassedCase(name)
