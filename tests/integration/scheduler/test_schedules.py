"""Schedules on real rows: each slot starts one run, whatever crashes, and the policies are kept.

The clock is a value of the test, which the statements get in place of the database's.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from threading import Barrier
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from canvas.errors import Conflict, InvalidRequest, NotFound
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.schedules import changes, firing
from scheduler.schedules.firing import MAX_REFUSALS, WAITS_FOR_ANSWER, Firing, run_id_of
from scheduler.schedules.loop import ScheduleLoop
from scheduler.sweeper.sweeper import Sweeper
from scheduler.views.json_values import iso
from store.agents import canvases, conversations, schedules
from store.agents.schedules import KEPT_FIRES, Fire, Schedule
from store.db.database import Database
from store.db.transaction import Transaction
from store.runs import run_rows
from tests.integration.engine import FORM, Bench

HOUR = timedelta(hours=1)
START = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + HOUR
"""A full hour, of this week or the next."""


@dataclass
class Clock:
    """The time of a test."""

    now: datetime = START - timedelta(minutes=1)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Scheduled:
    """A schedule of a test, with what fires it."""

    bench: Bench
    id: UUID
    canvas_id: UUID
    clock: Clock
    firing: Firing
    outcomes: list[str] = field(default_factory=list)

    @property
    def row(self) -> Schedule:
        with self.bench.database.transaction() as tx:
            return schedules.get(tx, self.bench.tenant_id, self.id)

    @property
    def fires(self) -> list[Fire]:
        """What came of the slots, the oldest first."""
        with self.bench.database.transaction() as tx:
            return schedules.list_fires(tx, self.bench.tenant_id, self.id, most=1000)[::-1]

    @property
    def summary(self) -> list[tuple[float, str]]:
        """Hours since the first slot, and outcome, of all slots."""
        return [((fire.slot - START) / HOUR, fire.outcome) for fire in self.fires]

    @property
    def runs(self) -> list[Mapping[str, Any]]:
        """The rows of its runs, by slot."""
        with self.bench.database.transaction() as tx:
            ids = [fire.run_id for fire in self.fires if fire.run_id is not None]
            return [row for each in ids if (row := run_rows.read(tx, self.bench.tenant_id, each)) is not None]

    @property
    def statuses(self) -> list[str]:
        return [row["status"] for row in self.runs]

    def at(self, hours: float) -> int:
        """Set the clock to some hours after the first slot, and fire what is due."""
        self.clock.now = START + hours * HOUR
        return self.firing.fire_due()

    def change(self, **fields: Any) -> Schedule:
        with self.bench.database.transaction() as tx:
            return changes.change(tx, self.bench.tenant_id, self.id, fields, now=self.clock.now)


@pytest.fixture
def a_schedule(bench: Bench) -> Callable[..., Scheduled]:
    """A function that creates an hourly schedule whose first slot is START."""

    def create(
        *parts: str, clock: Clock | None = None, node: Mapping[str, Any] | None = None, **fields: Any
    ) -> Scheduled:
        chosen = clock or Clock()
        with bench.database.transaction() as tx:
            tx.execute(text("delete from schedules"))
        canvas_id, _ = bench.draw(*(parts or ("begin -> work",)), **({"form": node} if node else {}))
        values = {"spec": {"every_seconds": 3600}, "start": {"query": "hello"}, **fields}
        with bench.database.transaction() as tx:
            made = changes.create(tx, bench.tenant_id, canvas_id, values, now=chosen.now)
        outcomes: list[str] = []
        fires = Firing(bench.lifecycle, chosen, outcomes.append)
        return Scheduled(bench, made.id, canvas_id, chosen, fires, outcomes)

    return create


# -- a slot ------------------------------------------------------------------------------------------------------------
def test_due_slot_starts_one_run_that_workers_execute(bench: Bench, a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule(name="Morning", start={"query": "hello", "user_id": "ada", "budget": {"tokens": 5000}})

    assert scheduled.at(-0.01) == 0
    assert scheduled.at(0) == 1
    assert scheduled.at(0.01) == 0
    bench.play()

    (run,) = scheduled.runs
    assert (run["id"], run["status"]) == (run_id_of(scheduled.id, START), "succeeded")
    assert run["origin"] == {"kind": "schedule", "schedule_id": scheduled.id.hex, "slot": iso(START)}
    assert (run["request"]["query"], run["request"]["user_id"], run["budgeted"]) == ("hello", "ada", True)
    row = scheduled.row
    assert (row.next_at, row.last_at, row.last_run, row.started) == (START + HOUR, START, run["id"], 1)
    with bench.database.transaction() as tx:
        assert conversations.get(tx, bench.tenant_id, run["conversation_id"]).name == "hello"
    assert scheduled.outcomes == ["started"]


def test_slot_of_a_single_moment_ends_the_schedule(a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule(spec={"at": START.isoformat()})

    scheduled.at(0)

    assert scheduled.row.has_ended
    assert (scheduled.at(5), scheduled.summary) == (0, [(0, "started")])


def test_schedule_ends_with_its_number_of_runs_or_its_time(a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule(max_runs=2, overlap="allow")

    for hours in range(4):
        scheduled.at(hours)

    assert scheduled.row.has_ended
    assert scheduled.summary == [(0, "started"), (1, "started")]
    scheduled.change(max_runs=0, end_at=(START + 4.5 * HOUR).isoformat())
    for hours in range(4, 7):
        scheduled.at(hours)
    assert scheduled.summary == [(0, "started"), (1, "started"), (4, "started")]
    assert scheduled.row.has_ended


def test_runs_of_a_schedule_have_a_session_each_or_all_the_same(
    a_schedule: Callable[..., Scheduled], bench: Bench
) -> None:
    apart = a_schedule()
    for hours in (0, 1):
        apart.at(hours)
        bench.play()
    assert len({run["conversation_id"] for run in apart.runs}) == 2

    together = a_schedule(session="same")
    for hours in (0, 1):
        together.at(hours)
        bench.play()
    (session,) = {run["conversation_id"] for run in together.runs}
    with bench.database.transaction() as tx:
        conversations.delete(tx, bench.tenant_id, together.canvas_id, [session])
    together.at(2)
    assert together.summary == [(0, "started"), (1, "started"), (2, "started")]
    assert together.row.conversation_id == together.runs[-1]["conversation_id"] != session


# -- exactly once ------------------------------------------------------------------------------------------------------
class Crash(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("seed", range(4))
def test_each_slot_has_one_run_although_two_schedulers_crash_at_any_boundary(
    bench: Bench, a_schedule: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    scheduled = a_schedule(overlap="allow", catch_up={"window_seconds": 86400, "at_most": 50})
    choose = random.Random(seed)
    commit, publish = Transaction.commit, Lifecycle.follow_start

    def commit_or_crash(tx: Transaction) -> None:
        moment = choose.random()
        if moment < 0.15:
            raise Crash
        commit(tx)
        if moment > 0.85:
            raise Crash

    def follow_or_crash(*arguments: Any) -> None:
        if choose.random() < 0.3:
            raise Crash
        publish(*arguments)

    others = Firing(Lifecycle(bench.a_coordinator()), scheduled.clock)
    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", commit_or_crash)
        patched.setattr(Lifecycle, "follow_start", follow_or_crash)
        for step in range(60):
            scheduled.clock.now = START + choose.uniform(-1, step / 6) * HOUR  # it jumps back and forth
            process = choose.choice((scheduled.firing, others))
            try:
                process.fire_next()
            except Crash:
                continue
    scheduled.at(10)

    slots = [fire.slot for fire in scheduled.fires]
    assert slots == [START + number * HOUR for number in range(11)]
    assert {fire.outcome for fire in scheduled.fires} == {"started"}
    assert [run["id"] for run in scheduled.runs] == [run_id_of(scheduled.id, slot) for slot in slots]
    assert scheduled.row.started == len(slots)
    with bench.database.transaction() as tx:
        total = tx.scalar(text("select count(*) from runs where canvas_id = :canvas"), canvas=scheduled.canvas_id)
    assert total == len(slots)


def test_schedulers_that_fire_at_once_start_each_slot_once(bench: Bench, a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule(overlap="allow", catch_up={"window_seconds": 86400, "at_most": 50})
    scheduled.clock.now = START + 12 * HOUR
    together = Barrier(3)

    def fire() -> int:
        firing = Firing(Lifecycle(bench.a_coordinator()), scheduled.clock)
        together.wait(30)
        return sum(firing.fire_next() for _ in range(20))

    with ThreadPoolExecutor(3) as pool:
        fired = sum(each.result() for each in [pool.submit(fire) for _ in range(3)])
    fired += scheduled.firing.fire_due()

    assert fired == 13
    assert scheduled.summary == [(number, "started") for number in range(13)]
    assert len({run["id"] for run in scheduled.runs}) == 13


def test_run_of_a_scheduler_killed_after_its_commit_is_sent_by_the_sweeper(
    bench: Bench, a_schedule: Callable[..., Scheduled], monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = a_schedule()

    def crash(*_: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(Lifecycle, "follow_start", crash)
        with pytest.raises(Crash):
            scheduled.at(0)
    assert not bench.outbox.sent
    with bench.database.transaction() as tx:
        tx.execute(text("update activations set enqueued_at = null"))
    Sweeper(bench.coordinator).tick()
    bench.play()

    assert scheduled.statuses == ["succeeded"]


def test_clock_that_jumps_back_fires_no_slot_twice(a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule(overlap="allow")

    scheduled.at(0)
    scheduled.at(-5)
    scheduled.change(spec={"every_seconds": 1800})
    scheduled.at(0)
    scheduled.at(0.5)

    assert scheduled.summary == [(0, "started"), (0.5, "started")]


# -- late slots --------------------------------------------------------------------------------------------------------
def test_slots_of_an_outage_are_caught_up_within_the_window_and_others_recorded(
    a_schedule: Callable[..., Scheduled],
) -> None:
    scheduled = a_schedule(overlap="allow", catch_up={"window_seconds": 3 * 3600, "at_most": 2})

    scheduled.at(5.5)

    assert scheduled.summary == [(0, "missed"), (4, "started"), (5, "started")]
    assert scheduled.fires[0].slots == 4
    assert "4 slots" in scheduled.fires[0].reason
    assert scheduled.row.next_at == START + 6 * HOUR


def test_late_slots_are_not_fired_without_a_window(a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule(catch_up={"window_seconds": 0})

    scheduled.at(2.5)
    scheduled.at(3)

    assert scheduled.summary == [(0, "missed"), (3, "started")]
    assert scheduled.fires[0].slots == 3


# -- overlap -----------------------------------------------------------------------------------------------------------
def test_slot_is_skipped_while_a_run_is_open(a_schedule: Callable[..., Scheduled], bench: Bench) -> None:
    scheduled = a_schedule(overlap="skip")

    scheduled.at(0)
    scheduled.at(1)
    bench.play()
    scheduled.at(2)

    assert scheduled.summary == [(0, "started"), (1, "skipped"), (2, "started")]
    assert scheduled.runs[0]["id"].hex in scheduled.fires[1].reason


@pytest.mark.parametrize("session", ["new", "same"])
def test_enqueued_slots_start_one_after_the_other(
    a_schedule: Callable[..., Scheduled], bench: Bench, session: str
) -> None:
    scheduled = a_schedule(overlap="enqueue", session=session, catch_up={"window_seconds": 0})

    for hours in (0, 1, 2):
        scheduled.at(hours)
    assert scheduled.summary == [(0, "started")]
    assert scheduled.row.waiting_since == START + HOUR
    for minutes in (1, 2):
        bench.play()
        scheduled.at(2 + minutes / 60)

    assert scheduled.summary == [(0, "started"), (1, "started"), (2, "started")]
    assert scheduled.row.waiting_since is None
    assert scheduled.row.next_at == START + 3 * HOUR


@pytest.mark.parametrize("session", ["new", "same"])
def test_previous_run_is_cancelled_by_the_next_slot(
    a_schedule: Callable[..., Scheduled], bench: Bench, session: str
) -> None:
    scheduled = a_schedule(overlap="cancel_previous", session=session)

    for hours in (0, 1, 2):
        scheduled.at(hours)
    bench.play()

    assert scheduled.statuses == ["cancelled", "cancelled", "succeeded"]


def test_overlapping_runs_are_open_together(a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule(overlap="allow")

    for hours in (0, 1, 2):
        scheduled.at(hours)

    assert scheduled.statuses == ["running"] * 3


def test_slot_does_not_answer_a_form_of_the_session(a_schedule: Callable[..., Scheduled], bench: Bench) -> None:
    scheduled = a_schedule("begin -> form -> work", node=FORM, session="same", overlap="allow")
    scheduled.at(0)
    bench.play()
    assert scheduled.statuses == ["waiting"]

    scheduled.at(1)

    assert scheduled.summary == [(0, "started"), (1, "skipped")]
    assert scheduled.fires[1].reason == WAITS_FOR_ANSWER
    assert scheduled.statuses == ["waiting"]


# -- refusals ----------------------------------------------------------------------------------------------------------
def test_schedule_is_paused_after_refusals_in_a_row(a_schedule: Callable[..., Scheduled], bench: Bench) -> None:
    scheduled = a_schedule(start={"version": "latest"})
    break_start(scheduled, {"version": "0" * 32})

    for hours in range(MAX_REFUSALS - 1):
        scheduled.at(hours)
    assert {fire.outcome for fire in scheduled.fires} == {"refused"}
    assert not scheduled.row.paused
    scheduled.at(MAX_REFUSALS - 1)

    row = scheduled.row
    assert (row.paused, row.next_at, row.refusals) == (True, None, MAX_REFUSALS)
    assert "Version not found." in row.paused_reason
    assert scheduled.at(MAX_REFUSALS) == 0
    assert not scheduled.runs


def test_run_ends_a_row_of_refusals(a_schedule: Callable[..., Scheduled], bench: Bench) -> None:
    scheduled = a_schedule()
    break_start(scheduled, {"version": "0" * 32})
    scheduled.at(0)
    assert scheduled.row.refusals == 1

    scheduled.change(start={"query": "again"})
    scheduled.at(1)

    assert (scheduled.row.refusals, scheduled.summary) == (0, [(0, "refused"), (1, "started")])


def test_bug_in_one_schedule_is_recorded_and_does_not_delay_others(
    a_schedule: Callable[..., Scheduled], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = a_schedule()
    with bench.database.transaction() as tx:
        fields = {"spec": {"every_seconds": 3600}, "name": "other"}
        other = changes.create(tx, bench.tenant_id, scheduled.canvas_id, fields, now=scheduled.clock.now)
    accept = firing.accept

    def accept_but_one(coordinator: Any, tx: Transaction, start: Any) -> Any:
        if start.origin_details["schedule_id"] == scheduled.id.hex:
            raise ZeroDivisionError
        return accept(coordinator, tx, start)

    monkeypatch.setattr(firing, "accept", accept_but_one)
    assert scheduled.at(0) == 2

    assert scheduled.summary == [(0, "refused")]
    assert scheduled.fires[0].reason == firing.INTERNAL
    assert Scheduled(bench, other.id, scheduled.canvas_id, scheduled.clock, scheduled.firing).summary == [
        (0, "started")
    ]


def test_previous_run_that_cannot_be_cancelled_does_not_block_other_schedules(
    a_schedule: Callable[..., Scheduled], bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled = a_schedule(overlap="cancel_previous")
    scheduled.at(0)

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Lifecycle, "cancel_run", fail)
    assert scheduled.at(1) == 1

    assert scheduled.summary == [(0, "started"), (1, "refused")]
    assert scheduled.row.next_at == START + 2 * HOUR


# -- pause, trigger, delete --------------------------------------------------------------------------------------------
def test_paused_schedule_fires_nothing_and_continues_with_its_next_slot(
    a_schedule: Callable[..., Scheduled], bench: Bench
) -> None:
    scheduled = a_schedule()
    with bench.database.transaction() as tx:
        changes.pause(tx, bench.tenant_id, scheduled.id, "on holiday", now=scheduled.clock.now)

    assert scheduled.at(2.5) == 0
    assert (scheduled.row.paused_reason, scheduled.row.next_at) == ("on holiday", None)
    with bench.database.transaction() as tx:
        changes.resume(tx, bench.tenant_id, scheduled.id, now=scheduled.clock.now)
    scheduled.at(3)

    assert scheduled.summary == [(3, "started")]


def test_trigger_starts_a_run_now_and_leaves_the_slots_alone(
    a_schedule: Callable[..., Scheduled], bench: Bench
) -> None:
    scheduled = a_schedule(paused=True)
    now = START + 0.25 * HOUR

    def trigger(overlap: str | None, at: datetime) -> None:
        scheduled.clock.now = at
        scheduled.firing.trigger(bench.tenant_id, scheduled.id, overlap)

    trigger(None, now)
    with pytest.raises(Conflict, match="send overlap allow"):
        trigger(None, now + HOUR)
    trigger("allow", now + HOUR)
    bench.play()

    assert scheduled.statuses == ["succeeded"] * 2
    assert [fire.by_hand for fire in scheduled.fires] == [True, True]
    assert scheduled.runs[0]["origin"]["by_hand"] is True
    row = scheduled.row
    assert (row.paused, row.started, row.last_at, row.last_run) == (True, 0, None, scheduled.runs[1]["id"])


def test_deleted_agent_takes_its_schedules_with_it(a_schedule: Callable[..., Scheduled], bench: Bench) -> None:
    scheduled = a_schedule()
    scheduled.at(0)
    bench.play()
    (run,) = scheduled.runs

    with bench.database.transaction() as tx:
        canvases.delete(tx, bench.tenant_id, scheduled.canvas_id)

    with pytest.raises(NotFound):
        _ = scheduled.row
    assert scheduled.at(1) == 0
    with bench.database.transaction() as tx:
        assert run_rows.read(tx, bench.tenant_id, run["id"]) is not None


def test_other_tenant_has_no_part_in_a_schedule(a_schedule: Callable[..., Scheduled], bench: Bench) -> None:
    scheduled = a_schedule()
    scheduled.at(0)
    stranger = bench.a_tenant()

    with bench.database.transaction() as tx:
        assert schedules.list_schedules(tx, stranger, canvas_id=None, most=10) == []
        assert schedules.list_fires(tx, stranger, scheduled.id, most=10) == []
        for work in (
            lambda: schedules.get(tx, stranger, scheduled.id),
            lambda: schedules.lock(tx, stranger, scheduled.id),
            lambda: schedules.delete_schedule(tx, stranger, scheduled.id),
            lambda: changes.change(tx, stranger, scheduled.id, {"name": "x"}, now=START),
            lambda: changes.pause(tx, stranger, scheduled.id, "", now=START),
            lambda: scheduled.firing.trigger(stranger, scheduled.id, "allow"),
            lambda: changes.create(tx, stranger, scheduled.canvas_id, {"spec": {"every_seconds": 60}}, now=START),
        ):
            with pytest.raises(NotFound):
                work()


def test_rows_of_old_slots_are_deleted_and_those_of_open_runs_kept(
    a_schedule: Callable[..., Scheduled], bench: Bench
) -> None:
    scheduled = a_schedule()
    scheduled.at(0)  # stays open

    with bench.database.transaction() as tx:
        row = schedules.lock(tx, bench.tenant_id, scheduled.id)
        for number in range(1, KEPT_FIRES + 20):
            schedules.add_fire(tx, row, START + number * HOUR, "skipped")

    assert len(scheduled.fires) == KEPT_FIRES + 1
    assert scheduled.summary[0] == (0, "started")
    with bench.database.transaction() as tx:
        row = schedules.lock(tx, bench.tenant_id, scheduled.id)
        assert list(schedules.open_runs(tx, row)) == [scheduled.runs[0]["id"]]


# -- fields ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"overlap": "sometimes"}, "overlap"),
        ({"session": "other"}, "session"),
        ({"catch_up": {"window_seconds": 10**7}}, "catch_up.window_seconds"),
        ({"catch_up": {"at_most": 0}}, "catch_up.at_most"),
        ({"catch_up": {"window": 5}}, "catch_up.window"),
        ({"max_runs": -1}, "max_runs"),
        ({"end_at": "2001-01-01T00:00:00Z"}, "end_at"),
        ({"spec": {"at": "2001-01-01T00:00:00Z"}}, "spec.at"),
        ({"start": {"session_id": "0" * 32}}, "start.session_id"),
        ({"start": {"on_busy": "refuse"}}, "start.on_busy"),
        ({"start": {"custom_header": {}}}, "start"),
        ({"start": {"query": 5}}, "start"),
        ({"start": {"budget": {"tokens": -1}}}, "budget.tokens"),
        ({"name": " "}, "name"),
    ],
)
def test_wrong_field_is_refused_by_name(
    a_schedule: Callable[..., Scheduled], fields: Mapping[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        a_schedule(**fields)

    assert refused.value.details["field"] == field


def test_change_of_other_fields_leaves_the_next_slot_alone(a_schedule: Callable[..., Scheduled]) -> None:
    scheduled = a_schedule()

    changed = scheduled.change(name="Other", overlap="allow", start={"query": "other"})

    assert (changed.name, changed.overlap, changed.next_at) == ("Other", "allow", START)
    assert scheduled.row == changed
    assert scheduled.change(spec={"every_seconds": 60}).next_at == START


# -- the loop ----------------------------------------------------------------------------------------------------------
def test_idle_loop_sends_one_statement_and_sleeps(
    a_schedule: Callable[..., Scheduled], sent_statements: list[bytes]
) -> None:
    scheduled = a_schedule()
    loop = ScheduleLoop(scheduled.firing, poll=3.0)
    sent_statements.clear()

    far = loop.look()
    statements = len(sent_statements)
    scheduled.clock.now = START - timedelta(seconds=0.5)
    near = loop.look()
    scheduled.clock.now = START
    due = loop.look()

    assert (far, statements, near, due) == (3.0, 1, 0.5, 0.0)
    assert scheduled.summary == [(0, "started")]


def test_changed_schedule_wakes_the_loop_which_fires_at_its_time(
    database: Database, bench: Bench, a_schedule: Callable[..., Scheduled]
) -> None:
    ending = threading.Event()
    scheduled = a_schedule(paused=True)
    live = Firing(bench.lifecycle)
    subscribed = threading.Event()
    bus = bench.coordinator.dispatch.bus
    changes_of_bus = bus.schedule_changes

    def noting() -> Any:
        for change in changes_of_bus():
            subscribed.set()
            yield change

    bus.schedule_changes = noting  # type: ignore[method-assign]
    loop = ScheduleLoop(live, poll=60.0)
    loop.start(ending)
    assert subscribed.wait(30)
    with database.transaction() as tx:
        at = tx.scalar(text("select now() + interval '1.5 seconds'"))
        changes.change(
            tx, bench.tenant_id, scheduled.id, {"spec": {"at": at.isoformat()}, "paused": False}, now=at - HOUR
        )
    bus.publish_schedule_change()
    deadline = time.monotonic() + 30
    while not scheduled.fires and time.monotonic() < deadline:
        time.sleep(0.02)
    ending.set()
    loop._wake.set()

    (fire,) = scheduled.fires
    assert (fire.outcome, fire.slot) == ("started", at)
    assert timedelta(0) <= fire.created_at - fire.slot < timedelta(seconds=5)


# -- helpers -----------------------------------------------------------------------------------------------------------
def break_start(scheduled: Scheduled, options: Mapping[str, Any]) -> None:
    """Have the runs of a schedule start with options that cannot be accepted, as after the loss of a version."""
    with scheduled.bench.database.transaction() as tx:
        row = schedules.lock(tx, scheduled.bench.tenant_id, scheduled.id)
        schedules.save(tx, replace(row, start=options))
