"""What passed in between is the difference of two tallies."""

from collections import Counter

from bench.measuring.tally import Tally


def test_difference_of_tallies_is_the_traffic_in_between():
    before = Tally(round_trips=2, statements=Counter(select=3))
    after = Tally(round_trips=7, bytes_sent=10, statements=Counter(select=5, begin=1))

    between = after - before

    assert between == Tally(round_trips=5, bytes_sent=10, statements=Counter(select=2, begin=1))
    assert before + between == after


def test_idle_traffic_may_make_a_difference_negative():
    found = Tally(statements=Counter(ping=1)) - Tally(statements=Counter(ping=4)) * 0.5

    assert found.statements["ping"] == -1


def test_a_copy_stays_as_it_is():
    tally = Tally(statements=Counter(select=1))

    kept = tally.copy()
    tally.statements["select"] += 1

    assert kept.statements == Counter(select=1)
