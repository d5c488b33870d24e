"""What goes wrong in a schedule: processes die and stop, the database goes away, messages are forgotten."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from store.db.transaction import Transaction
from store.runs import run_rows
from store.tenants import budgets
from tests.simulator.invariants import OVER
from tests.simulator.people import People
from tests.simulator.processes import Installation, WorkerProcess, scheduler_process, sweeper_process
from tests.simulator.world import Process

LOOKED_EVERY = 0.6  # seconds; a commit that does not wait for the disk may be lost for so long


@dataclass(eq=False)
class Chaos:
    """The processes of a schedule, and their fates. `rate`: faults a step while it lasts."""

    installation: Installation
    people: People
    workers: int = 2
    threads: int = 3  # of a worker process: two may wait for a third that reports
    schedulers: int = 1
    sweepers: int = 1
    rate: float = 0.01
    lasts: int = 400  # steps
    faults: tuple[str, ...] = ()
    jumps: float = 0.0  # seconds, in sum
    _worker_processes: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    _others: dict[str, Process] = field(default_factory=dict[str, Process])
    _lives: int = 0
    _is_over: bool = False

    def begin(self) -> None:
        """Everything is started."""
        for _ in range(self.workers):
            self._worker_comes()
        for number in range(self.schedulers):
            self._others[f"scheduler{number}"] = scheduler_process(self.installation, f"scheduler{number}")
        for number in range(self.sweepers):
            self._others[f"sweeper{number}"] = sweeper_process(self.installation, f"sweeper{number}")
        self.people.come()
        self.attend()

    def attend(self) -> None:
        """The server looks after its transactions and its log, and things go wrong from time to time."""
        self.installation.world.before_each = self._before_each
        self.installation.world.at(LOOKED_EVERY, self._look_after_server)

    @property
    def is_over(self) -> bool:
        """Whether everything is well again."""
        return self._is_over

    def _before_each(self) -> None:
        world = self.installation.world
        if self._is_over:
            return
        if world.steps >= self.lasts:
            self.calm()
        elif self.faults and world.chance(self.rate):
            _FAULTS[self.faults[int(len(self.faults) * world.roll())]](self)

    def calm(self) -> None:
        """From here on nothing goes wrong any more."""
        self._is_over = True
        installation = self.installation
        installation.world.tell("*** from here on all is well")
        installation.server.is_up = True
        installation.server.loses_answers = 0.0
        broker, redis = installation.broker, installation.redis
        broker.loses = broker.doubles = broker.delays = redis.loses = 0.0
        broker.shuffles = False
        broker.comes_back()
        redis.is_up = True

    def _look_after_server(self) -> None:
        """Idle transactions are ended, and the log writer comes by."""
        self.installation.server.end_idle()
        self.installation.server.write_log()
        self.installation.world.at(LOOKED_EVERY, self._look_after_server)

    # -- processes ---------------------------------------------------------------------------------------------------
    def _worker_comes(self) -> None:
        self._lives += 1
        worker = WorkerProcess(self.installation, f"worker{self._lives}", self.threads)
        self._worker_processes.append(worker)
        worker.process.on_death.append(lambda: self._worker_dies(worker))

    def _worker_dies(self, worker: WorkerProcess) -> None:
        world = self.installation.world
        self._worker_processes.remove(worker)
        for actor in worker.process.actors:
            self.installation.redis.listeners.pop(actor, None)
        world.at(world.between(0, 4), self._worker_comes)

    def _any_worker(self) -> WorkerProcess | None:
        found = self._worker_processes
        return found[int(len(found) * self.installation.world.roll())] if found else None

    def kill_worker(self) -> None:
        worker = self._any_worker()
        if worker is not None:
            self.installation.world.count("worker killed")
            self.installation.world.kill(worker.process)

    def shut_down_worker(self) -> None:
        worker = self._any_worker()
        if worker is not None and worker.process.stopped_until is None:
            self.installation.world.count("worker told to go")
            worker.give_back()

    def kill_other(self) -> None:
        name = self._any_other()
        if not self._others[name].is_dead:
            self.kill(name, comes_back_after=self.installation.world.between(0, 4))

    def kill(self, name: str, *, comes_back_after: float) -> None:
        """Kill a scheduler or a sweeper; another comes in its place."""
        world = self.installation.world
        begin = scheduler_process if name.startswith("scheduler") else sweeper_process
        world.count(f"{name.rstrip('0123456789')} killed")
        world.kill(self._others[name])

        def come() -> None:
            self._others[name] = begin(self.installation, name)

        world.at(comes_back_after, come)

    def _any_other(self) -> str:
        names = list(self._others)
        return names[int(len(names) * self.installation.world.roll())]

    def kill_api(self) -> None:
        world = self.installation.world
        if not self.people.process.is_dead:
            world.count("api killed")
            world.kill(self.people.process)
            world.at(world.between(0, 3), lambda: self.people.come() and None)

    def stop_process(self) -> None:
        world = self.installation.world
        everybody = [worker.process for worker in self._worker_processes] * 3
        everybody += [*self._others.values(), self.people.process]
        chosen = everybody[int(len(everybody) * world.roll())]
        if not chosen.is_dead and chosen.stopped_until is None:
            world.count("process stopped")
            world.tell(f"{chosen.name} stands still")
            world.stop(chosen, world.between(0.5, 6) if world.chance(0.4) else world.between(11, 24))

    # -- servers -----------------------------------------------------------------------------------------------------
    def database_goes(self) -> None:
        self._database_goes(crashes=False)

    def database_crashes(self) -> None:
        self._database_goes(crashes=True)

    def _database_goes(self, *, crashes: bool) -> None:
        world, server = self.installation.world, self.installation.server
        if not server.is_up:
            return
        world.count("database crashed" if crashes else "database away")
        server.crash() if crashes else server.cut()
        server.is_up = False

        def come() -> None:
            server.is_up = True

        world.at(world.between(0.2, 12), come)

    def connections_are_cut(self) -> None:
        self.installation.world.count("connections cut")
        self.installation.server.cut()

    def clock_jumps(self) -> None:
        world = self.installation.world
        seconds = world.between(-20, 30)
        world.count("clock jumped")
        world.jumped += timedelta(seconds=seconds)
        self.jumps += abs(seconds)

    def redis_forgets(self) -> None:
        self.installation.world.count("redis emptied")
        self.installation.broker.forget_everything()
        self.installation.redis.forget_everything()

    def redis_goes(self) -> None:
        world, broker, redis = self.installation.world, self.installation.broker, self.installation.redis
        if not broker.is_up:
            return
        world.count("redis away")
        broker.is_up = redis.is_up = False

        def come() -> None:
            broker.comes_back()
            redis.is_up = True

        world.at(world.between(0.5, 8), come)

    def budget_is_set(self) -> None:
        """Somebody sets a limit for a run that goes on."""
        world = self.installation.world
        known = [errand.went_to for errand in self.people.errands if errand.went_to is not None]
        if not known or self.people.process.is_dead or self.people.process.stopped_until is not None:
            world.at(0.2, self.budget_is_set)
            return
        run_id = known[int(len(known) * world.roll())]
        coordinator = self.installation.coordinator()

        def mark(tx: Transaction) -> None:
            row = run_rows.lock(tx, run_id)
            if row is not None and row.status not in OVER:
                world.count("budget set")
                budgets.flag_run(tx, row.tenant_id, run_id)

        def set_limit() -> None:
            with suppress(SQLAlchemyError):
                coordinator.database.run_with_retry(mark)
            with suppress(SQLAlchemyError):
                coordinator.recheck(run_id)  # as everyone does who held a run

        world.spawn(self.people.process, "sets a budget", set_limit)

    def version_goes(self) -> None:
        """The version of somebody's run is gone, and no process remembers it."""
        world, errands = self.installation.world, self.people.errands
        world.count("version gone")
        self.installation.server.versions_gone.add(errands[int(len(errands) * world.roll())].start.version_id)

    def somebody_sets_a_key(self) -> None:
        world = self.installation.world
        known = [errand for errand in self.people.errands if errand.went_to is not None and errand.stops > 0]
        if known:
            chosen = known[int(len(known) * world.roll())]
            world.count("cancel key set")
            self.installation.redis.keys.add(f"{chosen.went_to}-cancel")


_FAULTS: dict[str, Callable[[Chaos], None]] = {
    "kill worker": Chaos.kill_worker,
    "shut down worker": Chaos.shut_down_worker,
    "kill other": Chaos.kill_other,
    "kill api": Chaos.kill_api,
    "stop": Chaos.stop_process,
    "database away": Chaos.database_goes,
    "database crash": Chaos.database_crashes,
    "cut": Chaos.connections_are_cut,
    "clock": Chaos.clock_jumps,
    "redis forgets": Chaos.redis_forgets,
    "redis away": Chaos.redis_goes,
    "key": Chaos.somebody_sets_a_key,
}
ALL_FAULTS = tuple(_FAULTS)
