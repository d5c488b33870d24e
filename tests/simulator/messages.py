"""A simulated broker and Redis that lose, duplicate, delay and reorder messages, and can be emptied.

`Dispatch` sends through them as it does through Celery and Redis in production.
"""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import redis
from kombu.exceptions import OperationalError

from scheduler.messaging.celery_app import NODES, PREPARED_CLAIM, RUNS
from scheduler.messaging.event_notifier import EventNotification
from scheduler.messaging.redis_bus import Bus, cancel_keys, session_keys
from tests.simulator.simulation import Actor, Simulation

LISTEN_TIMEOUT = 2.0  # seconds after which a listener checks whether Redis is still up


@dataclass(frozen=True, slots=True)
class Message:
    """A task message."""

    task: str
    args: tuple[str, ...]
    expires_at: float
    prepared: str | None = None  # the claim that it carries; a message that comes again carries none


@dataclass(eq=False)
class Broker:
    """Queues of task messages. Probabilities apply to single messages."""

    simulation: Simulation
    loss_probability: float = 0.0
    duplicate_probability: float = 0.0
    delay_probability: float = 0.0
    is_shuffled: bool = False
    is_up: bool = True
    sent: list[Message] = field(default_factory=list[Message])
    _queues: dict[str, list[Message]] = field(default_factory=lambda: {NODES: [], RUNS: []})
    _consumers: dict[str, list[Actor]] = field(default_factory=lambda: {NODES: [], RUNS: []})

    # -- what Dispatch calls -----------------------------------------------------------------------------------------
    @contextmanager
    def producer_or_acquire(self) -> Generator[None]:
        """The producer that `Dispatch` sends through."""
        yield None

    def send_task(
        self,
        task: str,
        args: Sequence[str] = (),
        queue: str = NODES,
        expires: float | None = None,
        headers: Mapping[str, str] | None = None,
        **_: object,
    ) -> None:
        """Send a task message."""
        simulation = self.simulation
        simulation.step("send")
        if not self.is_up:
            raise OperationalError("the broker is away")
        expires_at = simulation.now + expires if expires else float("inf")
        message = Message(task, tuple(args), expires_at, (headers or {}).get(PREPARED_CLAIM))
        if simulation.trace_lines is not None:
            simulation.trace(f"sends {task} {' '.join(args)}")
        self.sent.append(message)
        if simulation.chance(self.loss_probability):
            simulation.count("message lost")
            return
        for _copy in range(2 if simulation.chance(self.duplicate_probability) else 1):
            if simulation.chance(self.delay_probability):
                simulation.count("message delayed")
                simulation.call_later(simulation.between(0, 8), lambda: self._deliver(queue, message))
            else:
                self._deliver(queue, message)

    def _deliver(self, queue: str, message: Message) -> None:
        self._queues[queue].append(message)
        consumers = self._consumers[queue]
        while consumers:
            actor = consumers.pop(int(len(consumers) * self.simulation.roll()))
            if not actor.process.is_dead:
                self.simulation.wake(actor)
                return

    # -- what consumers call -----------------------------------------------------------------------------------------
    def receive(self, queue: str) -> Message:
        """Wait for the next task message of a queue, and return it."""
        simulation, waiting = self.simulation, self._queues[queue]
        simulation.step("receive")
        while True:
            while waiting and self.is_up:
                position = int(len(waiting) * simulation.roll()) if self.is_shuffled else 0
                message = waiting.pop(position)
                if message.expires_at >= simulation.now:
                    simulation.trace(f"receives {message.task} {' '.join(message.args)}")
                    return message
            assert simulation.current is not None, "only actors receive"
            self._consumers[queue].append(simulation.current)
            simulation.wait()

    def put_back(self, queue: str, message: Message) -> None:
        """Put a task message back that a consumer could not process."""
        self._deliver(queue, replace(message, prepared=None))

    # -- faults ------------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """FLUSHALL."""
        for waiting in self._queues.values():
            waiting.clear()

    def restore(self) -> None:
        """Come back up, with the messages in the queues."""
        self.is_up = True
        for queue, waiting in self._queues.items():
            consumers, self._consumers[queue] = self._consumers[queue], []
            for actor in consumers if waiting else ():
                self.simulation.wake(actor)
            self._consumers[queue] += [] if waiting else consumers

    @property
    def is_empty(self) -> bool:
        """Whether all queues are empty."""
        return not any(self._queues.values())


@dataclass(eq=False)
class Redis:
    """Keys and channels, shared by the buses of all processes."""

    simulation: Simulation
    loss_probability: float = 0.0
    is_up: bool = True
    keys: set[str] = field(default_factory=set[str])
    listeners: dict[Actor, list[UUID]] = field(default_factory=dict[Actor, list[UUID]])  # -> runs to cancel

    def flush(self) -> None:
        """FLUSHALL."""
        self.keys.clear()


class SimulatedBus(Bus):
    """The bus of one process."""

    def __init__(self, server: Redis) -> None:  # no connection behind it
        self.url = "simulated"
        self.redis = server

    def _is_reachable(self) -> bool:
        self.redis.simulation.step()
        return self.redis.is_up

    def notify_event(self, notification: EventNotification) -> None:
        self._is_reachable()

    def publish_cancel(self, run_id: UUID) -> None:
        if not self._is_reachable():
            return
        simulation = self.redis.simulation
        for actor, cancelled_runs in self.redis.listeners.items():
            if simulation.chance(self.redis.loss_probability):
                simulation.count("cancel request lost")
            else:
                cancelled_runs.append(run_id)
                simulation.wake(actor)

    def set_cancel_key(self, run_id: UUID, seconds: int = 3600) -> None:
        if self._is_reachable():
            self.redis.keys.add(f"{run_id}-cancel")

    def delete_keys(self, keys: Collection[str]) -> None:
        if self._is_reachable():
            self.redis.keys.difference_update(keys)

    def find_set_keys(self, keys: Sequence[str]) -> set[str]:
        return self.redis.keys.intersection(keys) if self._is_reachable() else set()

    def publish_trace(self, task_id: UUID, message_id: UUID, calls: Sequence[Mapping[str, Any]]) -> None:
        self._is_reachable()

    def find_cancelled(
        self, runs: Mapping[UUID, UUID], names: Mapping[UUID, Collection[str]] | None = None
    ) -> set[UUID]:
        if not runs or not self._is_reachable() or not self.redis.keys:
            return set()
        found = {run: cancel_keys(run, of, (names or {}).get(run, ())) for run, of in runs.items()}
        return {run for run, keys in found.items() if not self.redis.keys.isdisjoint(keys)}

    def is_session_cancelled(self, conversation_id: UUID) -> bool:
        return self._is_reachable() and not self.redis.keys.isdisjoint(session_keys(conversation_id))

    def cancel_requests(self) -> Iterator[UUID | None]:
        actor = self.redis.simulation.current
        assert actor is not None, "only actors listen"
        cancelled_runs = self.redis.listeners.setdefault(actor, [])
        cancelled_runs.clear()  # requests from before the subscription are lost
        while True:
            if not self._is_reachable():
                raise redis.ConnectionError("Redis is away")
            yield cancelled_runs.pop(0) if cancelled_runs else None
            if not cancelled_runs:
                self.redis.simulation.wait(LISTEN_TIMEOUT)

    def ping(self) -> None:
        self._is_reachable()

    def close(self) -> None:
        """There is nothing to close."""
