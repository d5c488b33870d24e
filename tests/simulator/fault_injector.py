"""The fault injector of a schedule: kills and pauses processes, stops the database, loses messages."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError

from store.db.transaction import Transaction
from store.runs import run_rows
from store.tenants import budgets
from tests.simulator.clients import Clients
from tests.simulator.invariants import OVER
from tests.simulator.processes import Installation, WorkerProcess, scheduler_process, sweeper_process
from tests.simulator.simulation import Process

MAINTENANCE_INTERVAL = 0.6  # seconds; an asynchronous commit can be lost for so long


@dataclass(eq=False)
class FaultInjector:
    """Starts the processes of a schedule and injects faults into them. `rate`: faults per step."""

    installation: Installation
    clients: Clients
    workers: int = 2
    threads: int = 3  # of a worker process: two may wait for a third that reports
    schedulers: int = 1
    sweepers: int = 1
    rate: float = 0.01
    duration: int = 400  # steps in which faults are injected
    faults: tuple[str, ...] = ()
    total_jump: float = 0.0  # seconds, in sum
    _worker_processes: list[WorkerProcess] = field(default_factory=list[WorkerProcess])
    _others: dict[str, Process] = field(default_factory=dict[str, Process])
    _started_workers: int = 0
    _is_over: bool = False

    def start(self) -> None:
        """Start all processes and the clients."""
        for _ in range(self.workers):
            self._start_worker()
        for number in range(self.schedulers):
            self._others[f"scheduler{number}"] = scheduler_process(self.installation, f"scheduler{number}")
        for number in range(self.sweepers):
            self._others[f"sweeper{number}"] = sweeper_process(self.installation, f"sweeper{number}")
        self.clients.start_process()
        self.attach()

    def attach(self) -> None:
        """Inject faults before steps, and run the maintenance of the server."""
        self.installation.simulation.before_step = self._inject_fault
        self.installation.simulation.call_later(MAINTENANCE_INTERVAL, self._maintain_server)

    @property
    def is_over(self) -> bool:
        """Whether no more faults are injected."""
        return self._is_over

    def _inject_fault(self) -> None:
        simulation = self.installation.simulation
        if self._is_over:
            return
        if simulation.steps >= self.duration:
            self.stop_faults()
        elif self.faults and simulation.chance(self.rate):
            _FAULTS[self.faults[int(len(self.faults) * simulation.roll())]](self)

    def stop_faults(self) -> None:
        """Stop injecting faults, and bring the servers back."""
        self._is_over = True
        installation = self.installation
        installation.simulation.trace("*** no more faults")
        installation.server.is_up = True
        installation.server.lost_answer_probability = 0.0
        broker, redis = installation.broker, installation.redis
        broker.loss_probability = broker.duplicate_probability = broker.delay_probability = redis.loss_probability = 0.0
        broker.is_shuffled = False
        broker.restore()
        redis.is_up = True

    def _maintain_server(self) -> None:
        """End idle transactions, and write the log to disk."""
        self.installation.server.end_idle()
        self.installation.server.write_log()
        self.installation.simulation.call_later(MAINTENANCE_INTERVAL, self._maintain_server)

    # -- processes ---------------------------------------------------------------------------------------------------
    def _start_worker(self) -> None:
        self._started_workers += 1
        worker = WorkerProcess(self.installation, f"worker{self._started_workers}", self.threads)
        self._worker_processes.append(worker)
        worker.process.on_death.append(lambda: self._replace_worker(worker))

    def _replace_worker(self, worker: WorkerProcess) -> None:
        simulation = self.installation.simulation
        self._worker_processes.remove(worker)
        for actor in worker.process.actors:
            self.installation.redis.listeners.pop(actor, None)
        simulation.call_later(simulation.between(0, 4), self._start_worker)

    def _random_worker(self) -> WorkerProcess | None:
        found = self._worker_processes
        return found[int(len(found) * self.installation.simulation.roll())] if found else None

    def kill_worker(self) -> None:
        worker = self._random_worker()
        if worker is not None:
            self.installation.simulation.count("worker killed")
            self.installation.simulation.kill(worker.process)

    def shut_down_worker(self) -> None:
        worker = self._random_worker()
        if worker is not None and worker.process.paused_until is None:
            self.installation.simulation.count("worker shut down")
            worker.shut_down()

    def kill_other(self) -> None:
        name = self._random_other()
        if not self._others[name].is_dead:
            self.kill(name, restart_after=self.installation.simulation.between(0, 4))

    def kill(self, name: str, *, restart_after: float) -> None:
        """Kill a scheduler or a sweeper, and start another one later."""
        simulation = self.installation.simulation
        start = scheduler_process if name.startswith("scheduler") else sweeper_process
        simulation.count(f"{name.rstrip('0123456789')} killed")
        simulation.kill(self._others[name])

        def restart() -> None:
            self._others[name] = start(self.installation, name)

        simulation.call_later(restart_after, restart)

    def _random_other(self) -> str:
        names = list(self._others)
        return names[int(len(names) * self.installation.simulation.roll())]

    def kill_api(self) -> None:
        simulation = self.installation.simulation
        if not self.clients.process.is_dead:
            simulation.count("api killed")
            simulation.kill(self.clients.process)
            simulation.call_later(simulation.between(0, 3), lambda: self.clients.start_process() and None)

    def pause_process(self) -> None:
        simulation = self.installation.simulation
        processes = [worker.process for worker in self._worker_processes] * 3
        processes += [*self._others.values(), self.clients.process]
        chosen = processes[int(len(processes) * simulation.roll())]
        if not chosen.is_dead and chosen.paused_until is None:
            simulation.count("process stopped")
            simulation.trace(f"{chosen.name} is paused")
            simulation.pause(
                chosen, simulation.between(0.5, 6) if simulation.chance(0.4) else simulation.between(11, 24)
            )

    # -- servers -----------------------------------------------------------------------------------------------------
    def stop_database(self) -> None:
        self._end_database(crashes=False)

    def crash_database(self) -> None:
        self._end_database(crashes=True)

    def _end_database(self, *, crashes: bool) -> None:
        simulation, server = self.installation.simulation, self.installation.server
        if not server.is_up:
            return
        simulation.count("database crashed" if crashes else "database away")
        server.crash() if crashes else server.cut()
        server.is_up = False

        def restart() -> None:
            server.is_up = True

        simulation.call_later(simulation.between(0.2, 12), restart)

    def cut_connections(self) -> None:
        self.installation.simulation.count("connections cut")
        self.installation.server.cut()

    def jump_clock(self) -> None:
        simulation = self.installation.simulation
        seconds = simulation.between(-20, 30)
        simulation.count("clock jumped")
        simulation.clock_offset += timedelta(seconds=seconds)
        self.total_jump += abs(seconds)

    def empty_redis(self) -> None:
        self.installation.simulation.count("redis emptied")
        self.installation.broker.flush()
        self.installation.redis.flush()

    def stop_redis(self) -> None:
        simulation, broker, redis = self.installation.simulation, self.installation.broker, self.installation.redis
        if not broker.is_up:
            return
        simulation.count("redis away")
        broker.is_up = redis.is_up = False

        def restart() -> None:
            broker.restore()
            redis.is_up = True

        simulation.call_later(simulation.between(0.5, 8), restart)

    def set_budget(self) -> None:
        """Set a budget for a run that is not over."""
        simulation = self.installation.simulation
        known = [request.accepted_run for request in self.clients.requests if request.accepted_run is not None]
        if not known or self.clients.process.is_dead or self.clients.process.paused_until is not None:
            simulation.call_later(0.2, self.set_budget)
            return
        run_id = known[int(len(known) * simulation.roll())]
        coordinator = self.installation.coordinator()

        def flag(tx: Transaction) -> None:
            row = run_rows.lock(tx, run_id)
            if row is not None and row.status not in OVER:
                simulation.count("budget set")
                budgets.flag_run(tx, row.tenant_id, run_id)

        def set_limit() -> None:
            with suppress(SQLAlchemyError):
                coordinator.database.run_with_retry(flag)
            with suppress(SQLAlchemyError):
                coordinator.recheck(run_id)  # as after every lock of a run

        simulation.spawn(self.clients.process, "sets a budget", set_limit)

    def delete_version(self) -> None:
        """Delete the version of a run, also from the caches of all processes."""
        simulation, requests = self.installation.simulation, self.clients.requests
        simulation.count("version deleted")
        self.installation.server.deleted_versions.add(requests[int(len(requests) * simulation.roll())].start.version_id)

    def set_cancel_key(self) -> None:
        simulation = self.installation.simulation
        known = [
            request
            for request in self.clients.requests
            if request.accepted_run is not None and request.cancel_probability > 0
        ]
        if known:
            chosen = known[int(len(known) * simulation.roll())]
            simulation.count("cancel key set")
            self.installation.redis.keys.add(f"{chosen.accepted_run}-cancel")


_FAULTS: dict[str, Callable[[FaultInjector], None]] = {
    "kill worker": FaultInjector.kill_worker,
    "shut down worker": FaultInjector.shut_down_worker,
    "kill other": FaultInjector.kill_other,
    "kill api": FaultInjector.kill_api,
    "stop": FaultInjector.pause_process,
    "database away": FaultInjector.stop_database,
    "database crash": FaultInjector.crash_database,
    "cut": FaultInjector.cut_connections,
    "clock": FaultInjector.jump_clock,
    "redis forgets": FaultInjector.empty_redis,
    "redis away": FaultInjector.stop_redis,
    "key": FaultInjector.set_cancel_key,
}
ALL_FAULTS = tuple(_FAULTS)
