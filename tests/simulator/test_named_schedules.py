"""Deterministic schedules: each test decides which process runs when, and nothing is random."""

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
from store.runs import activations, prepared_claims
from store.runs.activations import Claim, Deferral
from tests.builders import canvas_of, default_outcome, goto
from tests.simulator import patches, scenarios
from tests.simulator.clients import CANVAS, TENANT, ClientRequest, Clients
from tests.simulator.database import SimulatedDatabase
from tests.simulator.fault_injector import FaultInjector
from tests.simulator.invariants import Invariants
from tests.simulator.messages import Broker, Redis
from tests.simulator.processes import Installation, NodeBehavior, sweeper_process
from tests.simulator.scenarios import Scenario, make_scenario
from tests.simulator.schedule import patched_modules
from tests.simulator.simulation import Process, Simulation
from tests.simulator.tables import Server
from worker.execution.reporter import Reporter

RUN = UUID(int=1 << 80 | 0x7 << 76 | 0b10 << 62 | 1)
LEASE = timedelta(seconds=10)


@dataclass(eq=False)
class ManualSchedule:
    """An installation that runs one scenario, with processes that the test steps by hand."""

    scenario: Scenario
    behavior: NodeBehavior = field(default_factory=lambda: NodeBehavior(0, 0, 0, 0))
    simulation: Simulation = field(init=False)
    server: Server = field(init=False)
    installation: Installation = field(init=False)

    def __post_init__(self) -> None:
        self.simulation = Simulation(1, pace=0.002, is_traced=True)
        patches.activate(self.simulation)
        self.server = Server(self.simulation)
        invariants = self.server.observer = Invariants(self.server)
        broker, redis = Broker(self.simulation), Redis(self.simulation)
        self.installation = Installation(self.simulation, self.server, broker, redis, self.behavior)
        invariants.workers = self.installation.workers

    # -- stepping ---------------------------------------------------------------------------------------------------
    def spawn(self, name: str, job: Callable[[], Any]) -> Process:
        """Start a process with one job; it does not run before it is stepped."""
        process = Process(name)
        self.simulation.spawn(process, "", job)
        return process

    def run_until_point(self, process: Process, point: str) -> None:
        """Run a process until its next operation is `point` (a twin's name, "commit" or "send")."""
        (actor,) = process.actors
        self.simulation.only_processes = frozenset({process})
        reached = self.simulation.run(
            lambda: actor.about_to == point, max_steps=self.simulation.steps + 200, checks_every_step=True
        )
        self.simulation.only_processes = None
        assert reached, f"{process.name} never reaches {point}"

    def run_to_end(self, process: Process) -> None:
        """Run a process to its end."""
        (actor,) = process.actors
        self.simulation.only_processes = frozenset({process})
        has_ended = self.simulation.run(
            lambda: actor.stack.dead, max_steps=self.simulation.steps + 400, checks_every_step=True
        )
        self.simulation.only_processes = None
        assert has_ended, f"{process.name} does not end"

    def advance_time(self, seconds: float) -> None:
        """Run all processes for some seconds."""
        until = self.simulation.now + seconds
        self.simulation.call_later(seconds, lambda: None)
        self.simulation.run(
            lambda: self.simulation.now >= until, max_steps=self.simulation.steps + 200_000, until=until
        )

    def run_until(self, fact: Callable[[], bool], *, within: float) -> float:
        """Run all processes until a fact holds; return how many seconds that took."""
        began = self.simulation.now
        assert self.simulation.run(fact, max_steps=self.simulation.steps + 400_000, until=began + within), "not in time"
        return self.simulation.now - began

    # -- operations --------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the run."""
        lifecycle = Lifecycle(self.installation.coordinator())
        start = Start(TENANT, CANVAS, UUID(int=number_of(self.scenario)), RunRequest(query="hello"), run_id=RUN)
        self.run_to_end(self.spawn("api", lambda: lifecycle.start_run(start)))

    def claim(self, node: str) -> Claim:
        """Claim a node for a worker."""
        claimed: list[Claim | None] = []

        def claim_node() -> None:
            with SimulatedDatabase(self.server).statements() as tx:
                lease_id = self.simulation.new_random_id()
                claimed.append(
                    activations.claim(tx, RUN, self.id(node), lease_id=lease_id, lease=LEASE, worker=f"by hand {node}")
                )

        self.run_to_end(self.spawn(f"claims {node}", claim_node))
        (claim,) = claimed
        assert claim is not None, f"{node} cannot be claimed"
        return claim

    def defer(self, node: str) -> Claim:
        """Begin an attempt with the claim that its task message carries."""
        message = next(
            each for each in reversed(self.installation.broker.sent) if each.args[1:] == (str(self.id(node)),)
        )
        received = prepared_claims.decode(RUN, self.id(node), message.prepared)
        assert received is not None, "the message carries no claim"
        return received.claim(self.simulation.new_random_id(), Deferral(f"defers {node}", self.simulation.now))

    def start_report(self, claim: Claim) -> Process:
        """Start a process that reports a claim when it is stepped."""
        reporting = Reporter(self.installation.coordinator(), claim, inline_advance=True, is_closed=lambda: False)
        return self.spawn(f"reports {claim.node_id}", lambda: reporting.report(Finished(), None, {}))

    def complete(self, *nodes: str) -> None:
        """Claim and report nodes one after another."""
        for node in nodes:
            self.run_to_end(self.start_report(self.claim(node)))

    # -- results -----------------------------------------------------------------------------------------------------
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
    def events(self) -> list[str]:
        return [event["event"] for event in self.server["run_events"].committed(RUN)]


def number_of(scenario: Scenario) -> int:
    return next(number for number, known in enumerate(scenarios.scenarios()) if known is scenario)


@pytest.fixture
def new_schedule(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the schedule of a scenario, beside the generated ones."""

    def make(scenario: Scenario, behavior: NodeBehavior | None = None) -> ManualSchedule:
        known = (*scenarios.scenarios(), scenario)
        monkeypatch.setattr(scenarios, "scenarios", lambda: known)
        return ManualSchedule(scenario, behavior) if behavior is not None else ManualSchedule(scenario)

    with patched_modules():
        yield make


NewSchedule = Callable[..., ManualSchedule]


@pytest.fixture
def no_lock_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reporter that finds its run locked does not wait for the lock."""
    monkeypatch.setattr(run_snapshots, "lock_with_timeout", run_snapshots.try_lock)


TWO_BRANCHES = make_scenario("two branches", canvas_of("begin -> a, b; a, b -> join"), default_outcome)


# -- no report is overlooked -----------------------------------------------------------------------------------------
@pytest.mark.usefixtures("no_lock_wait")
def test_report_committed_before_the_re_check_is_found_by_it(new_schedule: NewSchedule):
    """A has locked the run. B reports and does not get the lock. A commits, re-checks, and applies B's report."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    schedule.complete("begin")
    holder, other = schedule.start_report(schedule.claim("a")), schedule.start_report(schedule.claim("b"))

    schedule.run_until_point(holder, "save")
    schedule.run_to_end(other)
    before = schedule.statuses
    schedule.run_to_end(holder)

    assert before["b"] == "reported"
    assert schedule.statuses == {"begin": "done", "a": "done", "b": "done", "join": "ready"}


@pytest.mark.usefixtures("no_lock_wait")
def test_report_committed_after_the_re_check_is_applied_by_its_reporter_in_the_simulator(new_schedule: NewSchedule):
    """A re-checks before B's report is stored. B commits, tries once more, and locks the run."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    schedule.complete("begin")
    holder, other = schedule.start_report(schedule.claim("a")), schedule.start_report(schedule.claim("b"))

    schedule.run_until_point(holder, "save")
    schedule.run_until_point(other, "commit")
    schedule.run_to_end(holder)
    before = schedule.statuses
    schedule.run_to_end(other)

    assert before == {"begin": "done", "a": "done", "b": "running"}
    assert schedule.statuses == {"begin": "done", "a": "done", "b": "done", "join": "ready"}


# -- deferred claims --------------------------------------------------------------------------------------------------
def test_of_two_attempts_with_one_message_the_second_report_is_refused(new_schedule: NewSchedule):
    """A message is delivered twice, and both workers begin. The first report claims the activation."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    schedule.complete("begin")
    first, second = schedule.defer("a"), schedule.defer("a")
    reports = [schedule.start_report(each) for each in (first, second)]

    schedule.run_until_point(reports[1], "report_inline_deferred")
    schedule.run_to_end(reports[0])
    schedule.run_to_end(reports[1])

    row = schedule.row("a")
    assert (row["status"], row["lease_id"], row["attempt"]) == ("done", first.lease_id, 1)
    assert schedule.statuses == {"begin": "done", "a": "done", "b": "ready"}


def test_deferred_report_after_another_workers_claim_is_refused(new_schedule: NewSchedule):
    """The message was sent again, and claimed; the attempt with the first message reports afterwards."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    schedule.complete("begin")
    late = schedule.defer("a")
    claimed = schedule.claim("a")

    schedule.run_to_end(schedule.start_report(late))
    before = schedule.row("a")
    schedule.run_to_end(schedule.start_report(claimed))

    assert (before["status"], before["lease_id"]) == ("running", claimed.lease_id)
    assert schedule.row("a")["status"] == "done"


def test_deferred_claim_is_not_durable_and_its_report_makes_it_so(new_schedule: NewSchedule):
    """The thread that renews leases has written the claim, and the database loses it. The report claims again."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    schedule.complete("begin")
    late = schedule.defer("a")

    def claim() -> None:
        with SimulatedDatabase(schedule.server).transaction() as tx:
            tx.commit_asynchronously()
            activations.claim_deferred(tx, [(RUN, late.id, late.lease_id, 0.5)], lease=LEASE, worker="defers a")

    schedule.run_to_end(schedule.spawn("renews", claim))
    claimed = schedule.row("a")
    schedule.server.crash()
    lost = schedule.row("a")
    schedule.run_to_end(schedule.start_report(late))

    assert (claimed["status"], claimed["lease_id"]) == ("running", late.lease_id)
    assert (lost["status"], lost["attempt"]) == ("ready", 0)
    assert (schedule.row("a")["status"], schedule.row("a")["lease_id"]) == ("done", late.lease_id)


# -- database crashes ------------------------------------------------------------------------------------------------
def test_claim_lost_in_a_database_crash_has_no_effect_and_is_made_again(new_schedule: NewSchedule):
    """The claim's commit was asynchronous. Its worker is not notified, and its report is refused."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    lost = schedule.claim("begin")

    schedule.server.crash()
    ready_again = schedule.row("begin")
    again = schedule.claim("begin")
    schedule.run_to_end(schedule.start_report(lost))
    untouched = schedule.row("begin")
    schedule.run_to_end(schedule.start_report(again))

    assert (ready_again["status"], ready_again["attempt"]) == ("ready", 0)
    assert (untouched["status"], untouched["lease_id"], untouched["attempt"]) == ("running", again.lease_id, 1)
    assert schedule.row("begin")["status"] == "done"
    assert schedule.row("begin")["crash_count"] == 0


def test_a_report_makes_its_claim_durable(new_schedule: NewSchedule):
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    schedule.complete("begin")

    schedule.server.crash()

    assert schedule.statuses == {"begin": "done", "a": "ready", "b": "ready"}


# -- paused processes ------------------------------------------------------------------------------------------------
def test_coordinator_stopped_in_an_advance_blocks_its_run_for_five_seconds(new_schedule: NewSchedule):
    """The server ends its transaction; another process advances the run, and the paused one changes nothing."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    claim = schedule.claim("begin")
    stopped = schedule.start_report(claim)
    schedule.run_until_point(stopped, "save")
    FaultInjector(schedule.installation, Clients(schedule.installation, [])).attach()

    schedule.simulation.pause(stopped, 30)
    schedule.advance_time(4)
    before = schedule.statuses
    schedule.advance_time(2)
    schedule.run_to_end(schedule.start_report(claim))
    advanced = schedule.statuses
    schedule.advance_time(40)

    assert before == {"begin": "running"}
    assert advanced == {"begin": "done", "a": "ready", "b": "ready"}
    assert schedule.statuses == advanced
    assert schedule.events.count("node_finished") == 1


# -- long queues -----------------------------------------------------------------------------------------------------
def test_ten_thousand_queued_task_messages_are_not_sent_twice(new_schedule: NewSchedule):
    """Workers are slow and task messages wait. No queue probe overtakes them, so none counts as lost."""
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    broker, table = schedule.installation.broker, schedule.server["activations"]
    broker.flush()
    first = schedule.row("begin")
    del table.rows[RUN, schedule.id("begin")], table.groups[RUN][RUN, schedule.id("begin")]
    for number in range(10_000):
        row = table.row((RUN, UUID(int=number)), RUN)
        row.committed = {**first, "id": UUID(int=number), "node_id": f"n{number}", "enqueued_at": first["enqueued_at"]}
        broker.send_task(EXECUTE, (str(RUN), str(UUID(int=number))), NODES)
    received = consumer(schedule, seconds_each=0.002)
    sweeper_process(schedule.installation, "sweeper")

    schedule.run_until(lambda: len(received) >= 10_000, within=60)

    assert schedule.simulation.now > 10
    assert len(received) == len(set(received)) == 10_000


def consumer(schedule: ManualSchedule, *, seconds_each: float) -> list[str]:
    """Start a worker that receives task messages and marks their activations as done."""
    received: list[str] = []

    def work() -> None:
        while True:
            message = schedule.installation.broker.receive(NODES)
            if message.task == EXECUTE:
                received.append(message.args[1])
                row = schedule.server["activations"].rows[RUN, UUID(message.args[1])]
                assert row.committed is not None
                row.committed = {**row.committed, "status": "done"}
                schedule.simulation.sleep(seconds_each)
            else:
                with SimulatedDatabase(schedule.server).transaction() as tx:
                    queue_probes.record_return(tx, NODES, datetime.fromisoformat(message.args[0]))

    schedule.spawn("consumer", work)
    return received


# -- outages and clock jumps -----------------------------------------------------------------------------------------
def start_processes(schedule: ManualSchedule, *, workers: int = 1, threads: int = 2) -> FaultInjector:
    """Start processes that run by themselves, and a client that starts the scenario."""
    clients = Clients(schedule.installation, [ClientRequest(number_of(schedule.scenario), RUN, cancel_probability=0)])
    injector = FaultInjector(schedule.installation, clients, workers=workers, threads=threads, duration=10**9)
    injector.start()
    return injector


def slow_node(node: str, seconds: float) -> NodeBehavior:
    return NodeBehavior(0, 0, 0, 0, duration=lambda node_id: seconds if node_id == node else 0.0)


def test_no_lease_expires_during_a_database_outage(new_schedule: NewSchedule):
    """For twelve seconds no lease can be renewed. Leases are extended when the database is back."""
    schedule = new_schedule(TWO_BRANCHES, slow_node("a", 25))
    injector = start_processes(schedule)
    schedule.run_until(lambda: schedule.statuses.get("a") == "running", within=10)
    schedule.advance_time(3)

    schedule.server.cut()
    schedule.server.is_up = False
    schedule.advance_time(12)
    schedule.server.is_up = True
    schedule.run_until(lambda: injector.clients.is_done, within=40)

    assert schedule.run["status"] == "succeeded"
    assert {(row["attempt"], row["crash_count"]) for row in schedule.server["activations"].committed(RUN)} == {(1, 0)}


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_no_lease_expires_because_of_a_clock_jump(seconds: int, new_schedule: NewSchedule):
    schedule = new_schedule(TWO_BRANCHES, slow_node("a", 25))
    injector = start_processes(schedule)
    schedule.run_until(lambda: schedule.statuses.get("a") == "running", within=10)
    schedule.advance_time(8)

    schedule.simulation.clock_offset += timedelta(seconds=seconds)
    schedule.run_until(lambda: injector.clients.is_done, within=40)

    assert schedule.run["status"] == "succeeded"
    assert (schedule.row("a")["attempt"], schedule.row("a")["crash_count"]) == (1, 0)


# -- killed processes ------------------------------------------------------------------------------------------------
def test_activation_of_a_killed_worker_is_claimed_again_within_a_lease_and_two_ticks(new_schedule: NewSchedule):
    schedule = new_schedule(TWO_BRANCHES, slow_node("a", 20))
    injector = start_processes(schedule, workers=2)
    schedule.run_until(lambda: schedule.statuses.get("a") == "running", within=10)
    schedule.advance_time(8)

    schedule.simulation.kill(schedule.installation.workers[schedule.row("a")["worker"]])
    waited = schedule.run_until(lambda: schedule.row("a")["attempt"] == 2, within=30)

    assert waited < 13
    schedule.run_until(lambda: injector.clients.is_done, within=40)


def test_sweeper_killed_with_the_worker_delays_the_next_claim_only_by_its_absence(new_schedule: NewSchedule):
    """The next sweeper continues with the observations of the last one."""
    schedule = new_schedule(TWO_BRANCHES, slow_node("a", 20))
    injector = start_processes(schedule, workers=2)
    schedule.run_until(lambda: schedule.statuses.get("a") == "running", within=10)
    schedule.advance_time(8)

    schedule.simulation.kill(schedule.installation.workers[schedule.row("a")["worker"]])
    injector.kill("sweeper0", restart_after=2)
    waited = schedule.run_until(lambda: schedule.row("a")["attempt"] == 2, within=30)

    assert waited < 15
    schedule.run_until(lambda: injector.clients.is_done, within=40)


@pytest.mark.parametrize("seconds", [3600, -3600])
@pytest.mark.parametrize("moment", ["ready", "running"])
def test_clock_jump_of_an_hour_delays_a_run_by_at_most_a_lease(seconds: int, moment: str, new_schedule: NewSchedule):
    """A worker is killed at the same time, with its lease and the task messages it had received."""
    schedule = new_schedule(TWO_BRANCHES, slow_node("a", 5))
    injector = start_processes(schedule)
    node = "a" if moment == "running" else "begin"
    schedule.run_until(lambda: schedule.statuses.get(node) == moment, within=10)

    schedule.simulation.clock_offset += timedelta(seconds=seconds)
    injector.kill_worker()
    took = schedule.run_until(lambda: injector.clients.is_done, within=60)

    assert schedule.run["status"] == "succeeded"
    assert took < 45


# -- poison tasks ----------------------------------------------------------------------------------------------------
def test_node_that_crashes_its_process_three_times_fails_none_of_127_others(new_schedule: NewSchedule):
    """All 128 share a process that crashes twice. Activations with two crashes are then claimed one at a time."""
    others = [f"n{number}" for number in range(127)]
    canvas = canvas_of(f"begin -> killer, {', '.join(others)}; {', '.join(others)} -> join", killer=goto("join"))
    scenario = make_scenario("one kills", canvas, default_outcome)
    behavior = NodeBehavior(0, 0, 0, 0, duration=lambda node_id: 3.0 if node_id in others else 1.0)
    behavior.crashes_process = lambda node_id: node_id == "killer"
    schedule = new_schedule(scenario, behavior)
    injector = start_processes(schedule, threads=128)

    schedule.run_until(lambda: injector.clients.is_done, within=1200)

    crash_counts = {row["node_id"]: row["crash_count"] for row in schedule.server["activations"].committed(RUN)}
    assert schedule.run["status"] == "succeeded"
    assert crash_counts["killer"] == 3
    assert max(crash_count for node, crash_count in crash_counts.items() if node != "killer") == 2


# -- message streams, lost answers -----------------------------------------------------------------------------------
def test_message_behind_a_form_does_not_block_a_later_message_stream(new_schedule: NewSchedule):
    """The form waits for a person, so its Message may never start; the other text is streamed before the form."""
    scenario = make_scenario(
        "a form first", canvas_of("begin -> form -> say1; begin -> model -> say2"), default_outcome
    )
    schedule = new_schedule(scenario)
    injector = start_processes(schedule)

    schedule.run_until(lambda: injector.clients.is_done, within=60)

    order = [
        (event["event"], event["node_id"])
        for event in schedule.server["run_events"].committed(RUN)
        if event["event"] in ("user_inputs", "message_end")
    ]
    assert order == [("message_end", "say2"), ("user_inputs", None), ("message_end", "say1")]
    assert schedule.run["status"] == "succeeded"


def test_repeated_start_after_a_lost_reply_starts_one_run(new_schedule: NewSchedule):
    """The API process dies between commit and reply. The repeated request finds the run by its key."""
    schedule = new_schedule(TWO_BRANCHES)
    lifecycle = Lifecycle(schedule.installation.coordinator())
    start = Start(
        TENANT,
        CANVAS,
        UUID(int=number_of(schedule.scenario)),
        RunRequest(query="hello"),
        run_id=RUN,
        idempotency=("runs", "key", b"digest"),
    )
    answers: list[Any] = []
    dead = schedule.spawn("api1", lambda: answers.append(lifecycle.start_run(start)))
    schedule.run_until_point(dead, "send")
    schedule.simulation.kill(dead)

    schedule.run_to_end(schedule.spawn("api2", lambda: answers.append(lifecycle.start_run(start))))

    assert [(answer.run_id, answer.repeated) for answer in answers] == [(RUN, True)]
    assert len(list(schedule.server["runs"].committed())) == 1


def test_report_is_sent_again_when_its_commit_answer_is_lost(new_schedule: NewSchedule):
    schedule = new_schedule(TWO_BRANCHES)
    schedule.start()
    claim = schedule.claim("begin")
    schedule.server.lost_answer_probability = 1.0
    reporter = schedule.start_report(claim)
    schedule.run_until_point(reporter, "commit")
    schedule.run_until_point(reporter, "report")
    schedule.server.lost_answer_probability = 0.0

    schedule.run_to_end(reporter)

    assert schedule.statuses == {"begin": "done", "a": "ready", "b": "ready"}
    assert schedule.events.count("node_finished") == 1
