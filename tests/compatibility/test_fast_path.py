"""A sample of the recorded cases comes out the same with the fast path on and off, whoever advances."""

from collections.abc import Callable, Mapping

import pytest

from cli.conformance.cases import Case, load_case
from cli.conformance.report import PassedCase, Verdict
from local_engine import Engine
from tests.compatibility.conftest import RECORDINGS
from tests.compatibility.test_recordings import undisputed
from worker.fastpath.switches import NO_FAST_PATH, FastPath

SAMPLE = undisputed()[::12]


@pytest.fixture(
    scope="module",
    params=[{}, {"fast_path": False}, {"fast_path": False, "inline_advance": False}],
    ids=["all on", "fast path off", "fast path and inline advance off"],
)
def switches(request: pytest.FixtureRequest) -> Mapping[str, bool]:
    return request.param


@pytest.mark.parametrize("name", SAMPLE)
def test_a_recorded_canvas_runs_as_it_is(name: str, verdict_of: Callable[[Case], Verdict]):
    case = load_case(RECORDINGS / "cases" / f"{name}.json", RECORDINGS)

    assert verdict_of(case) == PassedCase(name)


def test_the_engine_has_the_fast_path_that_its_settings_say(engine: Engine, switches: Mapping[str, bool]):
    assert engine.worker.execution.fast_path == (FastPath() if switches.get("fast_path", True) else NO_FAST_PATH)
