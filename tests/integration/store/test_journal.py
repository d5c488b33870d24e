"""The journal: what an attempt has written down is there for the next one, and only the lease may write."""

from uuid import uuid4

from store import journal
from store.activations import Claim
from store.ids import new_id
from tests.integration.engine import Bench


def test_what_one_attempt_records_the_next_one_recalls(bench: Bench):
    claim = a_claim(bench)

    with bench.database.transaction() as tx:
        assert journal.record(tx, claim, "round:0", {"text": "Let me look."})

    with bench.database.transaction() as tx:
        assert journal.recall(tx, claim, "round:0") == {"text": "Let me look."}
        assert journal.recall(tx, claim, "round:1") is None


def test_what_is_recorded_stays_as_it_is(bench: Bench):
    claim = a_claim(bench)

    with bench.database.transaction() as tx:
        assert journal.record(tx, claim, "call:0", "first")
        assert journal.record(tx, claim, "call:0", "second")  # the attempt holds its lease, and goes on

    with bench.database.transaction() as tx:
        assert journal.recall(tx, claim, "call:0") == "first"


def test_an_attempt_that_has_lost_its_lease_records_nothing(bench: Bench):
    claim = a_claim(bench)
    stale = Claim(**{name: getattr(claim, name) for name in Claim.__slots__} | {"lease_id": uuid4()})

    with bench.database.transaction() as tx:
        assert not journal.record(tx, stale, "call:0", "too late")
        assert journal.recall(tx, claim, "call:0") is None


def test_tool_calls_are_told_in_order_with_those_of_one_node_together(bench: Bench):
    run, turn = new_id(), new_id()
    with bench.database.transaction() as tx:
        for node, tool in (("Agent:A", "one"), ("Agent:A", "two"), ("Agent:B", "three"), ("Agent:A", "four")):
            journal.trace(tx, run, turn, node, {"tool_name": tool})

    with bench.database.transaction() as tx:
        told = journal.traces(tx, run, turn)

    assert [(item["component_id"], [call["tool_name"] for call in item["trace"]]) for item in told] == [
        ("Agent:A", ["one", "two"]),
        ("Agent:B", ["three"]),
        ("Agent:A", ["four"]),
    ]


def a_claim(bench: Bench) -> Claim:
    claim = bench.try_claim(bench.start("begin -> work"), "begin")
    assert claim is not None
    return claim
