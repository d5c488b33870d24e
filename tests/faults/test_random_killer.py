"""Processes of `easel up` are killed at random while runs continue; `make faults` does so for longer."""

import pytest

from tests.faults import random_killer

pytestmark = pytest.mark.timeout(300)  # deadlines are for a machine that does nothing else


def test_runs_succeed_while_processes_are_killed_at_random(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("EASEL_LEASE", "4s")
    monkeypatch.setenv("EASEL_RENEW_EVERY", "1s")
    options = random_killer.parse_options(["--runs", "30", "--seconds", "8", "--seed", "11"])

    tally, wrong = random_killer.run_killer(options)

    assert tally.is_ok, "\n".join(wrong)
    assert tally.started == tally.ended == 30
    assert tally.kills > 1
    assert tally.effects > 0
