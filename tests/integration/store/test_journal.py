"""The journal: what an attempt has written down is there for the next one, and only the lease may write."""

from datetime import timedelta
from threading import Thread
from typing import Any
from uuid import uuid4

from sqlalchemy import text

from store.monitoring import sweep_queries
from store.primitives.ids import new_id
from store.runs import attempt_records
from store.runs.activations import Claim
from tests.integration.engine import Bench, until

GONE = timedelta(milliseconds=-1)  # a lease that has run out


def test_next_attempt_reads_journal_entry_of_an_earlier_attempt(bench: Bench):
    claim = a_claim(bench)

    with bench.database.transaction() as tx:
        assert attempt_records.put_journal_entry(tx, claim, "round:0", {"text": "Let me look."})

    with bench.database.transaction() as tx:
        assert attempt_records.get_journal_entry(tx, claim, "round:0") == {"text": "Let me look."}
        assert attempt_records.get_journal_entry(tx, claim, "round:1") is None


def test_journal_entry_is_never_overwritten(bench: Bench):
    claim = a_claim(bench)

    with bench.database.transaction() as tx:
        assert attempt_records.put_journal_entry(tx, claim, "call:0", "first") is True
        # the attempt holds its lease, and goes on
        assert attempt_records.put_journal_entry(tx, claim, "call:0", "second") is False

    with bench.database.transaction() as tx:
        assert attempt_records.get_journal_entry(tx, claim, "call:0") == "first"


def test_attempt_without_its_lease_writes_no_journal_entry(bench: Bench):
    claim = a_claim(bench)
    stale = Claim(**{name: getattr(claim, name) for name in Claim.__slots__} | {"lease_id": uuid4()})

    with bench.database.transaction() as tx:
        assert attempt_records.put_journal_entry(tx, stale, "call:0", "too late") is None
        assert attempt_records.get_journal_entry(tx, claim, "call:0") is None


def test_at_most_one_of_two_attempts_writes_the_journal_entry_of_a_begun_effect(bench: Bench):
    """Whoever stands still with a record that is not committed keeps the sweeper and the next attempt away."""
    run = bench.start("begin -> work")
    first = bench.claim(run, "begin", lease=GONE)

    with bench.database.transaction() as tx:
        assert attempt_records.put_journal_entry(tx, first, "mail:begun:0", True) is True
        assert swept(bench) == []
        assert bench.try_claim(run, "begin") is None
    assert swept(bench) == [run.id]
    bench.coordinator.advance_run(run.id)
    second = bench.claim(run, "begin")

    with bench.database.transaction() as tx:
        assert attempt_records.get_journal_entry(tx, second, "mail:begun:0") is True
        assert attempt_records.put_journal_entry(tx, first, "mail:begun:0", True) is None
        assert attempt_records.put_journal_entry(tx, second, "mail:begun:0", True) is False


def test_attempt_whose_lease_is_being_expired_waits_and_writes_no_journal_entry(bench: Bench):
    run = bench.start("begin -> work")
    claim = bench.claim(run, "begin", lease=GONE)
    results: list[bool | None] = []

    def record() -> None:
        with bench.database.transaction() as tx:
            results.append(attempt_records.put_journal_entry(tx, claim, "mail:begun:0", True))

    recording = Thread(target=record)
    with bench.database.transaction() as tx:
        assert sweep_queries.expire_leases(tx) == [run.id]
        recording.start()
        until(lambda: is_waited_for(bench))
    recording.join()

    assert results == [None]


def swept(bench: Bench) -> list[Any]:
    with bench.database.transaction() as tx:
        return sweep_queries.expire_leases(tx)


def is_waited_for(bench: Bench) -> bool:
    waiting = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%journal%')"
    with bench.database.transaction() as tx:
        return tx.scalar(text(waiting))


def test_tool_calls_are_listed_in_order_and_grouped_by_node(bench: Bench):
    run, turn = new_id(), new_id()
    with bench.database.transaction() as tx:
        for node, tool in (("Agent:A", "one"), ("Agent:A", "two"), ("Agent:B", "three"), ("Agent:A", "four")):
            attempt_records.add_tool_call(tx, run, turn, node, {"tool_name": tool})

    with bench.database.transaction() as tx:
        told = attempt_records.list_tool_calls(tx, run, turn)

    assert [(item["component_id"], [call["tool_name"] for call in item["trace"]]) for item in told] == [
        ("Agent:A", ["one", "two"]),
        ("Agent:B", ["three"]),
        ("Agent:A", ["four"]),
    ]


def a_claim(bench: Bench) -> Claim:
    claim = bench.try_claim(bench.start("begin -> work"), "begin")
    assert claim is not None
    return claim
