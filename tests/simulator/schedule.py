"""One schedule: everything about it follows from its seed."""

import random
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulator import patches, twins_runs, twins_work
from tests.simulator.clients import ClientRequest, Clients
from tests.simulator.fault_injector import ALL_FAULTS, FaultInjector
from tests.simulator.invariants import Invariants
from tests.simulator.messages import Broker, Redis
from tests.simulator.processes import Installation, NodeBehavior, ScriptedAttempt
from tests.simulator.scenarios import scenarios
from tests.simulator.simulation import InvariantViolated, Simulation
from tests.simulator.tables import Server
from worker.execution import executor

MAX_STEPS = 20_000
RECOVERY_TIME = 90.0  # seconds from the last fault to the end of every run

TWINS = (twins_runs, twins_work)


@dataclass(eq=False)
class Schedule:
    """A simulation of an installation, with everything drawn from a seed."""

    seed: int
    is_traced: bool = False
    simulation: Simulation = field(init=False)
    installation: Installation = field(init=False)
    invariants: Invariants = field(init=False)
    clients: Clients = field(init=False)
    fault_injector: FaultInjector = field(init=False)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        simulation = self.simulation = Simulation(
            self.seed, pace=rng.choice((0.002, 0.01, 0.05)), is_traced=self.is_traced
        )
        server = Server(simulation)
        self.invariants = server.observer = Invariants(server)
        broker = Broker(simulation)
        redis = Redis(simulation)
        if rng.random() < 0.5:
            broker.loss_probability, broker.duplicate_probability = (
                rng.choice((0, 0.05, 0.2)),
                rng.choice((0, 0.1, 0.4)),
            )
            broker.delay_probability, broker.is_shuffled = rng.choice((0, 0.1)), rng.random() < 0.5
            redis.loss_probability = rng.choice((0, 0.3))
        needs_no_sweeper = rng.random() < 0.1  # nothing is lost, so nothing needs repair
        server.lost_answer_probability = rng.choice((0, 0, 0.01, 0.05))
        if needs_no_sweeper:
            broker.loss_probability = redis.loss_probability = server.lost_answer_probability = 0
            simulation.count("schedule without a sweeper")
        behavior = NodeBehavior(inline_advance=rng.random() < 0.8, continue_locally_for=rng.choice((0.0, 0.05, 2.0)))
        if self.seed % 5 == 3 and not needs_no_sweeper:  # only a sweeper sends postponed activations
            behavior.postpone_probability = 0.1
        if rng.random() < 0.2:
            behavior.has_side_effect = lambda node_id: node_id.startswith(("step", "work", "ask"))
        max_running = 2 if rng.random() < 0.2 else 256
        self.installation = Installation(simulation, server, broker, redis, behavior, max_running=max_running)
        self.invariants.workers = self.installation.workers
        self.installation.limited = self.invariants.limited
        self.clients = Clients(self.installation, _client_requests(rng, simulation))
        faults = tuple(rng.sample(ALL_FAULTS, rng.randint(1, 4)))
        self.fault_injector = FaultInjector(
            self.installation,
            self.clients,
            workers=rng.choice((1, 2, 2)),
            sweepers=0 if needs_no_sweeper else rng.choice((1, 1, 1, 2)),
            rate=rng.choice((0.005, 0.012, 0.025)),
            duration=rng.choice((60, 120, 240)),
            faults=() if needs_no_sweeper else faults,
        )
        if self.seed % 40 == 17:  # in addition to the faults
            simulation.call_later(rng.random(), self.fault_injector.delete_version)
        if self.seed % 4 == 2:
            simulation.call_later(0.3, self.fault_injector.set_budget)
        self.fault_injector.threads = rng.choice((3, 3, 8))  # with more threads, reports of one run wait for each other
        behavior.defers_claims = rng.random() < 0.8

    def run(self) -> None:
        """Run the schedule. Raises InvariantViolated, or the first unexpected error."""
        patches.activate(self.simulation)
        simulation = self.simulation
        try:
            self.fault_injector.start()
            simulation.run(lambda: self.fault_injector.is_over or self.clients.is_done, max_steps=MAX_STEPS)
            if not self.fault_injector.is_over:
                self.fault_injector.stop_faults()
            until = simulation.now + RECOVERY_TIME + self.fault_injector.total_jump
            if not simulation.run(lambda: self.clients.is_done, max_steps=MAX_STEPS, until=until):
                raise InvariantViolated(f"a run makes no progress: {self._describe_open_runs()}")
            self.invariants.check_end()
        finally:
            simulation.end()

    def _describe_open_runs(self) -> str:
        lines: list[str] = []
        for run in self.installation.server["runs"].committed():
            if run["status"] not in ("succeeded", "failed", "cancelled"):
                alive = [
                    f"{a['node_id']} {a['status']}"
                    for a in self.installation.server["activations"].committed(run["id"])
                    if a["status"] not in ("done", "closed")
                ]
                lines.append(f"{run['id']} {run['status']}: {', '.join(alive)}")
        return "; ".join(lines) or "it was never accepted"


def _client_requests(rng: random.Random, simulation: Simulation) -> list[ClientRequest]:
    """Mostly one run; sometimes two, or several turns of one session."""

    def make_request(**more: object) -> ClientRequest:
        cancel_probability = rng.choice((0, 0, 0, 0, 0.2))
        return ClientRequest(rng.randrange(len(scenarios())), simulation.new_id(), cancel_probability, **more)  # pyright: ignore[reportArgumentType]

    requests = [make_request()]
    shape = rng.random()
    if shape < 0.1:
        requests.append(make_request(begins_at=rng.random() * 2))
    elif shape < 0.2:
        for _ in range(rng.randint(1, 2)):
            on_busy = rng.choice(("refuse", "enqueue", "enqueue", "interrupt"))
            if on_busy == "interrupt":
                for request in requests:
                    request.cancel_probability = max(request.cancel_probability, 0.01)
            requests.append(make_request(after=requests[0], on_busy=on_busy, begins_at=rng.random() * 3))
    return requests


@contextmanager
def patched_modules() -> Generator[None]:
    """Let production modules use simulated clocks, threads and ids within the block."""
    with patches.patch_modules((executor, "AttemptRunner", ScriptedAttempt)):
        yield
