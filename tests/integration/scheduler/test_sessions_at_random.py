"""Random operations on one session: its runs keep their order, one at a time, and all of them end."""

import os
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canvas.errors import Conflict
from canvas.outcome import Finished
from scheduler.sweeper.sweeper import Sweeper
from store.agents import conversations
from store.runs.activations import Claim
from store.tables.runs import activations
from tests.builders import content
from tests.integration.engine import FORM, Bench, Run, new_reporter

ENDED = ("succeeded", "failed", "cancelled")
BUSY = ("running", "waiting", "stopping")

STEPS = st.lists(
    st.sampled_from(
        [
            "refuse",
            "enqueue",
            "interrupt",
            "cancel newest",
            "cancel active",
            "work",
            "work",
            "hold",
            "report held",
            "lose messages",
        ]
    ),
    min_size=3,
    max_size=16,
)


@dataclass
class SessionModel:
    """A session and its runs; its canvas shows a form, so that some messages are answers."""

    bench: Bench
    drawn: tuple[UUID, UUID]
    session: UUID
    accepted: list[Run] = field(default_factory=list[Run])
    cancelled: set[UUID] = field(default_factory=set[UUID])
    held: list[Claim] = field(default_factory=list[Claim])  # running attempts, for which a cancel has to wait

    def do(self, step: str) -> None:
        if step in ("refuse", "enqueue", "interrupt"):
            self.send_message(step)
        elif step == "work":
            self.play_one_message()
        elif step == "lose messages":
            self.bench.outbox.lose()
        elif step == "hold":
            self.hold()
        elif step == "report held":
            self.report_held()
        else:
            runs = [run for run in self.not_over() if step == "cancel newest" or run.status in BUSY]
            if runs:
                self.cancelled.add(runs[-1].id)
                self.bench.lifecycle.cancel_run(self.bench.tenant_id, runs[-1].id)

    def not_over(self) -> list[Run]:
        return [run for run in self.accepted if run.status not in ENDED]

    def hold(self) -> None:
        """Claim the first node of the active run and do not report yet."""
        for run in self.not_over():
            if run.statuses.get("begin") == "ready":
                self.held.append(self.bench.claim(run, "begin", lease=timedelta(hours=1)))

    def report_held(self) -> None:
        for claimed in self.held:
            new_reporter(self.bench.coordinator, claimed).report(Finished(), None, {})
        self.held.clear()

    def send_message(self, on_busy: str) -> None:
        """Start a run with the next message; check that the reply fits the state of the session."""
        busy = self.not_over()
        is_waiting = any(run.status == "waiting" for run in busy)
        start = self.bench.a_start(
            drawn=self.drawn, conversation_id=self.session, query=f"n{len(self.accepted)}", on_busy=on_busy
        )
        try:
            started = self.bench.lifecycle.start_run(start)
        except Conflict as refused:
            refusal = (on_busy, is_waiting, refused.details["run_id"])
            assert refusal == ("refuse", False, next(run.id.hex for run in busy if is_active(run, self.session)))
            return
        assert started.resumed == is_waiting
        if started.resumed:
            return
        assert started.queued == bool(busy)
        assert not busy or on_busy != "refuse"
        if on_busy == "interrupt":
            self.cancelled |= {run.id for run in busy}
        self.accepted.append(Run(self.bench, started))

    def play_one_message(self) -> None:
        """Carry out one task message."""
        before = len(self.bench.outbox.sent)
        self.bench.play(until=lambda: len(self.bench.outbox.sent) < before)

    def check(self) -> None:
        """Check what holds after every step."""
        rows = [run.row for run in self.accepted]
        assert sum(row["status"] in BUSY for row in rows) <= 1
        begun = [row for row in rows if row["started_at"] is not None]
        assert begun == sorted(begun, key=lambda row: row["started_at"])
        assert [row["created_at"] for row in rows] == sorted(row["created_at"] for row in rows)

    def end(self) -> None:
        """Deliver all messages, repeat lost ones and answer every form until all runs have ended."""
        self.report_held()
        for _ in range(6 * len(self.accepted) + 6):
            mark_task_messages_lost(self.bench)
            Sweeper(self.bench.coordinator).tick()
            self.bench.play()
            if not self.not_over():
                return
            if any(run.status == "waiting" for run in self.not_over()):
                self.send_message("refuse")
        raise AssertionError([run.status for run in self.accepted])

    def history(self) -> list[UUID]:
        """Return the run ids of the session's messages, in order."""
        with self.bench.database.transaction() as tx:
            messages = conversations.list_messages(tx, self.bench.tenant_id, self.session)
        return [message.run_id for message in messages if message.run_id is not None]


@pytest.mark.timeout(120)
@settings(
    max_examples=40 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_runs_of_a_session_keep_their_order_and_end_after_random_operations(bench: Bench, steps: list[str]):
    bench.outbox.lose()
    drawn = bench.draw("begin -> form -> say", form=FORM, say=content("Hello {form@name}"))
    with bench.database.transaction() as tx:
        session = conversations.create(tx, bench.tenant_id, *drawn)
    model = SessionModel(bench, drawn, session)

    for step in steps:
        model.do(step)
        model.check()
    model.end()
    model.check()

    for run in model.accepted:
        assert run.status == ("cancelled" if run.id in model.cancelled else "succeeded"), run.status
        assert run.event_names[-1] == "workflow_finished"
        assert run.event_names.count("workflow_finished") == 1
    begun = [run for run in model.accepted if run.row["started_at"] is not None]
    order = {run.id: position for position, run in enumerate(begun)}
    positions = [order[run_id] for run_id in model.history()]
    assert positions == sorted(positions)  # messages of one run after those of another
    for before, after in pairwise(begun):
        assert after.row["previous_run"] == before.id
        assert after.row["history_upto"] > before.row["history_upto"]


def is_active(run: Run, session: UUID) -> bool:
    with run.bench.database.transaction() as tx:
        return conversations.get(tx, run.bench.tenant_id, session).active_run == run.id


def mark_task_messages_lost(bench: Bench) -> None:
    """Mark all task messages as lost, as if later queue probes had returned."""
    with bench.database.transaction() as tx:
        tx.execute(activations.update().values(enqueued_at=None))
