"""The journal: later attempts read its entries, and only the holder of the lease may write."""

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

EXPIRED = timedelta(milliseconds=-1)  # the length of a lease that has expired already


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
        # the attempt still holds its lease
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
    """An uncommitted entry blocks the sweeper and the next attempt."""
    run = bench.start("begin -> work")
    first = bench.claim(run, "begin", lease=EXPIRED)

    with bench.database.transaction() as tx:
        assert attempt_records.put_journal_entry(tx, first, "mail:begun:0", True) is True
        assert expire_leases(bench) == []
        assert bench.try_claim(run, "begin") is None
    assert expire_leases(bench) == [run.id]
    bench.coordinator.advance_run(run.id)
    second = bench.claim(run, "begin")

    with bench.database.transaction() as tx:
        assert attempt_records.get_journal_entry(tx, second, "mail:begun:0") is True
        assert attempt_records.put_journal_entry(tx, first, "mail:begun:0", True) is None
        assert attempt_records.put_journal_entry(tx, second, "mail:begun:0", True) is False


def test_attempt_whose_lease_is_being_expired_waits_and_writes_no_journal_entry(bench: Bench):
    run = bench.start("begin -> work")
    claim = bench.claim(run, "begin", lease=EXPIRED)
    results: list[bool | None] = []

    def record() -> None:
        with bench.database.transaction() as tx:
            results.append(attempt_records.put_journal_entry(tx, claim, "mail:begun:0", True))

    recording = Thread(target=record)
    with bench.database.transaction() as tx:
        assert sweep_queries.expire_leases(tx) == [run.id]
        recording.start()
        until(lambda: a_journal_write_waits(bench))
    recording.join()

    assert results == [None]


def expire_leases(bench: Bench) -> list[Any]:
    with bench.database.transaction() as tx:
        return sweep_queries.expire_leases(tx)


def a_journal_write_waits(bench: Bench) -> bool:
    waiting = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%journal%')"
    with bench.database.transaction() as tx:
        return tx.scalar(text(waiting))


def test_tool_calls_are_listed_in_order_and_grouped_by_node(bench: Bench):
    run, message_id = new_id(), new_id()
    with bench.database.transaction() as tx:
        for node, tool in (("Agent:A", "one"), ("Agent:A", "two"), ("Agent:B", "three"), ("Agent:A", "four")):
            attempt_records.add_tool_call(tx, run, message_id, node, {"tool_name": tool})

    with bench.database.transaction() as tx:
        groups = attempt_records.list_tool_calls(tx, run, message_id)

    assert [(item["component_id"], [call["tool_name"] for call in item["trace"]]) for item in groups] == [
        ("Agent:A", ["one", "two"]),
        ("Agent:B", ["three"]),
        ("Agent:A", ["four"]),
    ]


def a_claim(bench: Bench) -> Claim:
    claim = bench.try_claim(bench.start("begin -> work"), "begin")
    assert claim is not None
    return claim
