"""One schedule: everything about it follows from its seed."""

import random
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.simulator import stage, twins_runs, twins_work
from tests.simulator.chaos import ALL_FAULTS, Chaos
from tests.simulator.invariants import Invariants
from tests.simulator.messages import Broker, Redis
from tests.simulator.people import Errand, People
from tests.simulator.processes import Attempted, Habits, Installation
from tests.simulator.stories import plays
from tests.simulator.tables import Server
from tests.simulator.world import Broken, World
from worker import executor

MOST_STEPS = 20_000
IN_TIME = 90.0  # seconds from the last fault to the end of every run

TWINS = (twins_runs, twins_work)


@dataclass(eq=False)
class Schedule:
    """A world with an installation in it, made from a seed."""

    seed: int
    is_traced: bool = False
    world: World = field(init=False)
    installation: Installation = field(init=False)
    invariants: Invariants = field(init=False)
    people: People = field(init=False)
    chaos: Chaos = field(init=False)

    def __post_init__(self) -> None:
        drawn = random.Random(self.seed)
        world = self.world = World(self.seed, pace=drawn.choice((0.002, 0.01, 0.05)), is_traced=self.is_traced)
        server = Server(world)
        self.invariants = server.watch = Invariants(server)
        broker = Broker(world)
        redis = Redis(world)
        if drawn.random() < 0.5:
            broker.loses, broker.doubles = drawn.choice((0, 0.05, 0.2)), drawn.choice((0, 0.1, 0.4))
            broker.delays, broker.shuffles = drawn.choice((0, 0.1)), drawn.random() < 0.5
            redis.loses = drawn.choice((0, 0.3))
        needs_no_sweeper = drawn.random() < 0.1  # nothing is lost, so nothing needs to be found again
        server.loses_answers = drawn.choice((0, 0, 0.01, 0.05))
        if needs_no_sweeper:
            broker.loses = redis.loses = server.loses_answers = 0
            world.count("schedule without a sweeper")
        habits = Habits(rides_along=drawn.random() < 0.8, eager_for=drawn.choice((0.0, 0.05, 2.0)))
        if self.seed % 5 == 3 and not needs_no_sweeper:  # who sends what is due later
            habits.is_postponed = 0.1
        if drawn.random() < 0.2:
            habits.acts_outside = lambda node_id: node_id.startswith(("step", "work", "ask"))
        most = 2 if drawn.random() < 0.2 else 256
        self.installation = Installation(world, server, broker, redis, habits, max_running=most)
        self.invariants.workers = self.installation.workers
        self.installation.limited = self.invariants.limited
        self.people = People(self.installation, _errands(drawn, world))
        faults = tuple(drawn.sample(ALL_FAULTS, drawn.randint(1, 4)))
        self.chaos = Chaos(
            self.installation,
            self.people,
            workers=drawn.choice((1, 2, 2)),
            sweepers=0 if needs_no_sweeper else drawn.choice((1, 1, 1, 2)),
            rate=drawn.choice((0.005, 0.012, 0.025)),
            lasts=drawn.choice((60, 120, 240)),
            faults=() if needs_no_sweeper else faults,
        )
        if self.seed % 40 == 17:  # beside the faults: what those do to such a run is of interest
            world.at(drawn.random(), self.chaos.version_goes)
        if self.seed % 4 == 2:
            world.at(0.3, self.chaos.budget_is_set)
        self.chaos.threads = drawn.choice((3, 3, 8))  # with more of them, reports of one run wait for each other

    def play(self) -> None:
        """Play it. Raises whatever does not hold."""
        stage.enter(self.world)
        world = self.world
        try:
            self.chaos.begin()
            world.run(lambda: self.chaos.is_over or self.people.is_done, most_steps=MOST_STEPS)
            if not self.chaos.is_over:
                self.chaos.calm()
            until = world.now + IN_TIME + self.chaos.jumps
            if not world.run(lambda: self.people.is_done, most_steps=MOST_STEPS, until=until):
                raise Broken(f"a run stands still: {self._standing()}")
            self.invariants.check_end()
        finally:
            world.end()

    def _standing(self) -> str:
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


def _errands(drawn: random.Random, world: World) -> list[Errand]:
    """Mostly one run; sometimes two, or several turns of one session."""

    def one(**more: object) -> Errand:
        stops = drawn.choice((0, 0, 0, 0, 0.2))
        return Errand(drawn.randrange(len(plays())), world.new_id(), stops, **more)  # pyright: ignore[reportArgumentType]

    errands = [one()]
    shape = drawn.random()
    if shape < 0.1:
        errands.append(one(begins_at=drawn.random() * 2))
    elif shape < 0.2:
        for _ in range(drawn.randint(1, 2)):
            on_busy = drawn.choice(("refuse", "enqueue", "enqueue", "interrupt"))
            if on_busy == "interrupt":
                for errand in errands:
                    errand.stops = max(errand.stops, 0.01)
            errands.append(one(after=errands[0], on_busy=on_busy, begins_at=drawn.random() * 3))
    return errands


@contextmanager
def playing() -> Generator[None]:
    """Within this block schedules can be played."""
    with stage.played((executor, "AttemptRunner", Attempted)):
        yield
