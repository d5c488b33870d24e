"""`easel up`, whose processes are killed at random while runs of every kind go on. `make faults` does it for longer."""

import pytest

from tests.faults import chaos

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else


def test_whatever_is_killed_at_random_runs_end_as_if_nothing_had_happened(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_LEASE", "4s")
    monkeypatch.setenv("EASEL_RENEW_EVERY", "1s")
    wanted = chaos.options(["--runs", "30", "--seconds", "8", "--seed", "11"])

    tally, wrong = chaos.on_its_own(wanted)

    assert tally.is_kept, "\n".join(wrong)
    assert tally.started == tally.ended == 30
    assert tally.kills > 1
    assert tally.effects > 0
