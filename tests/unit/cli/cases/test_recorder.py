"""The order of recorded tool calls does not depend on which of them ended first."""

from itertools import permutations

from cli.cases.recorder import call_order


def test_tool_calls_are_sorted_by_their_round_and_their_place_in_it():
    asked = [
        (None, None),
        ("round:0", 0),
        ("round:0", 1),
        ("0:1/round:0", 0),
        ("0:1/round:1", 0),
        ("round:2", 0),
        ("round:10", 0),
    ]

    for ended in permutations(asked):
        assert sorted(ended, key=lambda call: call_order(*call)) == asked
