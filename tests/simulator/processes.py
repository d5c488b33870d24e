"""The processes of an installation: workers, schedulers, sweepers, and people at an API.

Each is production code on actors. Of a worker the component's work is a script's (`Attempted`); everything around it,
from the hint to the look after the report, is `worker/executor.py`, `worker/leases/leases.py` and `worker/reporter.py`.
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
from canvas.events.run_warnings import Notice
from canvas.graph.canvas import Canvas, NodeKind
from canvas.outcome import POSTPONED, Failed, Finished, Outcome
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
from store.db.transaction import Transaction
from store.monitoring import queue_probes
from store.primitives.db_errors import is_outage
from store.runs.decisions import is_stale_cache
from store.runs.new_activations import InlineReport
from store.runs.reports import is_lease_lost
from tests.builders import At
from tests.simulator import stories
from tests.simulator.database import SimulatedDatabase, SimulatedTransaction
from tests.simulator.invariants import LEASE_ID
from tests.simulator.messages import Broker, Message, Redis, SimulatedBus
from tests.simulator.stage import Event
from tests.simulator.stories import Play
from tests.simulator.tables import Server
from tests.simulator.twins_runs import unpacked
from tests.simulator.world import Broken, Process, World
from worker.attempt import AttemptRunner
from worker.context.side_effects import SideEffectGuard
from worker.context.text_stream import MessageStreamWriter
from worker.executor import Executor
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
class Habits:
    """How nodes work in a schedule; probabilities are those of an attempt."""

    takes_a_while: float = 0.1
    takes_longer_than_a_lease: float = 0.02
    dawdles_the_next_time: float = 0.5
    does_not_let_go: float = 0.05
    takes: Callable[[str], float] = lambda node_id: 0.0  # seconds, at least
    rides_along: bool = True
    eager_for: float = 2.0
    is_postponed: float = 0.0
    kills_its_process: Callable[[str], bool] = lambda node_id: False
    acts_outside: Callable[[str], bool] = lambda node_id: False  # and nobody may do that twice


@dataclass(eq=False)
class Installation:
    """What all processes share."""

    world: World
    server: Server
    broker: Broker
    redis: Redis
    habits: Habits = field(default_factory=Habits)
    max_running: int = 256
    kind: type[Coordinator] | None = None
    acted: set[UUID] = field(default_factory=set[UUID])  # activations that have done what must not be done twice
    workers: dict[str, Process] = field(default_factory=dict[str, Process])  # all that ever were
    sweeper: type[Sweeper] = Sweeper
    limited: set[tuple[UUID, int]] = field(default_factory=set[tuple[UUID, int]])  # of the invariants

    def coordinator(self) -> Coordinator:
        """A process's coordinator."""
        dispatch = Dispatch(self.broker, SimulatedBus(self.redis))  # pyright: ignore[reportArgumentType] (for Celery)
        kind = self.kind or Watched
        return kind(SimulatedDatabase(self.server), dispatch, Plays(), max_running=self.max_running)


class Plays(VersionCache):
    """Versions are plays; they never change, so there is no row to read. No process remembers one that is gone."""

    def get(self, tx: Transaction, version_id: UUID) -> CompiledVersion:
        if isinstance(tx, SimulatedTransaction) and version_id in tx.server.versions_gone:
            raise VersionGone("This version is gone.")
        play = stories.named(version_id)
        return CompiledVersion(play.document, play.canvas)

    def canvas(self, tx: Transaction, version_id: UUID) -> Canvas:
        return self.get(tx, version_id).canvas


class Watched(Coordinator):
    """A coordinator whose bugs end the schedule, whoever would have lived with them."""

    def decide_and_write(self, tx: Transaction, snapshot: RunSnapshot, inline: Sequence[InlineReport] = ()) -> Advance:
        if len(inline) > 1:
            _world_of(self).count("reports go together")
        try:
            return super().decide_and_write(tx, snapshot, inline)
        except SQLAlchemyError as error:
            if not is_outage(error) and not is_lease_lost(error) and not is_stale_cache(error):
                raise_in(self, error)
            raise
        except (ExecutorError, AssertionError, LookupError, TypeError, ValueError) as error:
            if all(_is_held(self, own) for own in inline):  # a run may have gone on without one whose lease is gone
                raise_in(self, error)
            raise


def _is_held(coordinator: Coordinator, own: InlineReport) -> bool:
    database = coordinator.database
    assert isinstance(database, SimulatedDatabase)
    row = database.server["activations"].rows[own.claim.run_id, own.claim.id].committed
    return row is not None and (row["status"], row["lease_id"]) == ("running", own.claim.lease_id)


def _world_of(coordinator: Coordinator) -> World:
    database = coordinator.database
    assert isinstance(database, SimulatedDatabase)
    return database.server.world


def raise_in(coordinator: Coordinator, error: Exception) -> None:
    """End the schedule with an error that production code may catch."""
    world = _world_of(coordinator)
    if isinstance(error, StateError | LookupError | TypeError | AssertionError | SQLAlchemyError):
        world.failure = world.failure or Broken(f"an advance has failed: {type(error).__name__}: {error}")


# -- workers ---------------------------------------------------------------------------------------------------------
class Mouth(MessageStreamWriter):
    """A voice that speaks on its actor's stack instead of an event loop."""

    def says(self, text: str, world: World, server: Server) -> None:
        """Say the next part of the text."""
        self.parts.append(text)
        turn = self.claim.stream_id
        if turn is None or self.restarts_text:
            return
        if not self._is_claimed:
            taken = self._claim_row(turn)
            self._is_claimed, self._is_known = True, taken is not None
            if taken is None:
                self.restarts_text = True
                return
            self._epoch, self._before, self._offset = taken.epoch, taken.text, len(taken.text)
            self._finished_length = taken.retained_length
        fresh = self._skip_repeated(text)
        if not fresh:
            return
        self._offset += len(fresh)
        world.step()
        row = server["activations"].rows[self.claim.run_id, self.claim.id]
        if not server.is_claimed_on_disk(row) and (row.committed or {}).get("lease_id") == self.claim.lease_id:
            raise Broken("a piece has left a worker whose claim is not on disk")
        if world.chance(0.5):
            self._write_row(turn, self._full_text()[: self._offset])


class Work:
    """What stands where a coroutine's task is: it can be cancelled, and lets go or does not."""

    def __init__(self, world: World, *, lets_go: bool) -> None:
        self._world = world
        self._actor = world.current
        self._lets_go = lets_go

    def cancel(self) -> None:
        """Let go, if it does that."""
        if self._lets_go and self._actor is not None:
            self._world.wake(self._actor)


class HereAndNow:
    """Stands where the worker's event loop is."""

    def call(self, function: Callable[[], object]) -> None:
        """Call it."""
        function()


class Attempted(AttemptRunner):
    """One attempt whose work is a script's."""

    def _execute(self) -> Outcome | None:
        installation = self._dependencies.models
        assert isinstance(installation, Installation)
        world, claim, play = installation.world, self._claim, stories.named(self._claim.version_id)
        node = play.canvas.node(claim.node_id)
        habits = installation.habits
        if (claim.id, claim.attempt) in installation.limited and not claim.budgeted:
            world.failure = world.failure or Broken("a thread goes on with its run, and knows of no budget")
        has_turn = bool(play.canvas.stream_owners & node.bit) and claim.answers is None
        mouth = Mouth(
            claim,
            self._dependencies.coordinator.database,
            self._dependencies.text_deltas,
            partial(self._dependencies.persist_claim, claim),
            is_message=has_turn,
        )
        acting = SideEffectGuard(partial(self._dependencies.record_side_effect, claim, self._attempt))
        self._context = Context(mouth, acting)  # pyright: ignore[reportAttributeAccessIssue] (as much as a report needs)
        lets_go = not world.chance(habits.does_not_let_go)
        try:
            if acts := habits.acts_outside(node.id):
                acting.declare_effect("unsafe")
            self._attempt.bind_task(Work(world, lets_go=lets_go))  # pyright: ignore[reportArgumentType] (for a task)
            self._take_time(world, habits, lets_go=lets_go)
            if habits.is_postponed and world.chance(habits.is_postponed):  # before it has done anything
                world.count("attempt postponed")
                return Failed("waits for something", POSTPONED, retryable=True, retry_in=world.between(0.01, 4))
            if habits.kills_its_process(node.id):
                end_process(world)
            outcome = play.script(self._at(installation, play))
            # one that it gives back it has not begun
            if acts and not (isinstance(outcome, Failed) and outcome.retryable):
                self._act_outside(installation)
            if node.kind is NodeKind.MESSAGE or play.canvas.streaming_models & node.bit:
                outcome = self._speak(installation, play, mouth, outcome, lets_go=lets_go)
            if self._attempt.stopped is not None and lets_go:
                raise asyncio.CancelledError
        except AttemptStopped as stop:
            return self._outcome_of_error(stop, node, PLAYED) if self._attempt.stopped is not None else None
        except (asyncio.CancelledError, SQLAlchemyError) as error:
            return self._outcome_of_error(error, node, PLAYED)
        if isinstance(outcome, Finished):
            outcome = replace(outcome, outputs={**outcome.outputs, LEASE_ID: str(claim.lease_id)})
        return outcome if lets_go else self._check_outcome(outcome, node, PLAYED)

    def _take_time(self, world: World, habits: Habits, *, lets_go: bool) -> None:
        """Most nodes are quick, some outlive a lease; who is called off is woken."""
        world.step()
        seconds = habits.takes(self._claim.node_id)
        if self._claim.crash_count and world.chance(habits.dawdles_the_next_time):
            seconds = world.between(2, 15)  # so that the first may come back and find it at work
        elif world.chance(habits.takes_longer_than_a_lease):
            seconds = world.between(5, 25)
        elif world.chance(habits.takes_a_while):
            seconds = world.between(0, 3)
        end = world.now + seconds
        while world.now < end:
            world.wait(end - world.now)
            if self._attempt.stopped is not None and lets_go:
                raise asyncio.CancelledError

    def _act_outside(self, installation: Installation) -> None:
        """Do what can be done once only."""
        claim, server = self._claim, installation.server
        row = server["activations"].rows[claim.run_id, claim.id]
        is_ours = row.committed is not None and row.committed["lease_id"] == claim.lease_id
        if is_ours and not server.is_claimed_on_disk(row):
            raise Broken("a node has acted whose claim is not on disk")
        if claim.id in installation.acted:
            raise Broken(f"{claim.node_id} has acted twice, and nobody was asked")
        installation.acted.add(claim.id)
        installation.world.step("work")

    def _at(self, installation: Installation, play: Play) -> At:
        claim = self._claim
        count: int | None = None
        if claim.scope:
            container, ordinal, _ = claim.scope[-1]
            around = activation_id(claim.run_id, container, claim.scope[:-1], ordinal)
            row = installation.server["activations"].rows[claim.run_id, around]
            told = unpacked(row.committed["outcome"]) if row.committed is not None else None
            count = told.get("count") if told is not None else None
        is_answered = claim.answers is not None
        return At(play.canvas, claim.node_id, claim.scope, claim.ordinal, claim.attempt, is_answered, count)

    def _speak(
        self, installation: Installation, play: Play, mouth: Mouth, outcome: Outcome, *, lets_go: bool
    ) -> Outcome:
        text = play.text(self._claim.node_id, self._claim.scope)
        half = len(text) // 2
        parts = [text[:half], text[half:]] if isinstance(outcome, Finished) else [text[:half]]
        for part in parts:
            if self._attempt.stopped is not None and lets_go:
                raise asyncio.CancelledError
            mouth.says(part, installation.world, installation.server)
        return outcome


def end_process(world: World) -> None:
    """A node takes its process with it."""
    assert world.current is not None, "only actors have a process"
    process = world.current.process
    world.count("worker killed by its node")
    world.at(0, lambda: world.kill(process))
    world.wait()


PLAYED: Any = SimpleNamespace(name="Played", owns_errors=True)
"""Stands where the component is that an attempt runs."""


class Context:
    """As much of a worker's context as a report looks at."""

    def __init__(self, stream: Mouth, side_effects: SideEffectGuard) -> None:
        self.stream = stream
        self.side_effects = side_effects
        self.usage = self.recorded_usage = Usage()
        self.warnings: list[Notice] = []
        self.node = SimpleNamespace(kind=NodeKind.PLAIN)
        self.inputs: dict[str, Any] = {}
        self.opening = ""
        self.variables = NoSlots()


class NoSlots:
    """Outputs that stay from an earlier visit of a node: none."""

    def outputs(self, node_id: str) -> dict[str, Any]:
        """None."""
        return {}


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
        world = self.installation.world
        self.process = self.installation.workers[self.name] = Process(self.name)
        world.spawn(self.process, "", self._begin)

    def _begin(self) -> None:
        shared = self.installation
        coordinator = shared.coordinator()
        loop: Any = HereAndNow()
        self.leases = LeaseKeeper(
            SimulatedDatabase(shared.server),
            coordinator.dispatch.bus,
            loop,
            LeaseTimes(),
            cancel_run=lambda run_id: cancel_by_key(coordinator, run_id),
        )
        unused: Any = None
        given: dict[str, Any] = {
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
            "inline_advance": shared.habits.rides_along,
            "fast_path": FastPath(continue_locally_for=timedelta(seconds=shared.habits.eager_for)),
        }
        execution = Executor(**given)
        for number in range(self.threads):
            shared.world.spawn(self.process, str(number), lambda: self._work(execution, coordinator.database))

    def _work(self, execution: Executor, database: Database) -> None:
        """What a Celery thread does."""
        broker, world = self.installation.broker, self.installation.world
        while True:
            message = broker.receive(NODES)
            me = world.current.name if world.current else ""
            self.held[me] = message
            try:
                if message.task == QUEUE_PROBE:
                    with database.transaction() as tx:
                        queue_probes.record_return(tx, NODES, datetime.fromisoformat(message.args[0]))
                elif not self._carry_out(execution, UUID(message.args[0]), UUID(message.args[1])):
                    broker.give_back(NODES, message)
                    self.held.pop(me, None)
                    world.wait()  # the process goes down
            except SQLAlchemyError as error:
                world.tell(f"task failed: {error.args[0]}")
            self.held.pop(me, None)

    def _carry_out(self, execution: Executor, run_id: UUID, activation_id: UUID) -> bool:
        """A node, and whatever the thread goes on with."""
        eager = execution.new_continuation()
        is_done = execution.execute(run_id, activation_id, eager)
        while eager.next is not None:
            self.installation.world.count("a thread goes on")
            execution.execute(run_id, eager.next.attempt.activation_id, eager)
        return is_done

    def give_back(self) -> None:
        """SIGTERM: the process gives back what it has, and ends."""
        world = self.installation.world

        def end() -> None:
            self.leases.release_all()
            for _ in range(14):
                if not self.leases.attempts():
                    break
                world.sleep(0.5)
            world.at(0, lambda: None if self.process.is_dead else world.kill(self.process))
            world.wait()

        if hasattr(self, "leases"):
            world.spawn(self.process, "shutdown", end)


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
                installation.world.tell(f"task failed: {error.args[0]}")

    installation.world.spawn(process, "", work)
    return process


def sweeper_process(installation: Installation, name: str) -> Process:
    """A sweeper process."""
    process = Process(name)

    def work() -> None:
        never: Any = Event()
        installation.world.sleep(installation.world.between(0, 1))
        installation.sweeper(installation.coordinator()).run(never)

    installation.world.spawn(process, "", work)
    return process


def cancel_by_key(coordinator: Coordinator, run_id: UUID) -> None:
    """What a worker does about a key that it has seen."""
    Lifecycle(coordinator).cancel_by_key(run_id)
