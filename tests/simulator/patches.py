"""Replaces the clocks, threads, ids and logs of production modules by those of the active simulation.

Everything else in these modules stays as shipped. `patch_modules` installs the replacements and removes them again.
Other threads of the process, such as those of servers of other tests, see the originals.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

from scheduler.sweeper import sweeper
from store.primitives import ids
from tests.simulator.simulation import EPOCH, Actor, Simulation
from worker.fastpath import claim_batcher, report_batcher
from worker.leases import cancel_listener, leases

CHECK_INTERVAL = 0.5  # seconds; in production the lease keeper checks more often than the protocol needs


class _Active:
    """The active simulation, and the thread that it runs on."""

    simulation: Simulation
    thread = 0

    @property
    def is_current_thread(self) -> bool:
        """Whether the caller runs on that thread."""
        return threading.get_ident() == self.thread


_active = _Active()


class Clock:
    """Replaces `time` in a module."""

    @staticmethod
    def monotonic() -> float:
        return _active.simulation.now if _active.is_current_thread else time.monotonic()

    @staticmethod
    def time() -> float:
        return EPOCH.timestamp() + _active.simulation.now if _active.is_current_thread else time.time()

    @staticmethod
    def sleep(seconds: float) -> None:
        if _active.is_current_thread:
            _active.simulation.sleep(seconds)
        else:
            time.sleep(seconds)


class Calendar(datetime):
    """Replaces `datetime` in a module."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        if not _active.is_current_thread:
            return super().now(tz)
        moment = EPOCH + timedelta(seconds=_active.simulation.now)
        return moment if tz is UTC else moment.replace(tzinfo=None)


class Event:
    """A `threading.Event` among actors."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Actor] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for actor in waiting:
            _active.simulation.wake(actor)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        simulation = _active.simulation
        end = None if timeout is None else simulation.now + timeout
        while not self._is_set and (end is None or simulation.now < end):  # an actor may be woken for another reason
            assert simulation.current is not None, "only actors wait"
            self._waiting.append(simulation.current)
            simulation.wait(None if end is None else end - simulation.now)
        return self._is_set


class BoundedSemaphore:
    """A `threading.BoundedSemaphore` among actors."""

    def __init__(self, value: int) -> None:
        self._free = value
        self._waiting: list[Event] = []

    def acquire(self, blocking: bool = True) -> bool:
        if self._free:
            self._free -= 1
            return True
        if blocking:
            permit = Event()
            self._waiting.append(permit)
            permit.wait()
        return blocking

    def release(self) -> None:
        if self._waiting:
            self._waiting.pop(0).set()  # the permit goes to the next waiter
        else:
            self._free += 1


class Thread:
    """A `threading.Thread` that is an actor of the process that starts it."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "thread", **_: Any) -> None:
        self._work = lambda: target(*args)
        self._name = name.removeprefix("easel-")

    def start(self) -> None:
        current = _active.simulation.current
        assert current is not None, "only actors start threads"
        _active.simulation.spawn(current.process, self._name, self._work)

    def join(self, timeout: float | None = None) -> None:
        """Return at once: no simulated code waits for a thread."""


class Pool:
    """A `ThreadPoolExecutor` that runs the work in the caller."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """There is nothing to prepare."""

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]


class Log:
    """Replaces a module's logger: its lines become part of the trace."""

    def __init__(self, module: str) -> None:
        self._module = module

    def _line(self, event: str, **fields: Any) -> None:
        if _active.is_current_thread and _active.simulation.trace_lines is not None:
            _active.simulation.trace(f"log {self._module}: {event} {fields}")

    debug = info = warning = error = _line


def _new_id() -> UUID:
    return _active.simulation.new_id() if _active.is_current_thread else ids.new_id()


def _new_random_id() -> UUID:
    return _active.simulation.new_random_id() if _active.is_current_thread else uuid4()


def _skip_maintenance(*_: Any) -> None:
    return None


def _by_thread(replacement: Any, real: Any) -> Any:
    """Return a factory of the replacement on the simulation's thread, and of the original elsewhere."""
    return lambda *args, **kwargs: (replacement if _active.is_current_thread else real)(*args, **kwargs)


THREADS = SimpleNamespace(
    Thread=_by_thread(Thread, threading.Thread),
    Event=_by_thread(Event, threading.Event),
    BoundedSemaphore=_by_thread(BoundedSemaphore, threading.BoundedSemaphore),
    Lock=threading.Lock,
    Condition=threading.Condition,
)


SIMULATED_PACKAGES = ("scheduler", "store", "worker")
"""Packages whose modules get the simulation's time, ids and logs."""


def _replacements() -> Generator[tuple[Any, str, Any]]:
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in SIMULATED_PACKAGES:
            known = vars(module)
            for attribute, original, replacement in (
                ("time", time, Clock),
                ("new_id", ids.new_id, _new_id),
                ("uuid4", uuid4, _new_random_id),
            ):
                if known.get(attribute) is original:
                    yield module, attribute, replacement
            if "log" in known:
                yield module, "log", Log(name)
            if known.get("datetime") is datetime and name.startswith("scheduler"):
                yield module, "datetime", Calendar
    for module in (leases, cancel_listener, report_batcher, claim_batcher):
        yield module, "threading", THREADS
    yield cancel_listener, "ThreadPoolExecutor", _by_thread(Pool, ThreadPoolExecutor)
    yield leases, "TICK", CHECK_INTERVAL
    yield cancel_listener, "MIN_POLL_INTERVAL", CHECK_INTERVAL
    yield sweeper, "run_exclusive_maintenance", _skip_maintenance


@contextmanager
def patch_modules(*more: tuple[Any, str, Any]) -> Generator[None]:
    """Install the replacements within the block."""
    with ExitStack() as patches:
        for module, name, replacement in (*_replacements(), *more):
            patches.enter_context(patch.object(module, name, replacement))
        yield


def activate(simulation: Simulation) -> None:
    """Make this the active simulation, on the current thread."""
    _active.simulation, _active.thread = simulation, threading.get_ident()
