"""A sample of the recorded cases has the same results with the fast path and inline advance on and off."""

from collections.abc import Callable, Mapping

import pytest

from cli.conformance.cases import Case, load_case
from cli.conformance.report import PassedCase, Verdict
from local_engine import Engine
from tests.compatibility.conftest import RECORDINGS
from tests.compatibility.test_recordings import cases_without_deviations
from worker.fastpath.switches import NO_FAST_PATH, FastPath

SAMPLE = cases_without_deviations()[::12]


@pytest.fixture(
    scope="module",
    params=[{}, {"fast_path": False}, {"fast_path": False, "inline_advance": False}],
    ids=["all on", "fast path off", "fast path and inline advance off"],
)
def switches(request: pytest.FixtureRequest) -> Mapping[str, bool]:
    return request.param


@pytest.mark.parametrize("name", SAMPLE)
def test_recorded_case_matches_its_recording(name: str, verdict_of: Callable[[Case], Verdict]):
    case = load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)

    assert verdict_of(case) == PassedCase(name)


def test_engine_uses_the_fast_path_that_its_settings_select(engine: Engine, switches: Mapping[str, bool]):
    assert engine.worker.execution.fast_path == (FastPath() if switches.get("fast_path", True) else NO_FAST_PATH)
