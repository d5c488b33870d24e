"""The world of one schedule: actors on stacks of their own, one clock, and a seeded choice of who moves next.

An actor is ordinary code on a greenlet. Wherever real processes could be overtaken (a statement, a commit, a message,
a look at the clock) it calls `step`, and the world picks somebody else: one thread, and the same seed gives the same
schedule. A process is a group of actors that dies, stops and goes on together.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import greenlet

EPOCH = datetime(2031, 5, 1, tzinfo=UTC)
_MILLISECONDS = int(EPOCH.timestamp() * 1000)


class Killed(greenlet.GreenletExit):
    """What an actor of a killed process sees, wherever it stands. Nothing that it tries afterwards has an effect."""


class Broken(AssertionError):
    """The protocol does not keep what it promises."""


@dataclass(eq=False, slots=True)
class Process:
    """Actors that live and die together."""

    name: str
    actors: "list[Actor]" = field(default_factory=list["Actor"])
    is_dead: bool = False
    stopped_until: float | None = None
    parked: "list[Actor]" = field(default_factory=list["Actor"])  # those that could move, were they not stopped
    on_death: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    was_away: float = float("-inf")  # when it stood still or was dead last


class Actor:
    """One thread of a process."""

    __slots__ = ("about_to", "name", "process", "stack", "timer", "waits", "was_woken")

    def __init__(self, process: Process, name: str, stack: greenlet.greenlet) -> None:
        self.process = process
        self.name = f"{process.name}.{name}" if name else process.name
        self.stack = stack
        self.waits = False  # until somebody wakes it
        self.was_woken = False
        self.timer = 0  # number of the timer that may wake it
        self.about_to = ""  # what it does when it moves next


class World:
    """Time, chance, and everybody in it."""

    def __init__(self, seed: int, *, pace: float = 0.01, is_traced: bool = False) -> None:
        self.random = random.Random(seed)
        self.roll = self.random.random
        self.now = 0.0  # what monotonic clocks say
        self.jumped = timedelta()  # how far the database's clock is from that
        self.pace = pace
        self.steps = 0
        self.current: Actor | None = None
        self.told: list[str] | None = [] if is_traced else None
        self.failure: BaseException | None = None
        self.counts: dict[str, int] = {}
        self.before_each: Callable[[], None] = _nothing  # chaos
        self.only: frozenset[Process] | None = None  # who may move; None: everybody
        self._processes: dict[Process, None] = {}  # all that ever began, in this order
        self._able: list[Actor] = []
        self._timers: list[tuple[float, int, Actor | Callable[[], None]]] = []
        self._number = 0
        self._ids = 0
        self._hub = greenlet.getcurrent()

    # -- time and names ----------------------------------------------------------------------------------------------
    @property
    def database_time(self) -> datetime:
        """What the database's clock says."""
        return EPOCH + timedelta(seconds=self.now) + self.jumped

    def new_id(self) -> UUID:
        """A UUIDv7 that comes after all before it."""
        self._ids += 1
        stamp = _MILLISECONDS + int(self.now * 1000)
        return UUID(int=stamp << 80 | 0x7 << 76 | 0b10 << 62 | self._ids)

    def new_random_id(self) -> UUID:
        """A UUIDv4."""
        return UUID(int=self.random.getrandbits(128), version=4)

    # -- chance ------------------------------------------------------------------------------------------------------
    def chance(self, likely: float) -> bool:
        """True with this probability."""
        return self.roll() < likely

    def between(self, least: float, most: float) -> float:
        """Any number between two."""
        return least + (most - least) * self.roll()

    # -- telling -----------------------------------------------------------------------------------------------------
    def count(self, fault: str) -> None:
        """A fault was injected, or something worth counting happened."""
        self.counts[fault] = self.counts.get(fault, 0) + 1
        if self.told is not None:
            self.tell(f"*** {fault}")

    def tell(self, what: str) -> None:
        """A line of the trace, where there is one."""
        if self.told is not None:
            who = self.current.name if self.current is not None else "-"
            self.told.append(f"{self.steps:6} {self.now:9.3f} {who:<18} {what}")

    # -- what actors call --------------------------------------------------------------------------------------------
    def step(self, about_to: str = "") -> None:
        """Somebody else may move before the actor goes on."""
        actor = self.current
        if actor is None:
            return  # the hub itself looks at something
        if actor.process.is_dead:
            raise Killed
        actor.about_to = about_to
        self._able.append(actor)
        self._hub.switch()

    def sleep(self, seconds: float) -> None:
        """Come back after some time."""
        self.wait(seconds)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until somebody calls `wake`, at most so many seconds; whether it was that."""
        actor = self.current
        assert actor is not None, "only actors wait"
        if actor.process.is_dead:
            raise Killed
        actor.waits, actor.was_woken = True, False
        self._number += 1
        actor.timer = self._number
        if seconds is not None:
            heapq.heappush(self._timers, (self.now + seconds, self._number, actor))
        self._hub.switch()
        return actor.was_woken

    def wake(self, actor: Actor) -> None:
        """What an actor waits for may have come."""
        if actor.waits:
            actor.was_woken = True
            self._enable(actor)

    def _enable(self, actor: Actor) -> None:
        actor.waits = False
        actor.timer = 0
        process = actor.process
        if process.stopped_until is not None:
            process.parked.append(actor)
        elif not process.is_dead:
            self._able.append(actor)

    # -- processes ---------------------------------------------------------------------------------------------------
    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Actor:
        """A thread begins."""
        actor = Actor(process, name, greenlet.greenlet(self._guarded(work), self._hub))
        process.actors.append(actor)
        self._processes[process] = None
        self._enable(actor)
        return actor

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Killed:
                raise
            except BaseException as error:  # an actor's end is the schedule's: nobody may hide it
                self.failure = self.failure or error

        return run

    def kill(self, process: Process) -> None:
        """The process is gone, wherever it stood; its connections close."""
        process.is_dead = True
        process.was_away = self.now
        before, self.current = self.current, None
        self._able = [actor for actor in self._able if actor.process is not process]
        process.parked.clear()
        for actor in process.actors:
            actor.waits, actor.timer = False, 0
            if actor.stack:  # it has begun and not ended
                self.current = actor
                actor.stack.throw(Killed)
                self.current = None
        self.current = before
        for then in process.on_death:
            then()

    def stop(self, process: Process, seconds: float) -> None:
        """The process takes no step for a while."""
        process.stopped_until = self.now + seconds
        process.parked += [actor for actor in self._able if actor.process is process]
        self._able = [actor for actor in self._able if actor.process is not process]
        self.at(seconds, lambda: self._go_on(process))

    def _go_on(self, process: Process) -> None:
        if process.stopped_until is None or process.is_dead or process.stopped_until > self.now:
            return
        process.stopped_until = None
        process.was_away = self.now
        self._able += process.parked
        process.parked.clear()
        self.tell(f"{process.name} goes on")

    def at(self, seconds: float, then: Callable[[], None]) -> None:
        """Something happens by itself after a while."""
        self._number += 1
        heapq.heappush(self._timers, (self.now + seconds, self._number, then))

    # -- the loop ----------------------------------------------------------------------------------------------------
    def run(
        self, is_done: Callable[[], bool], *, most_steps: int, until: float = float("inf"), often: bool = False
    ) -> bool:
        """Let everybody move until something is the case; False if it does not come about in time.

        It is asked at every eighth step, or at each (`often`).
        """
        timers, roll = self._timers, self.roll
        seldom = 0 if often else 7
        while self.steps & seldom or not is_done():
            if self.steps >= most_steps or self.now > until:
                return is_done()
            if timers and (timers[0][0] <= self.now or not self._able):
                self._ring()
                continue
            able = self._able
            if not able:
                return is_done()
            self.steps += 1
            self.now += self.pace * roll()
            self.before_each()
            able = self._able
            if not able:
                continue
            position = int(len(able) * roll()) if self.only is None else self._allowed()
            if position < 0:
                if not any(isinstance(what, Actor) and what.process in (self.only or ()) for _, _, what in timers):
                    return is_done()
                self._ring()  # he waits, and nobody else may move
                continue
            actor = able[position]
            able[position] = able[-1]
            able.pop()
            self.current = actor
            actor.stack.switch()
            self.current = None
            if self.failure is not None:
                raise self.failure
        return True

    def _allowed(self) -> int:
        """The position of one who may move; -1 if there is none."""
        assert self.only is not None  # the caller has looked
        found = [position for position, actor in enumerate(self._able) if actor.process in self.only]
        return found[int(len(found) * self.roll())] if found else -1

    def _ring(self) -> None:
        due, number, what = heapq.heappop(self._timers)
        if isinstance(what, Actor):
            if what.timer == number:
                self.now = max(self.now, due)
                self._enable(what)
            return
        self.now = max(self.now, due)
        what()
        if self.failure is not None:
            raise self.failure

    def end(self) -> None:
        """Nobody moves any more; stacks are unwound, without which Python could never free them."""
        self.before_each = _nothing
        for process in self._processes:
            if not process.is_dead:
                self.kill(process)


def _nothing() -> None:
    return None
