"""A returned probe counts once its return was seen a while ago."""

from datetime import UTC, datetime, timedelta

from scheduler.sweeper.sweeper import PROBE_SETTLES, ReturnedProbes

FIRST = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = FIRST + timedelta(seconds=1)


def test_probe_that_returned_just_now_does_not_count():
    probes = ReturnedProbes()

    assert [probes.proven(now, FIRST) for now in (0.0, 1.0, PROBE_SETTLES - 0.1)] == [None, None, None]


def test_probe_counts_once_its_return_was_seen_long_enough_ago():
    probes = ReturnedProbes()
    probes.proven(0.0, FIRST)

    assert probes.proven(PROBE_SETTLES, SECOND) == FIRST
    assert probes.proven(PROBE_SETTLES + 1, SECOND) == FIRST
    assert probes.proven(2 * PROBE_SETTLES, SECOND) == SECOND


def test_no_probe_counts_once_none_is_known_any_more():
    probes = ReturnedProbes()
    probes.proven(0.0, FIRST)
    probes.proven(PROBE_SETTLES, FIRST)

    assert probes.proven(PROBE_SETTLES + 1, None) is None
    assert probes.proven(PROBE_SETTLES + 2, FIRST) is None
