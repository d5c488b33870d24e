"""The simulation of one schedule: actors on greenlets, one clock, and a seeded choice of the next actor.

An actor is ordinary code on a greenlet. Wherever real processes could be interrupted (a statement, a commit, a message,
a read of the clock) it calls `step`, and the simulation picks the next actor: one thread, and the same seed gives the
same schedule. A process is a group of actors that are killed, paused and resumed together.
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
    """Raised in the actors of a killed process. Nothing that they do afterwards has an effect."""


class InvariantViolated(AssertionError):
    """An invariant of the protocol does not hold."""


@dataclass(eq=False, slots=True)
class Process:
    """Actors that are killed and paused together."""

    name: str
    actors: "list[Actor]" = field(default_factory=list["Actor"])
    is_dead: bool = False
    paused_until: float | None = None
    parked: "list[Actor]" = field(default_factory=list["Actor"])  # runnable, but paused
    on_death: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    last_absent_at: float = float("-inf")  # when it was last paused or dead


class Actor:
    """One thread of a process."""

    __slots__ = ("about_to", "is_waiting", "name", "process", "stack", "timer", "was_woken")

    def __init__(self, process: Process, name: str, stack: greenlet.greenlet) -> None:
        self.process = process
        self.name = f"{process.name}.{name}" if name else process.name
        self.stack = stack
        self.is_waiting = False  # until `wake` is called
        self.was_woken = False
        self.timer = 0  # number of the timer that may wake it
        self.about_to = ""  # its next operation


class Simulation:
    """The clock, the random numbers, the processes and their scheduler."""

    def __init__(self, seed: int, *, pace: float = 0.01, is_traced: bool = False) -> None:
        self.random = random.Random(seed)
        self.roll = self.random.random
        self.now = 0.0  # the monotonic clock, in seconds
        self.clock_offset = timedelta()  # of the database's clock from the monotonic one
        self.pace = pace
        self.steps = 0
        self.current: Actor | None = None
        self.trace_lines: list[str] | None = [] if is_traced else None
        self.failure: BaseException | None = None
        self.counts: dict[str, int] = {}
        self.before_step: Callable[[], None] = _do_nothing  # injects faults
        self.only_processes: frozenset[Process] | None = None  # that may run; None: all
        self._processes: dict[Process, None] = {}  # all that were ever started, in this order
        self._runnable: list[Actor] = []
        self._timers: list[tuple[float, int, Actor | Callable[[], None]]] = []
        self._number = 0
        self._ids = 0
        self._hub = greenlet.getcurrent()

    # -- time and names ----------------------------------------------------------------------------------------------
    @property
    def database_time(self) -> datetime:
        """The time of the database's clock."""
        return EPOCH + timedelta(seconds=self.now) + self.clock_offset

    def new_id(self) -> UUID:
        """Return a UUIDv7 that sorts after all earlier ones."""
        self._ids += 1
        stamp = _MILLISECONDS + int(self.now * 1000)
        return UUID(int=stamp << 80 | 0x7 << 76 | 0b10 << 62 | self._ids)

    def new_random_id(self) -> UUID:
        """Return a UUIDv4."""
        return UUID(int=self.random.getrandbits(128), version=4)

    # -- chance ------------------------------------------------------------------------------------------------------
    def chance(self, probability: float) -> bool:
        """Return true with this probability."""
        return self.roll() < probability

    def between(self, low: float, high: float) -> float:
        """Return a random number between two."""
        return low + (high - low) * self.roll()

    # -- trace -------------------------------------------------------------------------------------------------------
    def count(self, fault: str) -> None:
        """Count a fault, or another event of interest."""
        self.counts[fault] = self.counts.get(fault, 0) + 1
        if self.trace_lines is not None:
            self.trace(f"*** {fault}")

    def trace(self, what: str) -> None:
        """Append a line to the trace, if there is one."""
        if self.trace_lines is not None:
            who = self.current.name if self.current is not None else "-"
            self.trace_lines.append(f"{self.steps:6} {self.now:9.3f} {who:<18} {what}")

    # -- what actors call --------------------------------------------------------------------------------------------
    def step(self, about_to: str = "") -> None:
        """Let other actors run before the current one continues."""
        actor = self.current
        if actor is None:
            return  # called outside of any actor
        if actor.process.is_dead:
            raise Killed
        actor.about_to = about_to
        self._runnable.append(actor)
        self._hub.switch()

    def sleep(self, seconds: float) -> None:
        """Suspend the actor for some seconds."""
        self.wait(seconds)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until `wake` is called, at most so many seconds; return whether it was called."""
        actor = self.current
        assert actor is not None, "only actors wait"
        if actor.process.is_dead:
            raise Killed
        actor.is_waiting, actor.was_woken = True, False
        self._number += 1
        actor.timer = self._number
        if seconds is not None:
            heapq.heappush(self._timers, (self.now + seconds, self._number, actor))
        self._hub.switch()
        return actor.was_woken

    def wake(self, actor: Actor) -> None:
        """Make a waiting actor runnable."""
        if actor.is_waiting:
            actor.was_woken = True
            self._enable(actor)

    def _enable(self, actor: Actor) -> None:
        actor.is_waiting = False
        actor.timer = 0
        process = actor.process
        if process.paused_until is not None:
            process.parked.append(actor)
        elif not process.is_dead:
            self._runnable.append(actor)

    # -- processes ---------------------------------------------------------------------------------------------------
    def spawn(self, process: Process, name: str, work: Callable[[], None]) -> Actor:
        """Start an actor of a process."""
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
            except BaseException as error:  # the error of an actor ends the schedule
                self.failure = self.failure or error

        return run

    def kill(self, process: Process) -> None:
        """Kill a process: its actors end where they are, and its connections close."""
        process.is_dead = True
        process.last_absent_at = self.now
        before, self.current = self.current, None
        self._runnable = [actor for actor in self._runnable if actor.process is not process]
        process.parked.clear()
        for actor in process.actors:
            actor.is_waiting, actor.timer = False, 0
            if actor.stack:  # it has begun and not ended
                self.current = actor
                actor.stack.throw(Killed)
                self.current = None
        self.current = before
        for function in process.on_death:
            function()

    def pause(self, process: Process, seconds: float) -> None:
        """Pause a process for some seconds."""
        process.paused_until = self.now + seconds
        process.parked += [actor for actor in self._runnable if actor.process is process]
        self._runnable = [actor for actor in self._runnable if actor.process is not process]
        self.call_later(seconds, lambda: self._resume(process))

    def _resume(self, process: Process) -> None:
        if process.paused_until is None or process.is_dead or process.paused_until > self.now:
            return
        process.paused_until = None
        process.last_absent_at = self.now
        self._runnable += process.parked
        process.parked.clear()
        self.trace(f"{process.name} continues")

    def call_later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call a function after some seconds."""
        self._number += 1
        heapq.heappush(self._timers, (self.now + seconds, self._number, function))

    # -- the loop ----------------------------------------------------------------------------------------------------
    def run(
        self,
        is_done: Callable[[], bool],
        *,
        max_steps: int,
        until: float = float("inf"),
        checks_every_step: bool = False,
    ) -> bool:
        """Run the actors until a condition holds; return False if it does not hold in time.

        The condition is checked at every eighth step, or at each (`checks_every_step`).
        """
        timers, roll = self._timers, self.roll
        mask = 0 if checks_every_step else 7
        while self.steps & mask or not is_done():
            if self.steps >= max_steps or self.now > until:
                return is_done()
            if timers and (timers[0][0] <= self.now or not self._runnable):
                self._fire_timer()
                continue
            runnable = self._runnable
            if not runnable:
                return is_done()
            self.steps += 1
            self.now += self.pace * roll()
            self.before_step()
            runnable = self._runnable
            if not runnable:
                continue
            position = int(len(runnable) * roll()) if self.only_processes is None else self._pick_allowed()
            if position < 0:
                if not any(
                    isinstance(what, Actor) and what.process in (self.only_processes or ()) for _, _, what in timers
                ):
                    return is_done()
                self._fire_timer()  # the allowed actors wait
                continue
            actor = runnable[position]
            runnable[position] = runnable[-1]
            runnable.pop()
            self.current = actor
            actor.stack.switch()
            self.current = None
            if self.failure is not None:
                raise self.failure
        return True

    def _pick_allowed(self) -> int:
        """Return the position of an actor that may run; -1 if there is none."""
        assert self.only_processes is not None  # the caller has checked
        found = [position for position, actor in enumerate(self._runnable) if actor.process in self.only_processes]
        return found[int(len(found) * self.roll())] if found else -1

    def _fire_timer(self) -> None:
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
        """Kill all processes; greenlets that are not unwound are never freed."""
        self.before_step = _do_nothing
        for process in self._processes:
            if not process.is_dead:
                self.kill(process)


def _do_nothing() -> None:
    return None
