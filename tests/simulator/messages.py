"""A broker and a bus that lose, double, delay and shuffle what they carry, and can be emptied.

They stand where the Celery app and Redis are: `Dispatch` sends through them as it does in production.
"""

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import redis
from kombu.exceptions import OperationalError

from scheduler.messaging.celery_app import NODES, RUNS
from scheduler.messaging.redis_bus import Bus, cancel_keys, session_keys
from tests.simulator.world import Actor, World

HEARS_NOTHING_FOR = 2.0  # seconds after which a listener looks whether Redis is still there


@dataclass(frozen=True, slots=True)
class Message:
    """A task on its way."""

    task: str
    args: tuple[str, ...]
    expires_at: float


@dataclass(eq=False)
class Broker:
    """Queues of tasks. Probabilities are those of single messages."""

    world: World
    loses: float = 0.0
    doubles: float = 0.0
    delays: float = 0.0
    shuffles: bool = False
    is_up: bool = True
    sent: list[Message] = field(default_factory=list[Message])
    _queues: dict[str, list[Message]] = field(default_factory=lambda: {NODES: [], RUNS: []})
    _hands: dict[str, list[Actor]] = field(default_factory=lambda: {NODES: [], RUNS: []})

    # -- what Dispatch calls -----------------------------------------------------------------------------------------
    @contextmanager
    def producer_or_acquire(self) -> Generator[None]:
        """The producer that `Dispatch` sends through."""
        yield None

    def send_task(
        self, task: str, args: Sequence[str] = (), queue: str = NODES, expires: float | None = None, **_: object
    ) -> None:
        """Send a task."""
        world = self.world
        world.step("send")
        if not self.is_up:
            raise OperationalError("the broker is away")
        message = Message(task, tuple(args), world.now + expires if expires else float("inf"))
        if world.told is not None:
            world.tell(f"sends {task} {' '.join(args)}")
        self.sent.append(message)
        if world.chance(self.loses):
            world.count("message lost")
            return
        for _copy in range(2 if world.chance(self.doubles) else 1):
            if world.chance(self.delays):
                world.count("message delayed")
                world.at(world.between(0, 8), lambda: self._arrives(queue, message))
            else:
                self._arrives(queue, message)

    def _arrives(self, queue: str, message: Message) -> None:
        self._queues[queue].append(message)
        hands = self._hands[queue]
        while hands:
            actor = hands.pop(int(len(hands) * self.world.roll()))
            if not actor.process.is_dead:
                self.world.wake(actor)
                return

    # -- what consumers call -----------------------------------------------------------------------------------------
    def receive(self, queue: str) -> Message:
        """The next task of a queue, as soon as there is one."""
        world, waiting = self.world, self._queues[queue]
        world.step("receive")
        while True:
            while waiting and self.is_up:
                position = int(len(waiting) * world.roll()) if self.shuffles else 0
                message = waiting.pop(position)
                if message.expires_at >= world.now:
                    world.tell(f"receives {message.task} {' '.join(message.args)}")
                    return message
            assert world.current is not None, "only actors receive"
            self._hands[queue].append(world.current)
            world.wait()

    def give_back(self, queue: str, message: Message) -> None:
        """A consumer could not carry out a task."""
        self._arrives(queue, message)

    # -- what happens to it ------------------------------------------------------------------------------------------
    def forget_everything(self) -> None:
        """FLUSHALL."""
        for waiting in self._queues.values():
            waiting.clear()

    def comes_back(self) -> None:
        """It is there again, with what it had."""
        self.is_up = True
        for queue, waiting in self._queues.items():
            hands, self._hands[queue] = self._hands[queue], []
            for actor in hands if waiting else ():
                self.world.wake(actor)
            self._hands[queue] += [] if waiting else hands

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way to a worker."""
        return not any(self._queues.values())


@dataclass(eq=False)
class Redis:
    """Keys and channels, shared by the buses of all processes."""

    world: World
    loses: float = 0.0
    is_up: bool = True
    keys: set[str] = field(default_factory=set[str])
    listeners: dict[Actor, list[UUID]] = field(default_factory=dict[Actor, list[UUID]])  # -> calls to stop

    def forget_everything(self) -> None:
        """FLUSHALL."""
        self.keys.clear()


class SimulatedBus(Bus):
    """A process's bus. Nothing on it is a fact."""

    def __init__(self, server: Redis) -> None:  # no connection behind it
        self.url = "simulated"
        self.redis = server

    def _tried(self) -> bool:
        self.redis.world.step()
        return self.redis.is_up

    def notify_event(self, run_id: UUID, number: int, *, is_over: bool = False) -> None:
        self._tried()

    def publish_cancel(self, run_id: UUID) -> None:
        if not self._tried():
            return
        world = self.redis.world
        for actor, heard in self.redis.listeners.items():
            if world.chance(self.redis.loses):
                world.count("call to stop lost")
            else:
                heard.append(run_id)
                world.wake(actor)

    def set_cancel_key(self, run_id: UUID, seconds: int = 3600) -> None:
        if self._tried():
            self.redis.keys.add(f"{run_id}-cancel")

    def delete_keys(self, keys: Collection[str]) -> None:
        if self._tried():
            self.redis.keys.difference_update(keys)

    def find_set_keys(self, keys: Sequence[str]) -> set[str]:
        return self.redis.keys.intersection(keys) if self._tried() else set()

    def publish_trace(self, task_id: UUID, message_id: UUID, calls: Sequence[Mapping[str, Any]]) -> None:
        self._tried()

    def find_cancelled(
        self, runs: Mapping[UUID, UUID], names: Mapping[UUID, Collection[str]] | None = None
    ) -> set[UUID]:
        if not runs or not self._tried() or not self.redis.keys:
            return set()
        found = {run: cancel_keys(run, of, (names or {}).get(run, ())) for run, of in runs.items()}
        return {run for run, keys in found.items() if not self.redis.keys.isdisjoint(keys)}

    def is_session_cancelled(self, conversation_id: UUID) -> bool:
        return self._tried() and not self.redis.keys.isdisjoint(session_keys(conversation_id))

    def cancel_requests(self) -> Iterator[UUID | None]:
        actor = self.redis.world.current
        assert actor is not None, "only actors listen"
        heard = self.redis.listeners.setdefault(actor, [])
        heard.clear()  # calls from before the subscription are lost
        while True:
            if not self._tried():
                raise redis.ConnectionError("Redis is away")
            yield heard.pop(0) if heard else None
            if not heard:
                self.redis.world.wait(HEARS_NOTHING_FOR)

    def ping(self) -> None:
        self._tried()

    def close(self) -> None:
        """There is nothing to close."""
