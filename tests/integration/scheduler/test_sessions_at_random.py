"""Whatever people do in one session, its runs keep their order, one at a time, and all of them end."""

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
from tests.builders import says
from tests.integration.engine import FORM, Bench, Run, reporting

ENDED = ("succeeded", "failed", "cancelled")
BUSY = ("running", "waiting", "stopping")

STEPS = st.lists(
    st.sampled_from(
        ["refuse", "enqueue", "interrupt", "cancel newest", "cancel active", "work", "work", "hold", "let go", "forget"]
    ),
    min_size=3,
    max_size=16,
)


@dataclass
class Story:
    """One session as people see it; its canvas asks for a name, so that some turns are answers."""

    bench: Bench
    drawn: tuple[UUID, UUID]
    session: UUID
    accepted: list[Run] = field(default_factory=list[Run])
    cancelled: set[UUID] = field(default_factory=set[UUID])
    held: list[Claim] = field(default_factory=list[Claim])  # what is in flight, so that a cancel has to wait for it

    def do(self, step: str) -> None:
        if step in ("refuse", "enqueue", "interrupt"):
            self.say(step)
        elif step == "work":
            self.carry_out_one()
        elif step == "forget":
            self.bench.outbox.lose()
        elif step == "hold":
            self.hold()
        elif step == "let go":
            self.let_go()
        else:
            runs = [run for run in self.not_over() if step == "cancel newest" or run.status in BUSY]
            if runs:
                self.cancelled.add(runs[-1].id)
                self.bench.lifecycle.cancel_run(self.bench.tenant_id, runs[-1].id)

    def not_over(self) -> list[Run]:
        return [run for run in self.accepted if run.status not in ENDED]

    def hold(self) -> None:
        """Somebody begins to carry out the first node of the active run, and takes long."""
        for run in self.not_over():
            if run.statuses.get("begin") == "ready":
                self.held.append(self.bench.claim(run, "begin", lease=timedelta(hours=1)))

    def let_go(self) -> None:
        for claimed in self.held:
            reporting(self.bench.coordinator, claimed).report(Finished(), None, {})
        self.held.clear()

    def say(self, on_busy: str) -> None:
        """A turn; what becomes of it follows from what is there."""
        busy = self.not_over()
        waits = any(run.status == "waiting" for run in busy)
        said = self.bench.a_start(
            drawn=self.drawn, conversation_id=self.session, query=f"n{len(self.accepted)}", on_busy=on_busy
        )
        try:
            started = self.bench.lifecycle.start_run(said)
        except Conflict as refused:
            told = (on_busy, waits, refused.details["run_id"])
            assert told == ("refuse", False, next(run.id.hex for run in busy if is_active(run, self.session)))
            return
        assert started.resumed == waits
        if started.resumed:
            return
        assert started.queued == bool(busy)
        assert not busy or on_busy != "refuse"
        if on_busy == "interrupt":
            self.cancelled |= {run.id for run in busy}
        self.accepted.append(Run(self.bench, started))

    def carry_out_one(self) -> None:
        """One message is carried out, and what came before it stays where it is."""
        before = len(self.bench.outbox.sent)
        self.bench.play(until=lambda: len(self.bench.outbox.sent) < before)

    def check(self) -> None:
        """What holds at every moment."""
        rows = [run.row for run in self.accepted]
        assert sum(row["status"] in BUSY for row in rows) <= 1
        begun = [row for row in rows if row["started_at"] is not None]
        assert begun == sorted(begun, key=lambda row: row["started_at"])
        assert [row["created_at"] for row in rows] == sorted(row["created_at"] for row in rows)

    def end(self) -> None:
        """All messages arrive, the sweeper looks after what was lost, and every form is answered."""
        self.let_go()
        for _ in range(6 * len(self.accepted) + 6):
            forget_hints(self.bench)
            Sweeper(self.bench.coordinator).tick()
            self.bench.play()
            if not self.not_over():
                return
            if any(run.status == "waiting" for run in self.not_over()):
                self.say("refuse")
        raise AssertionError([run.status for run in self.accepted])

    def history(self) -> list[UUID]:
        """Whose words the session holds, in order."""
        with self.bench.database.transaction() as tx:
            said = conversations.list_messages(tx, self.bench.tenant_id, self.session)
        return [message.run_id for message in said if message.run_id is not None]


@pytest.mark.timeout(120)
@settings(
    max_examples=40 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_whatever_people_do_in_a_session_its_runs_keep_their_order_and_end(bench: Bench, steps: list[str]):
    bench.outbox.lose()
    drawn = bench.draw("begin -> form -> say", form=FORM, say=says("Hello {form@name}"))
    with bench.database.transaction() as tx:
        session = conversations.create(tx, bench.tenant_id, *drawn)
    story = Story(bench, drawn, session)

    for step in steps:
        story.do(step)
        story.check()
    story.end()
    story.check()

    for run in story.accepted:
        assert run.status == ("cancelled" if run.id in story.cancelled else "succeeded"), run.status
        assert run.told[-1] == "workflow_finished"
        assert run.told.count("workflow_finished") == 1
    begun = [run for run in story.accepted if run.row["started_at"] is not None]
    order = {run.id: place for place, run in enumerate(begun)}
    said = [order[run_id] for run_id in story.history()]
    assert said == sorted(said)  # one run's words after another's
    for before, after in pairwise(begun):
        assert after.row["previous_run"] == before.id
        assert after.row["history_upto"] > before.row["history_upto"]


def is_active(run: Run, session: UUID) -> bool:
    with run.bench.database.transaction() as tx:
        return conversations.get(tx, run.bench.tenant_id, session).active_run == run.id


def forget_hints(bench: Bench) -> None:
    """As if the canaries had come back since."""
    with bench.database.transaction() as tx:
        tx.execute(activations.update().values(hinted_at=None))
