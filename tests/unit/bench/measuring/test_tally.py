"""What passed in between is the difference of two tallies."""

from collections import Counter

from bench.measuring.tally import Tally


def test_a_tally_of_the_time_between_is_what_was_added():
    before = Tally(round_trips=2, statements=Counter(select=3))
    after = Tally(round_trips=7, bytes_asked=10, statements=Counter(select=5, begin=1))

    between = after - before

    assert between == Tally(round_trips=5, bytes_asked=10, statements=Counter(select=2, begin=1))
    assert before + between == after


def test_what_happens_anyway_may_come_to_less_than_nothing():
    found = Tally(statements=Counter(ping=1)) - Tally(statements=Counter(ping=4)) * 0.5

    assert found.statements["ping"] == -1


def test_a_copy_stays_as_it_is():
    tally = Tally(statements=Counter(select=1))

    kept = tally.copy()
    tally.statements["select"] += 1

    assert kept.statements == Counter(select=1)
