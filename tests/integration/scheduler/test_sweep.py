"""The sweeper: what waits for somebody who will not come."""

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
from tests.builders import says
from tests.integration.engine import FORM, REDIS_AWAY, Bench, Run

AT_ONCE = timedelta(0)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A database for each test: a sweeper sees all that is in it."""
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeper believes what it sees at first sight."""
    monkeypatch.setattr(sweeping, "MIN_UNINTERRUPTED", 0.0)


# -- hints -----------------------------------------------------------------------------------------------------------
def test_lost_task_message_is_sent_again_after_a_later_probe_returned(bench: Bench):
    run = bench.start("begin -> work")
    bench.outbox.lose()
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    at_first = bench.outbox.of(EXECUTE)
    canary_sent(bench, timedelta(seconds=3))
    sweeper.tick()

    assert at_first == []
    assert bench.outbox.of(EXECUTE) == [(str(run.id), str(run.activation("begin").id))]


def test_a_long_queue_is_not_made_longer(bench: Bench):
    for _ in range(5):
        bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)
    canary_sent(bench, timedelta(seconds=-20))

    for _ in range(3):
        sweeper.tick()

    assert len(bench.outbox.of(EXECUTE)) == 5
    assert len(bench.outbox.of(QUEUE_PROBE)) == 3


def test_queue_probe_from_the_future_causes_no_second_message(bench: Bench):
    """Such as was sent while the clock was ahead, or by somebody else."""
    runs = [bench.start("begin -> work") for _ in range(5)]
    with bench.database.transaction() as tx:
        queue_probes.record_return(tx, "nodes", datetime(9999, 12, 31, tzinfo=UTC))
        tx.execute(text("insert into canaries (queue, sent_at) values ('nodes', now() + interval '1 h')"))  # of before
    sweeper = Sweeper(bench.coordinator)

    for _ in range(5):
        sweeper.tick()

    assert len(bench.outbox.of(EXECUTE)) == len(runs)
    canary_sent(bench, timedelta(0))  # the next one counts again
    with bench.database.transaction() as tx:
        latest = queue_probes.latest_return(tx, "nodes")
    assert latest is not None
    assert latest <= datetime.now(UTC) + timedelta(seconds=5)


def test_after_the_clock_has_gone_back_an_hour_everything_goes_on_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sweeping, "MIN_UNINTERRUPTED", 0.0)
    ready, lost = bench.start("begin -> work"), bench.start("begin -> work")
    bench.claim(lost, "begin")
    for run in (ready, lost):
        in_an_hour(bench, run)  # as they were written by the clock of before
    bench.outbox.lose()
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    bench.play()

    assert (ready.status, lost.status) == ("succeeded", "succeeded")
    assert (ready.activation("begin").strikes, lost.activation("begin").strikes) == (0, 1)
    assert len(bench.outbox.of(EXECUTE)) == 0
    sweeper.tick()
    assert len(bench.outbox.of(EXECUTE)) == 0


IN_AN_HOUR = text("""
    update activations set hinted_at = hinted_at + interval '1 h', lease_until = lease_until + interval '1 h',
        not_before = case when not_before > now() - interval '1 d' then not_before + interval '1 h' else not_before end
    where run_id = :run_id
""")


def in_an_hour(bench: Bench, run: Run) -> None:
    with bench.database.transaction() as tx:
        tx.execute(IN_AN_HOUR, run_id=run.id)


def test_queue_probes_do_not_pile_up_without_a_worker(bench: Bench):
    sweeper = Sweeper(bench.coordinator)
    canary_sent(bench, timedelta(minutes=-10))

    for _ in range(2 * sweeping.PROBE_BACKOFF_TICKS):
        sweeper.tick()

    assert len(bench.outbox.of(QUEUE_PROBE)) == 2


@pytest.mark.parametrize("came_back_before", [False, True])
def test_flushed_redis_resends_task_messages_without_waiting_for_a_probe(bench: Bench, came_back_before: bool):
    if came_back_before:
        canary_sent(bench, timedelta(minutes=-1))
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


def test_resent_task_message_is_not_sent_again_at_once(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, hinted_at=datetime.now(UTC) - timedelta(seconds=10))
    bench.outbox.lose()
    canary_sent(bench, timedelta(0))
    sweeper = Sweeper(bench.coordinator)

    sweeper.tick()
    sweeper.tick()

    assert len(bench.outbox.of(EXECUTE)) == 1


def test_task_message_of_an_activation_that_is_not_due_is_not_sent(bench: Bench):
    run = bench.start("begin -> work")
    change(bench, run, not_before=datetime.now(UTC) + timedelta(minutes=1), hinted_at=None)
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()

    assert bench.outbox.of(EXECUTE) == []


def test_task_messages_repeated_in_any_order_change_nothing(bench: Bench):
    run = bench.start("begin -> one, two -> say", say=says("done"))

    known = 0
    while bench.outbox.sent:
        fresh = bench.outbox.sent[known:]
        bench.outbox.sent[:] = [*reversed(fresh), *bench.outbox.sent]
        known = len(bench.outbox.sent) - 1
        bench.play(until=once())

    assert (run.status, run.said) == ("succeeded", "done")
    assert {row.attempt for row in run.activations} == {1}


# -- leases ----------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("trusting")
def test_what_a_dead_worker_had_in_hand_is_done_by_another(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()
    bench.play()

    assert run.status == "succeeded"
    assert (run.activation("begin").attempt, run.activation("begin").strikes) == (2, 1)


@pytest.mark.usefixtures("trusting")
def test_what_has_killed_three_workers_is_not_given_to_a_fourth(bench: Bench):
    run = bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)

    for _ in range(3):
        bench.claim(run, "begin", lease=AT_ONCE)
        sweeper.tick()

    assert run.status == "failed"
    assert run.row["error"] == "Node begin: The worker was lost."
    assert (run.activation("begin").attempt, run.activation("begin").strikes) == (3, 3)
    assert bench.try_claim(run, "begin") is None


@pytest.mark.usefixtures("trusting")
def test_a_lease_that_holds_is_left_alone(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=timedelta(seconds=5))

    Sweeper(bench.coordinator).tick()

    assert run.statuses == {"begin": "running"}


@pytest.mark.usefixtures("trusting")
def test_lease_as_long_as_a_worker_may_set_it_is_left_alone_by_a_sweeper_with_other_settings(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=MAX_LEASE)

    Sweeper(bench.coordinator).tick()

    assert run.statuses == {"begin": "running"}


def test_nothing_is_called_dead_by_a_sweeper_that_has_just_come(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)
    sweeper = Sweeper(bench.coordinator)

    ticked(sweeper, clock, 6)
    at_first = run.statuses["begin"]
    ticked(sweeper, clock, 1)

    assert (at_first, run.statuses["begin"]) == ("running", "ready")


@pytest.mark.parametrize(("away", "goes_on"), [(3, True), (5, False)])
def test_sweeper_continues_the_observation_of_its_predecessor_after_a_short_gap(
    bench: Bench, clock: "Clock", away: int, goes_on: bool
):
    run = bench.start("begin -> work")
    ticked(Sweeper(bench.coordinator), clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    clock.pass_by(away - 1)
    ticked(Sweeper(bench.coordinator), clock, 1)

    assert run.statuses["begin"] == ("ready" if goes_on else "running")


def test_repeatedly_killed_sweeper_still_finds_expired_leases(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)

    for _ in range(4):
        ticked(Sweeper(bench.coordinator), clock, 2)

    assert run.statuses["begin"] == "ready"


@pytest.mark.parametrize("jump", [timedelta(minutes=2), timedelta(minutes=-2)])
def test_clock_jump_between_two_sweepers_expires_no_lease(bench: Bench, clock: "Clock", jump: timedelta):
    run = bench.start("begin -> work")
    ticked(Sweeper(bench.coordinator), clock, 8)
    bench.claim(run, "begin", lease=timedelta(minutes=-5))

    clock.jump = jump
    second = Sweeper(bench.coordinator)
    ticked(second, clock, 6)
    at_first = run.statuses["begin"]
    ticked(second, clock, 1)

    assert (at_first, run.statuses["begin"]) == ("running", "ready")


def test_an_outage_that_a_sweeper_saw_is_not_forgotten_by_the_next_one(
    bench: Bench, clock: "Clock", monkeypatch: pytest.MonkeyPatch
):
    run = bench.start("begin -> work")
    first = Sweeper(bench.coordinator)
    ticked(first, clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    loops_once_over(first, monkeypatch, OperationalError("select", {}, Exception("away")))
    first.tick()
    clock.pass_by(1)
    ticked(Sweeper(bench.coordinator), clock, 1)

    assert run.statuses["begin"] == "running"


def test_clock_jump_of_the_database_expires_no_lease(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)
    ticked(sweeper, clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    clock.jump = timedelta(minutes=2)
    ticked(sweeper, clock, 6)
    at_first = run.statuses["begin"]
    ticked(sweeper, clock, 1)

    assert (at_first, run.statuses["begin"]) == ("running", "ready")


@pytest.mark.parametrize("outage", ["a gap", "an error"])
def test_database_outage_expires_no_lease(bench: Bench, clock: "Clock", monkeypatch: pytest.MonkeyPatch, outage: str):
    run = bench.start("begin -> work")
    sweeper = Sweeper(bench.coordinator)
    ticked(sweeper, clock, 8)
    bench.claim(run, "begin", lease=AT_ONCE)

    if outage == "a gap":
        clock.pass_by(30)
    else:
        loops_once_over(sweeper, monkeypatch, OperationalError("select", {}, Exception("away")))
    ticked(sweeper, clock, 6)
    at_first = run.statuses["begin"]
    ticked(sweeper, clock, 1)

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


@pytest.mark.parametrize("lost", ["the hint", "the handing over"])
def test_a_queued_run_of_a_free_conversation_begins(bench: Bench, lost: str):
    first = bench.start("begin -> work")
    second = bench.start("begin -> work", conversation_id=first.conversation_id, on_busy="enqueue")
    bench.play(until=lambda: first.status == "succeeded")
    if lost == "the handing over":
        with bench.database.transaction() as tx:
            tx.execute(conversations.update().values(active_run=None))
    bench.outbox.lose()

    Sweeper(bench.coordinator).tick()

    assert second.status == "running"


def test_run_with_an_expired_form_fails_with_that_reason(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=says("never"))
    bench.play()
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == run.id).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))

    Sweeper(bench.coordinator).tick()

    assert (run.status, run.row["error"]) == ("failed", "The form was not answered in time.")
    assert run.statuses["form"] == "closed"
    assert run.events[-1].body["code"] == "form_expired"


def test_a_form_waits_for_as_long_as_it_may(bench: Bench):
    run = bench.start("begin -> form -> say", form=FORM, say=says("never"))
    bench.play()

    Sweeper(bench.coordinator).tick()

    assert run.status == "waiting"
    assert run.row["expires_at"] - datetime.now(UTC) > timedelta(days=29)


def test_a_stopping_run_whose_last_step_was_lost_is_ended(bench: Bench):
    run = bench.start("begin -> work")
    claimed = bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    bench.report(claimed)

    sweeper = Sweeper(bench.coordinator)
    sweeper.tick()

    assert run.status == "cancelled"


def test_a_stopping_run_in_which_nothing_works_and_nothing_was_reported_is_ended(bench: Bench):
    run = bench.start("begin -> work")
    bench.claim(run, "begin")
    bench.lifecycle.cancel_run(bench.tenant_id, run.id)
    change(bench, run, status="closed", lease_id=None, lease_until=None)

    assert run.status == "stopping"
    Sweeper(bench.coordinator).tick()

    assert run.status == "cancelled"


def test_an_open_run_in_which_nothing_moves_is_an_alarm_with_its_id(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sweeping, "log", structlog.get_logger())  # one that nobody has bound for good
    lost, sound = bench.start("begin -> work"), bench.start("begin -> form -> say", form=FORM, say=says("x"))
    bench.play()
    again = bench.start("begin -> work")
    with bench.database.transaction() as tx:
        tx.execute(runs.update().where(runs.c.id == lost.id).values(status="running"))

    with capture_logs() as logs:
        for _ in range(sweeping.SLOW_CHECK_TICKS + 1):
            Sweeper(bench.coordinator).tick()

    alarms = [(line["run_id"], line["log_level"]) for line in logs if line["event"] == "run_stalled"]
    assert set(alarms) == {(str(lost.id), "error")}
    assert (sound.status, again.status) == ("waiting", "running")


@pytest.mark.parametrize("whose", ["run", "session"])
def test_cancel_key_of_another_program_cancels_a_run_without_attempts(bench: Bench, whose: str):
    run = bench.start("begin -> form -> say", form=FORM, say=says("never"))
    bench.play()
    named = run.id if whose == "run" else run.conversation_id
    with redis.Redis.from_url(bench.redis_url) as client:
        client.set(f"{named}-cancel", "anything")

        Sweeper(bench.coordinator).tick()

        assert run.status == "cancelled"
        assert client.exists(f"{named}-cancel") == 0


# -- robustness ------------------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("trusting")
def test_two_sweepers_at_once_do_everything_once(bench: Bench):
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

    assert {row.strikes for row in run.activations if row.node_id != "begin"} == {1}
    assert len(bench.outbox.of(EXECUTE)) == 3


def test_tick_is_done_by_one_sweeper_and_the_other_keeps_its_observation(bench: Bench, clock: "Clock"):
    run = bench.start("begin -> work")
    bench.claim(run, "begin", lease=AT_ONCE)
    sweeper = Sweeper(bench.coordinator)

    with bench.database.transaction() as tx:
        assert sweep_queries.try_sweep(tx)[0]
        ticked(sweeper, clock, 7)
        while_another_sweeps = run.statuses["begin"]
    ticked(sweeper, clock, 1)

    assert (while_another_sweeps, run.statuses["begin"]) == ("running", "ready")


@pytest.mark.usefixtures("trusting")
@pytest.mark.parametrize("problem", [StateError("Stored facts contradict each other."), KeyError("live")])
def test_a_run_that_cannot_be_advanced_does_not_keep_the_others_from_it(bench: Bench, problem: Exception):
    broken, sound = bench.start("begin -> work"), bench.start("begin -> work")
    for run in (broken, sound):
        bench.claim(run, "begin", lease=AT_ONCE)

    class Fragile(Coordinator):
        def advance_run(self, run_id: Any) -> None:
            if run_id == broken.id:
                raise problem
            super().advance_run(run_id)

    Sweeper(bench.a_coordinator(kind=Fragile)).tick()

    assert (broken.statuses["begin"], sound.statuses["begin"]) == ("reported", "ready")


def test_what_is_looked_for_now_and_then_and_fails_keeps_no_lost_message_from_being_sent_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    def too_slow(tx: Transaction) -> list[UUID]:
        raise OperationalError("select", {}, Exception("canceling statement due to statement timeout"))

    monkeypatch.setattr(sweep_queries, "stalled_runs", too_slow)
    run = bench.start("begin -> work")
    bench.outbox.lose()
    canary_sent(bench, timedelta(seconds=3))

    with pytest.raises(OperationalError):
        Sweeper(bench.coordinator).tick()

    assert bench.outbox.of(EXECUTE) == [(str(run.id), str(run.activation("begin").id))]


@pytest.mark.usefixtures("trusting")
def test_the_sweeper_works_while_redis_is_away_and_does_not_lose_its_pace(bench: Bench, pauses: list[float]):
    lost, unseen = bench.start("begin -> work"), bench.start("begin -> work")
    bench.claim(lost, "begin", lease=AT_ONCE)
    bench.report(bench.claim(unseen, "begin"))
    away = Coordinator(bench.database, Dispatch(make_app(REDIS_AWAY), Bus(REDIS_AWAY)), VersionCache())
    sweeper = Sweeper(away)

    sweeper.tick()
    sweeper.tick()

    assert sum(pauses) == 0
    assert (lost.statuses["begin"], unseen.statuses["begin"]) == ("ready", "done")


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


# -- in other words --------------------------------------------------------------------------------------------------
class Clock:
    """Time as the sweeper sees it: its own, and the database's, which may jump."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.jump = timedelta(0)

    def monotonic(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def try_sweep(self, real: Callable[[Transaction], tuple[bool, datetime]]) -> Callable[..., tuple[bool, datetime]]:
        begun = datetime.now(UTC)

        def swept(tx: Transaction) -> tuple[bool, datetime]:
            return real(tx)[0], begun + timedelta(seconds=self.now - 1000) + self.jump

        return swept


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sweeping, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(sweep_queries, "try_sweep", clock.try_sweep(sweep_queries.try_sweep))
    return clock


def ticked(sweeper: Sweeper, clock: Clock, times: int) -> None:
    """So many ticks, a second apart."""
    for _ in range(times):
        sweeper.tick()
        clock.pass_by(1)


def loops_once_over(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """One round of the loop, in which the database raises."""
    ending = Event()

    def tick() -> bool:
        ending.set()
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(sweeping, "TICK", 0.0)
        patch.setattr(sweeper, "tick", tick)
        sweeper.run(ending)


def canary_sent(bench: Bench, ahead: timedelta) -> None:
    """A canary came back that was sent so long after what was hinted just now."""
    with bench.database.transaction() as tx:
        if ahead > timedelta(0):
            tx.execute(activations.update().values(hinted_at=activations.c.hinted_at - ahead))
        queue_probes.record_return(tx, "nodes", tx.scalar(text("select now()")) + min(ahead, timedelta(0)))


def change(bench: Bench, run: Run, **values: Any) -> None:
    with bench.database.transaction() as tx:
        tx.execute(activations.update().where(activations.c.run_id == run.id).values(**values))


def once() -> Callable[[], bool]:
    left = iter([False])
    return lambda: next(left, True)
