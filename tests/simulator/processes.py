"""The processes of an installation: workers, schedulers and sweepers.

Each is production code on actors. In a worker, scripts replace components (`ScriptedAttempt`); everything else,
from the task message to the re-check after the report, is `worker/execution/executor.py`, `worker/leases/leases.py` and
`worker/execution/reporter.py`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from canvas.errors import AttemptStopped, ExecutorError, StateError
from canvas.graph.canvas import Canvas, NodeKind
from canvas.graph.passwords import NO_PASSWORDS
from canvas.outcome import POSTPONED, Failed, Finished, Outcome
from canvas.run_warnings import Notice
from canvas.state.run_state import activation_id
from providers.models.types.chat import Usage
from scheduler.coordinator.coordinator import Coordinator
from scheduler.coordinator.decision_writer import Advance
from scheduler.coordinator.run_snapshots import RunSnapshot
from scheduler.coordinator.version_cache import CompiledVersion, VersionCache
from scheduler.lifecycle.lifecycle import Lifecycle
from scheduler.messaging.celery_app import ADVANCE, NODES, QUEUE_PROBE, RUNS
from scheduler.messaging.dispatch import Dispatch
from scheduler.sweeper.sweeper import Sweeper
from store.agents.versions import VersionGone
from store.db.database import Database
from store.db.db_errors import is_outage
from store.db.transaction import Transaction
from store.monitoring import queue_probes
from store.runs import prepared_claims
from store.runs.decisions import is_stale_cache
from store.runs.new_activations import InlineReport
from store.runs.prepared_claims import ReceivedClaim
from store.runs.reports import is_lease_lost
from tests.builders import NodeAttempt
from tests.simulator import scenarios
from tests.simulator.database import SimulatedDatabase, SimulatedTransaction
from tests.simulator.invariants import LEASE_ID
from tests.simulator.messages import Broker, Message, Redis, SimulatedBus
from tests.simulator.patches import Event
from tests.simulator.scenarios import Scenario
from tests.simulator.simulation import InvariantViolated, Process, Simulation
from tests.simulator.tables import Server
from tests.simulator.twins_runs import decode_json
from worker.context.side_effects import SideEffectGuard
from worker.context.text_stream import MessageStreamWriter
from worker.execution.attempt import AttemptRunner
from worker.execution.executor import Executor
from worker.fastpath.claim_batcher import ClaimBatcher
from worker.fastpath.switches import FastPath
from worker.leases.leases import LeaseKeeper

LEASE = timedelta(seconds=10)
RENEW_EVERY = timedelta(seconds=3)
CANCEL_POLL = timedelta(milliseconds=500)
GRACE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """The settings of leases."""

    lease: timedelta = LEASE
    renew_every: timedelta = RENEW_EVERY
    cancel_poll: timedelta = CANCEL_POLL
    shutdown_grace: timedelta = GRACE


@dataclass(eq=False)
class NodeBehavior:
    """How nodes behave in a schedule; probabilities apply to single attempts."""

    delay_probability: float = 0.1
    long_delay_probability: float = 0.02
    retry_delay_probability: float = 0.5
    ignores_cancel_probability: float = 0.05
    duration: Callable[[str], float] = lambda node_id: 0.0  # seconds, at least
    inline_advance: bool = True
    continue_locally_for: float = 2.0
    defers_claims: bool = True
    postpone_probability: float = 0.0
    crashes_process: Callable[[str], bool] = lambda node_id: False
    has_side_effect: Callable[[str], bool] = lambda node_id: False  # that must not happen twice


@dataclass(eq=False)
class Installation:
    """What all processes share."""

    simulation: Simulation
    server: Server
    broker: Broker
    redis: Redis
    behavior: NodeBehavior = field(default_factory=NodeBehavior)
    max_running: int = 256
    kind: type[Coordinator] | None = None
    performed_effects: set[UUID] = field(default_factory=set[UUID])  # activations whose side effect has happened
    workers: dict[str, Process] = field(default_factory=dict[str, Process])  # all that were ever started
    sweeper: type[Sweeper] = Sweeper
    limited: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])  # shared with the invariants

    def coordinator(self) -> Coordinator:
        """A process's coordinator."""
        dispatch = Dispatch(self.broker, SimulatedBus(self.redis))  # pyright: ignore[reportArgumentType] (for Celery)
        kind = self.kind or StrictCoordinator
        return kind(SimulatedDatabase(self.server), dispatch, ScenarioVersions(), max_running=self.max_running)


class ScenarioVersions(VersionCache):
    """Versions are scenarios and never change, so no row is read. A deleted version is in no cache."""

    def get(self, tx: Transaction, version_id: UUID) -> CompiledVersion:
        if isinstance(tx, SimulatedTransaction) and version_id in tx.server.deleted_versions:
            raise VersionGone("This version is gone.")
        scenario = scenarios.scenario_of(version_id)
        return CompiledVersion(scenario.document, scenario.canvas)

    def canvas(self, tx: Transaction, version_id: UUID) -> Canvas:
        return self.get(tx, version_id).canvas


class StrictCoordinator(Coordinator):
    """A coordinator whose errors end the schedule, even where production code would handle them."""

    def decide_and_write(self, tx: Transaction, snapshot: RunSnapshot, inline: Sequence[InlineReport] = ()) -> Advance:
        if len(inline) > 1:
            _simulation_of(self).count("reports applied together")
        try:
            return super().decide_and_write(tx, snapshot, inline)
        except SQLAlchemyError as error:
            if not is_outage(error) and not is_lease_lost(error) and not is_stale_cache(error):
                fail_schedule(self, error)
            raise
        except (ExecutorError, AssertionError, LookupError, TypeError, ValueError) as error:
            if all(_is_held(self, own) for own in inline):  # a run may have continued without an expired report
                fail_schedule(self, error)
            raise


def _is_held(coordinator: Coordinator, own: InlineReport) -> bool:
    database = coordinator.database
    assert isinstance(database, SimulatedDatabase)
    row = database.server["activations"].rows[own.claim.run_id, own.claim.id].committed
    if row is None:
        return False
    is_unclaimed = own.claim.deferral is not None and (row["status"], row["attempt"]) == ("ready", 0)
    return is_unclaimed or (row["status"], row["lease_id"]) == ("running", own.claim.lease_id)


def _simulation_of(coordinator: Coordinator) -> Simulation:
    database = coordinator.database
    assert isinstance(database, SimulatedDatabase)
    return database.server.simulation


def fail_schedule(coordinator: Coordinator, error: Exception) -> None:
    """End the schedule with an error that production code may catch."""
    simulation = _simulation_of(coordinator)
    if isinstance(error, StateError | LookupError | TypeError | AssertionError | SQLAlchemyError):
        simulation.failure = simulation.failure or InvariantViolated(
            f"an advance has failed: {type(error).__name__}: {error}"
        )


# -- workers ---------------------------------------------------------------------------------------------------------
class SimulatedStreamWriter(MessageStreamWriter):
    """A stream writer that writes on its actor's stack instead of an event loop."""

    def write_part(self, text: str, simulation: Simulation, server: Server) -> None:
        """Write the next part of the text."""
        self.parts.append(text)
        stream_id = self.claim.stream_id
        if stream_id is None or self.restarts_text:
            return
        if not self._is_claimed:
            claimed = self._claim_row(stream_id)
            self._is_claimed, self._is_known = True, claimed is not None
            if claimed is None:
                self.restarts_text = True
                return
            self._epoch, self._before, self._offset = claimed.epoch, claimed.text, len(claimed.text)
            self._finished_length = claimed.retained_length
        new_text = self._skip_repeated(text)
        if not new_text:
            return
        self._offset += len(new_text)
        simulation.step()
        row = server["activations"].rows[self.claim.run_id, self.claim.id]
        if not server.is_lease_durable(row) and (row.committed or {}).get("lease_id") == self.claim.lease_id:
            raise InvariantViolated("a text delta has left a worker whose claim is not on disk")
        if simulation.chance(0.5):
            self._write_row(stream_id, self._full_text()[: self._offset])


class CancellableTask:
    """Replaces a coroutine's task: it can be cancelled, and honours that or ignores it."""

    def __init__(self, simulation: Simulation, *, honours_cancel: bool) -> None:
        self._simulation = simulation
        self._actor = simulation.current
        self._honours_cancel = honours_cancel

    def cancel(self) -> None:
        """Wake the actor, if it honours a cancel."""
        if self._honours_cancel and self._actor is not None:
            self._simulation.wake(self._actor)


class InlineLoop:
    """Replaces the worker's event loop; calls functions at once."""

    def call(self, function: Callable[[], object]) -> None:
        """Call the function."""
        function()


class ScriptedAttempt(AttemptRunner):
    """An attempt that runs a script instead of a component."""

    def _execute(self) -> Outcome | None:
        installation = self._dependencies.models
        assert isinstance(installation, Installation)
        simulation, claim = installation.simulation, self._claim
        scenario = scenarios.scenario_of(claim.version_id)
        node = scenario.canvas.node(claim.node_id)
        behavior = installation.behavior
        if (claim.id, claim.attempt) in installation.limited and not claim.budgeted:
            simulation.failure = simulation.failure or InvariantViolated(
                "a local continuation ignores the budget of its run"
            )
        has_stream = bool(scenario.canvas.stream_owners & node.bit) and claim.answers is None
        writer = SimulatedStreamWriter(
            claim,
            self._dependencies.coordinator.database,
            self._dependencies.text_deltas,
            partial(self._dependencies.persist_claim, claim),
            is_message=has_stream,
        )
        guard = SideEffectGuard(partial(self._dependencies.record_side_effect, claim, self._attempt))
        self._context = Context(writer, guard)  # pyright: ignore[reportAttributeAccessIssue] (as much as a report needs)
        honours_cancel = not simulation.chance(behavior.ignores_cancel_probability)
        try:
            if has_effect := behavior.has_side_effect(node.id):
                guard.declare_effect("unsafe")
            self._attempt.bind_task(CancellableTask(simulation, honours_cancel=honours_cancel))  # pyright: ignore[reportArgumentType] (for a task)
            self._spend_time(simulation, behavior, honours_cancel=honours_cancel)
            # before the attempt has had any effect
            if behavior.postpone_probability and simulation.chance(behavior.postpone_probability):
                simulation.count("attempt postponed")
                return Failed("waits for something", POSTPONED, retryable=True, retry_in=simulation.between(0.01, 4))
            if behavior.crashes_process(node.id):
                crash_process(simulation)
            outcome = scenario.script(self._script_position(installation, scenario))
            # a retryable failure stands for an attempt without effect
            if has_effect and not (isinstance(outcome, Failed) and outcome.retryable):
                self._perform_side_effect(installation)
            if node.kind is NodeKind.MESSAGE or scenario.canvas.streaming_models & node.bit:
                outcome = self._stream_text(installation, scenario, writer, outcome, honours_cancel=honours_cancel)
            if self._attempt.stopped is not None and honours_cancel:
                raise asyncio.CancelledError
        except AttemptStopped as stop:
            return self._outcome_of_error(stop, node, SCRIPTED_COMPONENT) if self._attempt.stopped is not None else None
        except (asyncio.CancelledError, SQLAlchemyError) as error:
            return self._outcome_of_error(error, node, SCRIPTED_COMPONENT)
        if isinstance(outcome, Finished):
            outcome = replace(outcome, outputs={**outcome.outputs, LEASE_ID: str(claim.lease_id)})
        return outcome if honours_cancel else self._check_outcome(outcome, node, SCRIPTED_COMPONENT)

    def _spend_time(self, simulation: Simulation, behavior: NodeBehavior, *, honours_cancel: bool) -> None:
        """Let time pass: most nodes are quick, some outlive their lease. A cancel ends the wait."""
        simulation.step()
        seconds = behavior.duration(self._claim.node_id)
        if self._claim.crash_count and simulation.chance(behavior.retry_delay_probability):
            seconds = simulation.between(2, 15)  # so that the first attempt may come back meanwhile
        elif simulation.chance(behavior.long_delay_probability):
            seconds = simulation.between(5, 25)
        elif simulation.chance(behavior.delay_probability):
            seconds = simulation.between(0, 3)
        end = simulation.now + seconds
        while simulation.now < end:
            simulation.wait(end - simulation.now)
            if self._attempt.stopped is not None and honours_cancel:
                raise asyncio.CancelledError

    def _perform_side_effect(self, installation: Installation) -> None:
        """Perform a side effect that must not happen twice."""
        claim, server = self._claim, installation.server
        row = server["activations"].rows[claim.run_id, claim.id]
        is_ours = row.committed is not None and row.committed["lease_id"] == claim.lease_id
        if is_ours and not server.is_lease_durable(row):
            raise InvariantViolated("a side effect has happened before its claim was on disk")
        if claim.id in installation.performed_effects:
            raise InvariantViolated(f"{claim.node_id} had its side effect twice without asking")
        installation.performed_effects.add(claim.id)
        installation.simulation.step("work")

    def _script_position(self, installation: Installation, scenario: Scenario) -> NodeAttempt:
        claim = self._claim
        count: int | None = None
        if claim.scope:
            container, ordinal, _ = claim.scope[-1]
            around = activation_id(claim.run_id, container, claim.scope[:-1], ordinal)
            row = installation.server["activations"].rows[claim.run_id, around]
            outcome = decode_json(row.committed["outcome"]) if row.committed is not None else None
            count = outcome.get("count") if outcome is not None else None
        is_answered = claim.answers is not None
        return NodeAttempt(
            scenario.canvas, claim.node_id, claim.scope, claim.ordinal, claim.attempt, is_answered, count
        )

    def _stream_text(
        self,
        installation: Installation,
        scenario: Scenario,
        writer: SimulatedStreamWriter,
        outcome: Outcome,
        *,
        honours_cancel: bool,
    ) -> Outcome:
        text = scenario.text(self._claim.node_id, self._claim.scope)
        half = len(text) // 2
        parts = [text[:half], text[half:]] if isinstance(outcome, Finished) else [text[:half]]
        for part in parts:
            if self._attempt.stopped is not None and honours_cancel:
                raise asyncio.CancelledError
            writer.write_part(part, installation.simulation, installation.server)
        return outcome


def crash_process(simulation: Simulation) -> None:
    """Kill the process of the current actor."""
    assert simulation.current is not None, "only actors have a process"
    process = simulation.current.process
    simulation.count("worker killed by its node")
    simulation.call_later(0, lambda: simulation.kill(process))
    simulation.wait()


SCRIPTED_COMPONENT: Any = SimpleNamespace(name="Played", owns_errors=True)
"""Replaces the component that an attempt runs."""


class Context:
    """The part of a worker's context that a report reads."""

    def __init__(self, stream: SimulatedStreamWriter, side_effects: SideEffectGuard) -> None:
        self.stream = stream
        self.side_effects = side_effects
        self.usage = self.recorded_usage = Usage()
        self.calls = None
        self.warnings: list[Notice] = []
        self.node = SimpleNamespace(kind=NodeKind.PLAIN)
        self.inputs: dict[str, Any] = {}
        self.opening = ""
        self.variables = NoPreviousOutputs()
        self.storage = SimpleNamespace(passwords=lambda: NO_PASSWORDS)


class NoPreviousOutputs:
    """Outputs of earlier visits of a node: none."""

    def outputs(self, node_id: str) -> dict[str, Any]:
        """Return no outputs."""
        return {}


class SimulatedExecutor(Executor):
    """An executor that defers the claim of every node without a side effect."""

    def may_defer_claim(self, prepared: ReceivedClaim) -> bool:
        installation = self.models
        assert isinstance(installation, Installation)
        if not self.fast_path.defer_claims or installation.behavior.has_side_effect(prepared.node_id):
            return False
        installation.simulation.count("claim deferred")
        return True


@dataclass(eq=False)
class WorkerProcess:
    """A worker process; `threads` attempts at once."""

    installation: Installation
    name: str
    threads: int = 3
    process: Process = field(init=False)
    leases: LeaseKeeper = field(init=False)
    held: dict[str, Message] = field(default_factory=dict[str, Message])

    def __post_init__(self) -> None:
        simulation = self.installation.simulation
        self.process = self.installation.workers[self.name] = Process(self.name)
        simulation.spawn(self.process, "", self._begin)

    def _begin(self) -> None:
        shared = self.installation
        coordinator = shared.coordinator()
        loop: Any = InlineLoop()
        self.leases = LeaseKeeper(
            SimulatedDatabase(shared.server),
            coordinator.dispatch.bus,
            loop,
            LeaseTimes(),
            cancel_run=lambda run_id: cancel_by_key(coordinator, run_id),
        )
        unused: Any = None
        dependencies: dict[str, Any] = {
            "coordinator": coordinator,
            "leases": self.leases,
            "loop": loop,
            "models": shared,
            "text_deltas": unused,
            "time_limit": unused,
            "read_file": unused,
            "services": unused,
            "blobs": unused,
            "worker_name": self.name,
            "claims": ClaimBatcher(1),
            "inline_advance": shared.behavior.inline_advance,
            "fast_path": FastPath(
                continue_locally_for=timedelta(seconds=shared.behavior.continue_locally_for),
                defer_claims=shared.behavior.defers_claims,
            ),
        }
        execution = SimulatedExecutor(**dependencies)
        for number in range(self.threads):
            shared.simulation.spawn(self.process, str(number), lambda: self._work(execution, coordinator.database))

    def _work(self, execution: Executor, database: Database) -> None:
        """Process task messages, as a Celery thread does."""
        broker, simulation = self.installation.broker, self.installation.simulation
        while True:
            message = broker.receive(NODES)
            thread_name = simulation.current.name if simulation.current else ""
            self.held[thread_name] = message
            try:
                if message.task == QUEUE_PROBE:
                    with database.transaction() as tx:
                        queue_probes.record_return(tx, NODES, datetime.fromisoformat(message.args[0]))
                elif not self._execute_message(execution, message):
                    broker.put_back(NODES, message)
                    self.held.pop(thread_name, None)
                    simulation.wait()  # the process is shutting down
            except SQLAlchemyError as error:
                simulation.trace(f"task failed: {error.args[0]}")
            self.held.pop(thread_name, None)

    def _execute_message(self, execution: Executor, message: Message) -> bool:
        """Execute an activation and its local continuations."""
        run_id, activation_id = map(UUID, message.args)
        continuation = execution.new_continuation()
        prepared = prepared_claims.decode(run_id, activation_id, message.prepared)
        is_done = execution.execute(run_id, activation_id, continuation, prepared)
        while continuation.next is not None:
            self.installation.simulation.count("local continuation")
            execution.execute(run_id, continuation.next.attempt.activation_id, continuation)
        return is_done

    def shut_down(self) -> None:
        """SIGTERM: release all attempts, then end the process."""
        simulation = self.installation.simulation

        def end() -> None:
            self.leases.release_all()
            for _ in range(14):
                if not self.leases.attempts():
                    break
                simulation.sleep(0.5)
            simulation.call_later(0, lambda: None if self.process.is_dead else simulation.kill(self.process))
            simulation.wait()

        if hasattr(self, "leases"):
            simulation.spawn(self.process, "shutdown", end)


# -- schedulers and sweepers -----------------------------------------------------------------------------------------
def scheduler_process(installation: Installation, name: str) -> Process:
    """A scheduler process with one thread."""
    process, broker = Process(name), installation.broker

    def work() -> None:
        coordinator = installation.coordinator()
        while True:
            message = broker.receive(RUNS)
            assert message.task == ADVANCE
            try:
                coordinator.advance_run(UUID(message.args[0]))
            except SQLAlchemyError as error:
                installation.simulation.trace(f"task failed: {error.args[0]}")

    installation.simulation.spawn(process, "", work)
    return process


def sweeper_process(installation: Installation, name: str) -> Process:
    """A sweeper process."""
    process = Process(name)

    def work() -> None:
        never: Any = Event()
        installation.simulation.sleep(installation.simulation.between(0, 1))
        installation.sweeper(installation.coordinator()).run(never)

    installation.simulation.spawn(process, "", work)
    return process


def cancel_by_key(coordinator: Coordinator, run_id: UUID) -> None:
    """Cancel a run whose cancel key a worker has found."""
    Lifecycle(coordinator).cancel_by_key(run_id)
