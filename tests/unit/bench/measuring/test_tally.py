"""Arithmetic of tallies."""

from collections import Counter

from bench.measuring.tally import Tally


def test_difference_of_tallies_is_the_traffic_in_between():
    before = Tally(round_trips=2, statements=Counter(select=3))
    after = Tally(round_trips=7, bytes_sent=10, statements=Counter(select=5, begin=1))

    between = after - before

    assert between == Tally(round_trips=5, bytes_sent=10, statements=Counter(select=2, begin=1))
    assert before + between == after


def test_idle_traffic_may_make_a_difference_negative():
    difference = Tally(statements=Counter(ping=1)) - Tally(statements=Counter(ping=4)) * 0.5

    assert difference.statements["ping"] == -1


def test_copy_does_not_change_with_its_tally():
    tally = Tally(statements=Counter(select=1))

    copy = tally.copy()
    tally.statements["select"] += 1

    assert copy.statements == Counter(select=1)
