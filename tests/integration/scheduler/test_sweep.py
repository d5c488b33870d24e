"""The sweeper: lost task messages, expired leases and forms, and runs that make no progress."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import redis
import structlog
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from canvas.errors import StateError
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.version_cache import VersionCache
from scheduler.messaging.celery_app import EXECUTE, QUEUE_PROBE, make_app
from scheduler.messaging.dispatch import Dispatch
from scheduler.messaging.redis_bus import Bus
from scheduler.sweeper import sweeper as sweeping
from scheduler.sweeper.sweeper import Sweeper
from settings import MAX_LEASE
from store.db.database import Database
from store.db.transaction import Transaction
from store.monitoring import queue_probes, sweep_queries
from store.tables.runs import activations, runs
from store.tables.tenants import conversations
from tests.builders import content
from tests.integration.engine import FORM, REDIS_AWAY, Bench, Run

AT_ONCE = timedelta(0)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for each test, since a sweeper sees all of its rows."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def no_observation_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sweeper expire leases at its first tick, without an observation time."""
    monkeypatch.setattr(sweeping, "MIN_UNINTERRUPTED", 0.0)


@pytest.fixture
def probes_settle_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a returned probe count at once."""
    monkeypatch.setattr(sweeping, "PROBE_SETTLES", 0.0)


# -- task messages ---------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("probes_settle_at_once")
def test_lost_task_message_is_sent_again_after_a_later_probe_returned(bench: Bench):
    run = bench.start("begin -> work")
    bench.outbox.lose()
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    at_first = bench.outbox.of(EXECUTE)
    return_probe(bench, timedelta(seconds=3))
    sweeper.tick()

    assert at_first == []
    assert bench.outbox.of(EXECUTE) == [(str(run.id), str(run.activation("begin").id))]


def test_task_messages_of_a_long_queue_are_not_sent_again(bench: Bench):
    for _ in range(5):
        bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)
    return_probe(bench, timedelta(seconds=-20))

    for _ in range(3):
        sweeper.tick()

    assert len(bench.outbox.of(EXECUTE)) == 5
    assert len(bench.outbox.of(QUEUE_PROBE)) == 3


def test_queue_probe_from_the_future_causes_no_second_message(bench: Bench):
    """For example a probe that was sent while the clock was ahead, or by another program."""
    runs = [bench.start("begin -> work") for _ in range(5)]
    with bench.database.transaction() as tx:
        queue_probes.record_return(tx, "nodes", datetime(9999, 12, 31, tzinfo=UTC))
        tx.execute(
            text("insert into canaries (queue, sent_at) values ('nodes', now() + interval '1 h')")
        )  # an earlier one
    sweeper = Sweeper(bench.coordinator)

    for _ in range(5):
        sweeper.tick()

    assert len(bench.outbox.of(EXECUTE)) == len(runs)
    return_probe(bench, timedelta(0))  # the next probe counts again
    with bench.database.transaction() as tx:
        latest = queue_probes.latest_return(tx, "nodes")
    assert latest is not None
    assert latest <= datetime.now(UTC) + timedelta(seconds=5)


def test_work_continues_at_once_after_the_clock_jumped_back_an_hour(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeping, "MIN_UNINTERRUPTED", 0.0)
    ready, lost = bench.start("begin -> work"), bench.start("begin -> work")
    bench.claim(lost, "begin")
    for run in (ready, lost):
        shift_by_an_hour(bench, run)  # as the clock wrote them before the jump
    bench.outbox.lose()
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    bench.play()

    assert (ready.status, lost.status) == ("succeeded", "succeeded")
    assert (ready.activation("begin").crash_count, lost.activation("begin").crash_count) == (0, 1)
    assert len(bench.outbox.of(EXECUTE)) == 0
    sweeper.tick()
    assert len(bench.outbox.of(EXECUTE)) == 0


SHIFT_BY_AN_HOUR = text("""
    update activations set enqueued_at = enqueued_at + interval '1 h', lease_until = lease_until + interval '1 h',
        not_before = case when not_before > now() - interval '1 d' then not_before + interval '1 h' else not_before end
    where run_id = :run_id
""")


def shift_by_an_hour(bench: Bench, run: Run) -> None:
    with bench.database.transaction() as tx:
        tx.execute(SHIFT_BY_AN_HOUR, run_id=run.id)


def test_queue_probes_do_not_pile_up_without_a_worker(bench: Bench):
    sweeper = Sweeper(bench.coordinator)
    return_probe(bench, timedelta(minutes=-10))

    for _ in range(2 * sweeping.PROBE_BACKOFF_TICKS):
        sweeper.tick()

    assert len(bench.outbox.of(QUEUE_PROBE)) == 2


@pytest.mark.parametrize("has_returned_before", [False, True])
def test_flushed_redis_resends_task_messages_without_waiting_for_a_probe(bench: Bench, has_returned_before: bool):
    if has_returned_before:
        return_probe(bench, timedelta(minutes=-1))
    runs = [bench.start("begin -> work") for _ in range(3)]
    bus = Bus(bench.redis_url)
    sweeper = Sweeper(Coordinator(bench.database, Dispatch(bench.outbox, bus, is_broker=True), VersionCache()))  # pyright: ignore[reportArgumentType] (stands for Celery)
    sweeper.tick()
    bench.outbox.lose()
    with redis.Redis.from_url(bench.redis_url) as server:
        server.flushdb()

    sweeper.tick()  # finds Redis empty
    sweeper.tick()
    sweeper.tick()

    assert sorted(bench.outbox.of(EXECUTE)) == sorted((str(run.id), str(run.activation("begin").id)) for run in runs)
    bus.close()


@pytest.mark.usefixtures("probes_settle_at_once")
def test_resent_task_message_is_not_sent_again_at_once(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, enqueued_at=datetime.now(UTC) - timedelta(seconds=10))
    bench.outbox.lose()
    return_probe(bench, timedelta(0))
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    sweeper.tick()

    assert len(bench.outbox.of(EXECUTE)) == 1


def test_task_message_of_an_activation_that_is_not_due_is_not_sent(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, not_before=datetime.now(UTC) + timedelta(minutes=1), enqueued_at=None)
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()

    assert bench.outbox.of(EXECUTE) == []


def test_task_messages_repeated_in_any_order_change_nothing(bench: Bench):
    run = bench.start("begin -> one, two -> say", say=content("done"))

    known = 0
    while bench.outbox.sent:
        fresh = bench.outbox.sent[known:]
        bench.outbox.sent[:] = [*reversed(fresh), *bench.outbox.sent]
        known = len(bench.outbox.sent) - 1
        bench.play(until=once())

    assert (run.status, run.text) == ("succeeded", "done")
    assert {row.attempt for row in run.activations} == {1}


# -- leases ----------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("no_observation_time")
def test_activation_of_a_dead_worker_is_executed_by_another_worker(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert run.status == "succeeded"
    assert (run.activation("begin").attempt, run.activation("begin").crash_count) == (2, 1)


@pytest.mark.usefixtures("no_observation_time")
def test_activation_that_lost_three_workers_is_not_claimed_again(bench: Bench):
    run = bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)

    for _ in range(3):
        bench.claim(run, "begin", lease=AT_ONCE)
        sweeper.tick()

    assert run.status == "failed"
    assert run.row["error"] == "Node begin: The worker was lost."
    assert (run.activation("begin").attempt, run.activation("begin").crash_count) == (3, 3)
    assert bench.try_claim(run, "begin") is None


@pytest.mark.usefixtures("no_observation_time")
def test_valid_lease_is_not_expired(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=timedelta(seconds=5))

    Sweeper(bench.coordinator).tick()

    assert run.statuses == {"begin": "running"}


@pytest.mark.usefixtures("no_observation_time")
def test_lease_of_the_maximum_length_is_not_expired_by_a_sweeper_with_other_settings(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=MAX_LEASE)

    Sweeper(bench.coordinator).tick()

    assert run.statuses == {"begin": "running"}


def test_new_sweeper_expires_leases_only_after_its_observation_time(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)
    sweeper = Sweeper(bench.coordinator)

    tick_times(sweeper, clock, 6)
    at_first = run.statuses["begin"]
    tick_times(sweeper, clock, 1)

    assert (at_first, run.statuses["begin"]) == ("running", "ready")


@pytest.mark.parametrize(("gap", "continues"), [(0, True), (3, True), (4, True), (5, False)])
def test_sweeper_continues_the_observation_of_its_predecessor_after_a_short_gap(
    bench: Bench, clock: "Clock", gap: int, continues: bool
):
    run = bench.start("begin -> work")
    tick_times(Sweeper(bench.coordinator), clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    clock.advance(gap - 1)
    tick_times(Sweeper(bench.coordinator), clock, 1)

    assert run.statuses["begin"] == ("ready" if continues else "running")


def test_repeatedly_killed_sweeper_still_finds_expired_leases(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)

    for _ in range(4):
        tick_times(Sweeper(bench.coordinator), clock, 2)

    assert run.statuses["begin"] == "ready"


@pytest.mark.parametrize("jump", [timedelta(minutes=2), timedelta(minutes=-2), timedelta(seconds=-1.5)])
def test_clock_jump_between_two_sweepers_expires_no_lease(bench: Bench, clock: "Clock", jump: timedelta):
    run = bench.start("begin -> work")
    tick_times(Sweeper(bench.coordinator), clock, 8)
    bench.claim(run, "begin", lease=timedelta(minutes=-5))

    clock.jump = jump
    second = Sweeper(bench.coordinator)
    tick_times(second, clock, 6)
    at_first = run.statuses["begin"]
    tick_times(second, clock, 1)

    assert (at_first, run.statuses["begin"]) == ("running", "ready")


def test_outage_observed_by_one_sweeper_restarts_the_observation_of_the_next_one(
    bench: Bench, clock: "Clock", monkeypatch: pytest.MonkeyPatch
):
    run = bench.start("begin -> work")
    first = Sweeper(bench.coordinator)
    tick_times(first, clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    run_one_failing_tick(first, monkeypatch, OperationalError("select", {}, Exception("away")))
    first.tick()
    clock.advance(1)
    tick_times(Sweeper(bench.coordinator), clock, 1)

    assert run.statuses["begin"] == "running"


def test_clock_jump_of_the_database_expires_no_lease(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)
    tick_times(sweeper, clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    clock.jump = timedelta(minutes=2)
    tick_times(sweeper, clock, 6)
    at_first = run.statuses["begin"]
    tick_times(sweeper, clock, 1)

    assert (at_first, run.statuses["begin"]) == ("running", "ready")


@pytest.mark.parametrize("outage", ["a gap", "an error"])
def test_database_outage_expires_no_lease(bench: Bench, clock: "Clock", monkeypatch: pytest.MonkeyPatch, outage: str):
    run = bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)
    tick_times(sweeper, clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    if outage == "a gap":
        clock.advance(30)
    else:
        run_one_failing_tick(sweeper, monkeypatch, OperationalError("select", {}, Exception("away")))
    tick_times(sweeper, clock, 6)
    at_first = run.statuses["begin"]
    tick_times(sweeper, clock, 1)

    assert (at_first, run.statuses["begin"]) == ("running", "ready")


# -- runs ------------------------------------------------------------------------------------------------------------
def test_unapplied_report_is_applied_on_the_second_tick(bench: Bench):
    run = bench.start("begin -> work")
    bench.report(bench.claim(run, "begin"))
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    at_first = run.statuses["begin"]
    sweeper.tick()

    assert (at_first, run.statuses["begin"]) == ("reported", "done")


@pytest.mark.parametrize("lost", ["task message", "handover"])
def test_queued_run_of_an_idle_conversation_is_started(bench: Bench, lost: str):
    first = bench.start("begin -> work")
    second = bench.start("begin -> work", conversation_id=first.conversation_id, on_busy="enqueue")
    bench.play(until=lambda: first.status == "succeeded")
    if lost == "handover":
        with bench.database.transaction() as tx:
            tx.execute(conversations.update().values(active_run=None))
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()

    assert second.status == "running"


def test_run_with_an_expired_form_fails_with_that_reason(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    bench.play()
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == run.id).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))

    Sweeper(bench.coordinator).tick()

    assert (run.status, run.row["error"]) == ("failed", "The form was not answered in time.")
    assert run.statuses["form"] == "closed"
    assert run.events[-1].body["code"] == "form_expired"


def test_form_does_not_expire_before_its_time(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    bench.play()

    Sweeper(bench.coordinator).tick()

    assert run.status == "waiting"
    assert run.row["expires_at"] - datetime.now(UTC) > timedelta(days=29)


def test_stopping_run_whose_last_advance_was_lost_is_cancelled(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.report(claimed)

    sweeper = Sweeper(bench.coordinator)
    sweeper.tick()

    assert run.status == "cancelled"


def test_stopping_run_without_attempts_and_reports_is_cancelled(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    change(bench, run, status="closed", lease_id=None, lease_until=None)

    assert run.status == "stopping"
    Sweeper(bench.coordinator).tick()

    assert run.status == "cancelled"


def test_stalled_run_is_logged_as_an_error_with_its_id(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeping, "log", structlog.get_logger())  # a logger that is not cached
    lost, healthy = bench.start("begin -> work"), bench.start("begin -> form -> say", form=FORM, say=content("x"))
    bench.play()
    again = bench.start("begin -> work")
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == lost.id).values(status="running"))

    with capture_logs() as logs:
        for _ in range(sweeping.SLOW_CHECK_TICKS + 1):
            Sweeper(bench.coordinator).tick()

    alarms = [(line["run_id"], line["log_level"]) for line in logs if line["event"] == "run_stalled"]
    assert set(alarms) == {(str(lost.id), "error")}
    assert (healthy.status, again.status) == ("waiting", "running")


@pytest.mark.parametrize("whose", ["run", "session"])
def test_cancel_key_of_another_program_cancels_a_run_without_attempts(bench: Bench, whose: str):
    run = bench.start("begin -> form -> say", form=FORM, say=content("never"))
    bench.play()
    named = run.id if whose == "run" else run.conversation_id
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{named}-cancel", "anything")

        Sweeper(bench.coordinator).tick()

        assert run.status == "cancelled"
        assert client.exists(f"{named}-cancel") == 0


# -- robustness ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("no_observation_time")
def test_concurrent_sweepers_do_everything_once(bench: Bench):
    run = bench.start("begin -> one, two, three")
    bench.play(until=lambda: "one" in run.statuses)
    for node in ("one", "two", "three"):
        bench.claim(run, node, lease=AT_ONCE)
    bench.outbox.lose()
    both = Barrier(2)

    def tick(sweeper: Sweeper) -> bool:
        both.wait()
        return sweeper.tick()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(tick, Sweeper(bench.a_coordinator())) for _ in range(2)]:
            done.result()

    assert {row.crash_count for row in run.activations if row.node_id != "begin"} == {1}
    assert len(bench.outbox.of(EXECUTE)) == 3


def test_tick_is_done_by_one_sweeper_and_the_other_keeps_its_observation(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)
    sweeper = Sweeper(bench.coordinator)

    with bench.database.transaction() as tx:
        assert sweep_queries.try_sweep(tx)[0]
        tick_times(sweeper, clock, 7)
        while_another_sweeps = run.statuses["begin"]
    tick_times(sweeper, clock, 1)

    assert (while_another_sweeps, run.statuses["begin"]) == ("running", "ready")


@pytest.mark.usefixtures("no_observation_time")
@pytest.mark.parametrize("problem", [StateError("Stored facts contradict each other."), KeyError("live")])
def test_failed_advance_of_one_run_does_not_prevent_the_advance_of_others(bench: Bench, problem: Exception):
    broken, healthy = bench.start("begin -> work"), bench.start("begin -> work")
    for run in (broken, healthy):
        bench.claim(run, "begin", lease=AT_ONCE)

    class FailingCoordinator(Coordinator):
        def advance_run(self, run_id: Any) -> None:
            if run_id == broken.id:
                raise problem
            super().advance_run(run_id)

    Sweeper(bench.a_coordinator(kind=FailingCoordinator)).tick()

    assert (broken.statuses["begin"], healthy.statuses["begin"]) == ("reported", "ready")


@pytest.mark.usefixtures("probes_settle_at_once")
def test_lost_task_message_is_sent_again_although_an_occasional_check_fails(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    def too_slow(tx: Transaction) -> list[UUID]:
        raise OperationalError("select", {}, Exception("canceling statement due to statement timeout"))

    monkeypatch.setattr(sweep_queries, "stalled_runs", too_slow)
    run = bench.start("begin -> work")
    bench.outbox.lose()
    return_probe(bench, timedelta(seconds=3))

    with pytest.raises(OperationalError):
        Sweeper(bench.coordinator).tick()

    assert bench.outbox.of(EXECUTE) == [(str(run.id), str(run.activation("begin").id))]


@pytest.mark.usefixtures("no_observation_time")
def test_sweeper_works_without_pauses_while_redis_is_unreachable(bench: Bench, pauses: list[float]):
    lost, unapplied = bench.start("begin -> work"), bench.start("begin -> work")
    bench.claim(lost, "begin", lease=AT_ONCE)
    bench.report(bench.claim(unapplied, "begin"))
    away = Coordinator(bench.database, Dispatch(make_app(REDIS_AWAY), Bus(REDIS_AWAY)), VersionCache())
    sweeper = Sweeper(away)

    sweeper.tick()
    sweeper.tick()

    assert sum(pauses) == 0
    assert (lost.statuses["begin"], unapplied.statuses["begin"]) == ("ready", "done")


def test_sweeper_runs_until_it_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeping, "TICK", 0.01)
    sweeper, ending, ticks = Sweeper(bench.coordinator), Event(), [0]
    tick = sweeper.tick

    def counted() -> bool:
        ticks[0] += 1
        if ticks[0] == 3:
            ending.set()
        return tick()

    monkeypatch.setattr(sweeper, "tick", counted)
    sweeper.run(ending)

    assert ticks == [3]
    assert len(bench.outbox.of(QUEUE_PROBE)) == 3


# -- helpers ---------------------------------------------------------------------------------------------------------
class Clock:
    """Time as the sweeper sees it: its own, and the database's, which may jump."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.jump = timedelta(0)

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def try_sweep(self, real: Callable[[Transaction], tuple[bool, datetime]]) -> Callable[..., tuple[bool, datetime]]:
        begun = datetime.now(UTC)

        def try_sweep_at_this_time(tx: Transaction) -> tuple[bool, datetime]:
            return real(tx)[0], begun + timedelta(seconds=self.now - 1000) + self.jump

        return try_sweep_at_this_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(sweep_queries, "try_sweep", clock.try_sweep(sweep_queries.try_sweep))
    return clock


def tick_times(sweeper: Sweeper, clock: Clock, times: int) -> None:
    """Tick that many times, a second apart."""
    for _ in range(times):
        sweeper.tick()
        clock.advance(1)


def run_one_failing_tick(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Run the loop of the sweeper for one tick, which raises this error."""
    ending = Event()

    def tick() -> bool:
        ending.set()
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(sweeping, "TICK", 0.0)
        patch.setattr(sweeper, "tick", tick)
        sweeper.run(ending)


def return_probe(bench: Bench, ahead: timedelta) -> None:
    """Record the return of a queue probe that was sent `ahead` after the latest task messages."""
    with bench.database.transaction() as tx:
        if ahead > timedelta(0):
            tx.execute(activations.update().values(enqueued_at=activations.c.enqueued_at - ahead))
        queue_probes.record_return(tx, "nodes", tx.scalar(text("select now()")) + min(ahead, timedelta(0)))


def change(bench: Bench, run: Run, **values: Any) -> None:
    with bench.database.transaction() as tx:
        tx.execute(activations.update().where(activations.c.run_id == run.id).values(**values))


def once() -> Callable[[], bool]:
    left = iter([False])
    return lambda: next(left, True)
