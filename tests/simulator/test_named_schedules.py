"""Schedules with a story. Somebody decides here who moves when, and nothing is left to chance."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from canvas.outcome import Finished
from canvas.state.run_state import activation_id
from scheduler.coordinator import run_snapshots
from scheduler.coordinator.run_start import RunRequest
from scheduler.lifecycle.accept import Start
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import EXECUTE, NODES
from store.monitoring import queue_probes
from store.runs import activations
from store.runs.activations import Claim
from tests.builders import canvas_of, goto, usual
from tests.simulator import stage, stories
from tests.simulator.chaos import Chaos
from tests.simulator.database import SimulatedDatabase
from tests.simulator.invariants import Invariants
from tests.simulator.messages import Broker, Redis
from tests.simulator.people import CANVAS, TENANT, Errand, People
from tests.simulator.processes import Habits, Installation, sweeper_process
from tests.simulator.schedule import playing
from tests.simulator.stories import Play, play_of
from tests.simulator.tables import Server
from tests.simulator.world import Process, World
from worker.reporter import Reporter

RUN = UUID(int=1 << 80 | 0x7 << 76 | 0b10 << 62 | 1)
LEASE = timedelta(seconds=10)


@dataclass(eq=False)
class Theatre:
    """An installation, and the one play that is given in it."""

    play: Play
    habits: Habits = field(default_factory=lambda: Habits(0, 0, 0, 0))
    world: World = field(init=False)
    server: Server = field(init=False)
    installation: Installation = field(init=False)

    def __post_init__(self) -> None:
        self.world = World(1, pace=0.002, is_traced=True)
        stage.enter(self.world)
        self.server = Server(self.world)
        invariants = self.server.watch = Invariants(self.server)
        broker, redis = Broker(self.world), Redis(self.world)
        self.installation = Installation(self.world, self.server, broker, redis, self.habits)
        invariants.workers = self.installation.workers

    # -- who moves ---------------------------------------------------------------------------------------------------
    def somebody(self, name: str, does: Callable[[], Any]) -> Process:
        """A process that does one thing; it does not move before it is told to."""
        process = Process(name)
        self.world.spawn(process, "", does)
        return process

    def goes_to(self, process: Process, point: str) -> None:
        """A process moves until it is about to do something (a twin's name, "commit" or "send")."""
        (actor,) = process.actors
        self.world.only = frozenset({process})
        reached = self.world.run(lambda: actor.about_to == point, most_steps=self.world.steps + 200, often=True)
        self.world.only = None
        assert reached, f"{process.name} never comes to {point}"

    def ends(self, process: Process) -> None:
        """A process moves until it has nothing more to do."""
        (actor,) = process.actors
        self.world.only = frozenset({process})
        ended = self.world.run(lambda: actor.stack.dead, most_steps=self.world.steps + 400, often=True)
        self.world.only = None
        assert ended, f"{process.name} does not come to its end"

    def passes(self, seconds: float) -> None:
        """Time passes, and everybody moves."""
        until = self.world.now + seconds
        self.world.at(seconds, lambda: None)
        self.world.run(lambda: self.world.now >= until, most_steps=self.world.steps + 200_000, until=until)

    def comes_about(self, fact: Callable[[], bool], *, within: float) -> float:
        """Everybody moves until something is the case; how long that took."""
        began = self.world.now
        assert self.world.run(fact, most_steps=self.world.steps + 400_000, until=began + within), "not in time"
        return self.world.now - began

    # -- what they do ------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Somebody starts the run."""
        lifecycle = Lifecycle(self.installation.coordinator())
        start = Start(TENANT, CANVAS, UUID(int=number_of(self.play)), RunRequest(query="hello"), run_id=RUN)
        self.ends(self.somebody("api", lambda: lifecycle.start_run(start)))

    def claim(self, node: str) -> Claim:
        """A worker takes a node."""
        claimed: list[Claim | None] = []

        def take() -> None:
            with SimulatedDatabase(self.server).statements() as tx:
                lease_id = self.world.new_random_id()
                claimed.append(
                    activations.claim(tx, RUN, self.id(node), lease_id=lease_id, lease=LEASE, worker=f"by hand {node}")
                )

        self.ends(self.somebody(f"claims {node}", take))
        (claim,) = claimed
        assert claim is not None, f"{node} is not to be had"
        return claim

    def reports(self, claim: Claim) -> Process:
        """A worker that reports when it is told to move."""
        reporting = Reporter(self.installation.coordinator(), claim, inline_advance=True, is_closed=lambda: False)
        return self.somebody(f"reports {claim.node_id}", lambda: reporting.report(Finished(), None, {}))

    def done(self, *nodes: str) -> None:
        """Nodes are claimed and reported, one after another."""
        for node in nodes:
            self.ends(self.reports(self.claim(node)))

    # -- what came of it ---------------------------------------------------------------------------------------------
    def id(self, node: str) -> UUID:
        return activation_id(RUN, node, (), 0)

    def row(self, node: str) -> Any:
        row = self.server["activations"].rows.get((RUN, self.id(node)))
        return row.committed if row is not None else None

    @property
    def statuses(self) -> dict[str, str]:
        return {row["node_id"]: row["status"] for row in self.server["activations"].committed(RUN)}

    @property
    def run(self) -> Any:
        return self.server["runs"].rows[RUN].committed

    @property
    def told(self) -> list[str]:
        return [event["event"] for event in self.server["run_events"].committed(RUN)]


def number_of(play: Play) -> int:
    return next(number for number, known in enumerate(stories.plays()) if known is play)


@pytest.fixture
def theatre(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Opens a theatre for a play, beside those that are drawn."""

    def opened(play: Play, habits: Habits | None = None) -> Theatre:
        known = (*stories.plays(), play)
        monkeypatch.setattr(stories, "plays", lambda: known)
        return Theatre(play, habits) if habits is not None else Theatre(play)

    with playing():
        yield opened


Opened = Callable[..., Theatre]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reporter that finds its run locked does not wait for the lock."""
    monkeypatch.setattr(run_snapshots, "lock_with_timeout", run_snapshots.try_lock)


TWO_BRANCHES = play_of("two branches", canvas_of("begin -> a, b; a, b -> join"), usual)


# -- no report is overlooked -----------------------------------------------------------------------------------------
@pytest.mark.usefixtures("impatient")
def test_report_committed_before_the_re_check_is_found_by_it(theatre: Opened):
    """A holds the run and folds. B reports, finds it held, and leaves. A commits, looks, and folds B's report."""
    scene = theatre(TWO_BRANCHES)
    scene.start()
    scene.done("begin")
    holder, other = scene.reports(scene.claim("a")), scene.reports(scene.claim("b"))

    scene.goes_to(holder, "save")
    scene.ends(other)
    left_behind = scene.statuses
    scene.ends(holder)

    assert left_behind["b"] == "reported"
    assert scene.statuses == {"begin": "done", "a": "done", "b": "done", "join": "ready"}


@pytest.mark.usefixtures("impatient")
def test_report_committed_after_the_re_check_is_applied_by_its_reporter_in_the_simulator(theatre: Opened):
    """A has looked and found nothing, for B's report was not there yet. B commits, tries once more, and has the run."""
    scene = theatre(TWO_BRANCHES)
    scene.start()
    scene.done("begin")
    holder, other = scene.reports(scene.claim("a")), scene.reports(scene.claim("b"))

    scene.goes_to(holder, "save")
    scene.goes_to(other, "commit")
    scene.ends(holder)
    left_behind = scene.statuses
    scene.ends(other)

    assert left_behind == {"begin": "done", "a": "done", "b": "running"}
    assert scene.statuses == {"begin": "done", "a": "done", "b": "done", "join": "ready"}


# -- what a crash takes away -----------------------------------------------------------------------------------------
def test_a_claim_that_a_crash_has_taken_away_was_silent_and_is_made_again(theatre: Opened):
    """The claim's commit did not wait for the disk. Its worker hears nothing, and its report is refused."""
    scene = theatre(TWO_BRANCHES)
    scene.start()
    lost = scene.claim("begin")

    scene.server.crash()
    ready_again = scene.row("begin")
    again = scene.claim("begin")
    scene.ends(scene.reports(lost))
    untouched = scene.row("begin")
    scene.ends(scene.reports(again))

    assert (ready_again["status"], ready_again["attempt"]) == ("ready", 0)
    assert (untouched["status"], untouched["lease_id"], untouched["attempt"]) == ("running", again.lease_id, 1)
    assert scene.row("begin")["status"] == "done"
    assert scene.row("begin")["strikes"] == 0


def test_a_report_makes_its_claim_durable(theatre: Opened):
    scene = theatre(TWO_BRANCHES)
    scene.start()
    scene.done("begin")

    scene.server.crash()

    assert scene.statuses == {"begin": "done", "a": "ready", "b": "ready"}


# -- who stands still ------------------------------------------------------------------------------------------------
def test_a_coordinator_that_is_stopped_in_a_fold_keeps_the_run_for_five_seconds(theatre: Opened):
    """The server ends its transaction; another takes the step, and the stopped one finds that it has nothing."""
    scene = theatre(TWO_BRANCHES)
    scene.start()
    claim = scene.claim("begin")
    stopped = scene.reports(claim)
    scene.goes_to(stopped, "save")
    Chaos(scene.installation, People(scene.installation, [])).attend()

    scene.world.stop(stopped, 30)
    scene.passes(4)
    kept = scene.statuses
    scene.passes(2)
    scene.ends(scene.reports(claim))
    stepped = scene.statuses
    scene.passes(40)

    assert kept == {"begin": "running"}
    assert stepped == {"begin": "done", "a": "ready", "b": "ready"}
    assert scene.statuses == stepped
    assert scene.told.count("node_finished") == 1


# -- what is only long is not made longer ----------------------------------------------------------------------------
def test_of_ten_thousand_honest_hints_none_is_sent_twice(theatre: Opened):
    """Workers are slow and hints wait in the queue. No canary overtakes them, so nobody takes them for lost."""
    scene = theatre(TWO_BRANCHES)
    scene.start()
    broker, table = scene.installation.broker, scene.server["activations"]
    broker.forget_everything()
    first = scene.row("begin")
    del table.rows[RUN, scene.id("begin")], table.groups[RUN][RUN, scene.id("begin")]
    for number in range(10_000):
        row = table.row((RUN, UUID(int=number)), RUN)
        row.committed = {**first, "id": UUID(int=number), "node_id": f"n{number}", "hinted_at": first["hinted_at"]}
        broker.send_task(EXECUTE, (str(RUN), str(UUID(int=number))), NODES)
    taken = consumer(scene, seconds_each=0.002)
    sweeper_process(scene.installation, "sweeper")

    scene.comes_about(lambda: len(taken) >= 10_000, within=60)

    assert scene.world.now > 10
    assert len(taken) == len(set(taken)) == 10_000


def consumer(scene: Theatre, *, seconds_each: float) -> list[str]:
    """A worker that takes one hint after another and does no more with it."""
    taken: list[str] = []

    def work() -> None:
        while True:
            message = scene.installation.broker.receive(NODES)
            if message.task == EXECUTE:
                taken.append(message.args[1])
                row = scene.server["activations"].rows[RUN, UUID(message.args[1])]
                assert row.committed is not None
                row.committed = {**row.committed, "status": "done"}
                scene.world.sleep(seconds_each)
            else:
                with SimulatedDatabase(scene.server).transaction() as tx:
                    queue_probes.record_return(tx, NODES, datetime.fromisoformat(message.args[0]))

    scene.somebody("consumer", work)
    return taken


# -- nobody is taken for dead ----------------------------------------------------------------------------------------
def an_installation(scene: Theatre, *, workers: int = 1, threads: int = 2) -> Chaos:
    """Processes that run by themselves, and somebody who wants the play."""
    people = People(scene.installation, [Errand(number_of(scene.play), RUN, stops=0)])
    chaos = Chaos(scene.installation, people, workers=workers, threads=threads, lasts=10**9)
    chaos.begin()
    return chaos


def long_work(node: str, seconds: float) -> Habits:
    return Habits(0, 0, 0, 0, takes=lambda node_id: seconds if node_id == node else 0.0)


def test_no_lease_is_swept_for_an_outage_of_the_database(theatre: Opened):
    """For twelve seconds nobody can renew. Leases run out, and get their time when the database is back."""
    scene = theatre(TWO_BRANCHES, long_work("a", 25))
    chaos = an_installation(scene)
    scene.comes_about(lambda: scene.statuses.get("a") == "running", within=10)
    scene.passes(3)

    scene.server.cut()
    scene.server.is_up = False
    scene.passes(12)
    scene.server.is_up = True
    scene.comes_about(lambda: chaos.people.is_done, within=40)

    assert scene.run["status"] == "succeeded"
    assert {(row["attempt"], row["strikes"]) for row in scene.server["activations"].committed(RUN)} == {(1, 0)}


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_no_lease_is_swept_for_a_jump_of_the_clock(seconds: int, theatre: Opened):
    scene = theatre(TWO_BRANCHES, long_work("a", 25))
    chaos = an_installation(scene)
    scene.comes_about(lambda: scene.statuses.get("a") == "running", within=10)
    scene.passes(8)

    scene.world.jumped += timedelta(seconds=seconds)
    scene.comes_about(lambda: chaos.people.is_done, within=40)

    assert scene.run["status"] == "succeeded"
    assert (scene.row("a")["attempt"], scene.row("a")["strikes"]) == (1, 0)


# -- who is dead is found out in time --------------------------------------------------------------------------------
def test_from_a_kill_to_the_next_claim_it_takes_a_lease_and_a_tick_or_two(theatre: Opened):
    scene = theatre(TWO_BRANCHES, long_work("a", 20))
    chaos = an_installation(scene, workers=2)
    scene.comes_about(lambda: scene.statuses.get("a") == "running", within=10)
    scene.passes(8)

    scene.world.kill(scene.installation.workers[scene.row("a")["worker"]])
    waited = scene.comes_about(lambda: scene.row("a")["attempt"] == 2, within=30)

    assert waited < 13
    scene.comes_about(lambda: chaos.people.is_done, within=40)


def test_a_sweeper_that_dies_with_the_worker_adds_no_more_than_its_own_absence(theatre: Opened):
    """The next sweeper goes on with what the one before has seen of the database."""
    scene = theatre(TWO_BRANCHES, long_work("a", 20))
    chaos = an_installation(scene, workers=2)
    scene.comes_about(lambda: scene.statuses.get("a") == "running", within=10)
    scene.passes(8)

    scene.world.kill(scene.installation.workers[scene.row("a")["worker"]])
    chaos.kill("sweeper0", comes_back_after=2)
    waited = scene.comes_about(lambda: scene.row("a")["attempt"] == 2, within=30)

    assert waited < 15
    scene.comes_about(lambda: chaos.people.is_done, within=40)


@pytest.mark.parametrize("seconds", [3600, -3600])
@pytest.mark.parametrize("moment", ["ready", "running"])
def test_a_clock_that_goes_an_hour_back_or_ahead_costs_no_more_than_a_lease(seconds: int, moment: str, theatre: Opened):
    """A worker dies just then, with its lease, and with the hints that it had received."""
    scene = theatre(TWO_BRANCHES, long_work("a", 5))
    chaos = an_installation(scene)
    node = "a" if moment == "running" else "begin"
    scene.comes_about(lambda: scene.statuses.get(node) == moment, within=10)

    scene.world.jumped += timedelta(seconds=seconds)
    chaos.kill_worker()
    took = scene.comes_about(lambda: chaos.people.is_done, within=60)

    assert scene.run["status"] == "succeeded"
    assert took < 45


# -- one kills, others pay -------------------------------------------------------------------------------------------
def test_what_kills_its_process_three_times_takes_none_of_127_innocents_along(theatre: Opened):
    """All 128 share the process that dies, twice. Who has two strikes is then claimed one at a time."""
    innocents = [f"n{number}" for number in range(127)]
    drawn = canvas_of(f"begin -> killer, {', '.join(innocents)}; {', '.join(innocents)} -> join", killer=goto("join"))
    play = play_of("one kills", drawn, usual)
    habits = Habits(0, 0, 0, 0, takes=lambda node_id: 3.0 if node_id in innocents else 1.0)
    habits.kills_its_process = lambda node_id: node_id == "killer"
    scene = theatre(play, habits)
    chaos = an_installation(scene, threads=128)

    scene.comes_about(lambda: chaos.people.is_done, within=1200)

    struck = {row["node_id"]: row["strikes"] for row in scene.server["activations"].committed(RUN)}
    assert scene.run["status"] == "succeeded"
    assert struck["killer"] == 3
    assert max(strikes for node, strikes in struck.items() if node != "killer") == 2


# -- who speaks when -------------------------------------------------------------------------------------------------
def test_a_message_behind_a_form_does_not_keep_a_later_one_from_being_heard(theatre: Opened):
    """The form waits for a person, so its Message may never come; the other's text is heard before it asks."""
    play = play_of("a form first", canvas_of("begin -> form -> say1; begin -> model -> say2"), usual)
    scene = theatre(play)
    chaos = an_installation(scene)

    scene.comes_about(lambda: chaos.people.is_done, within=60)

    heard = [
        (event["event"], event["node_id"])
        for event in scene.server["run_events"].committed(RUN)
        if event["event"] in ("user_inputs", "message_end")
    ]
    assert heard == [("message_end", "say2"), ("user_inputs", None), ("message_end", "say1")]
    assert scene.run["status"] == "succeeded"


def test_a_start_whose_answer_got_lost_starts_one_run(theatre: Opened):
    """The API died between commit and reply. The request is sent again with its key, and finds what it has made."""
    scene = theatre(TWO_BRANCHES)
    lifecycle = Lifecycle(scene.installation.coordinator())
    start = Start(
        TENANT,
        CANVAS,
        UUID(int=number_of(scene.play)),
        RunRequest(query="hello"),
        run_id=RUN,
        idempotency=("runs", "key", b"digest"),
    )
    answers: list[Any] = []
    dead = scene.somebody("api1", lambda: answers.append(lifecycle.start_run(start)))
    scene.goes_to(dead, "send")
    scene.world.kill(dead)

    scene.ends(scene.somebody("api2", lambda: answers.append(lifecycle.start_run(start))))

    assert [(answer.run_id, answer.repeated) for answer in answers] == [(RUN, True)]
    assert len(list(scene.server["runs"].committed())) == 1


def test_a_lost_answer_to_a_report_is_asked_for_again(theatre: Opened):
    scene = theatre(TWO_BRANCHES)
    scene.start()
    claim = scene.claim("begin")
    scene.server.loses_answers = 1.0
    reporter = scene.reports(claim)
    scene.goes_to(reporter, "commit")
    scene.goes_to(reporter, "report")
    scene.server.loses_answers = 0.0

    scene.ends(reporter)

    assert scene.statuses == {"begin": "done", "a": "ready", "b": "ready"}
    assert scene.told.count("node_finished") == 1
