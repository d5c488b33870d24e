"""The production's modules on this stage: their clocks, threads, ids and logs are those of the world that plays.

Everything else of them is as it is shipped. `played` puts the replacements in place and takes them away again. For
other threads of the process, such as those of a server of other tests, nothing is replaced.
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
from tests.simulator.world import EPOCH, Actor, World
from worker.fastpath import claim_batcher, report_batcher
from worker.leases import cancel_listener, leases

LOOKED_AFTER_EVERY = 0.5  # seconds; in production a keeper of leases looks more often than the protocol needs it


class _Stage:
    """The world that plays now, on one thread."""

    world: World
    thread = 0

    @property
    def is_here(self) -> bool:
        """Whether who asks is on it."""
        return threading.get_ident() == self.thread


_stage = _Stage()


class Clock:
    """Stands where a module has imported `time`."""

    @staticmethod
    def monotonic() -> float:
        return _stage.world.now if _stage.is_here else time.monotonic()

    @staticmethod
    def time() -> float:
        return EPOCH.timestamp() + _stage.world.now if _stage.is_here else time.time()

    @staticmethod
    def sleep(seconds: float) -> None:
        if _stage.is_here:
            _stage.world.sleep(seconds)
        else:
            time.sleep(seconds)


class Calendar(datetime):
    """Stands where a module has imported `datetime`."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        if not _stage.is_here:
            return super().now(tz)
        moment = EPOCH + timedelta(seconds=_stage.world.now)
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
            _stage.world.wake(actor)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        world = _stage.world
        end = None if timeout is None else world.now + timeout
        while not self._is_set and (end is None or world.now < end):  # an actor may be woken for something else
            assert world.current is not None, "only actors wait"
            self._waiting.append(world.current)
            world.wait(None if end is None else end - world.now)
        return self._is_set


class BoundedSemaphore:
    """A `threading.BoundedSemaphore` among actors."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[Event] = []

    def acquire(self, blocking: bool = True) -> bool:
        if self._free:
            self._free -= 1
            return True
        if blocking:
            freed = Event()
            self._waiting.append(freed)
            freed.wait()
        return blocking

    def release(self) -> None:
        if self._waiting:
            self._waiting.pop(0).set()  # the place goes from hand to hand
        else:
            self._free += 1


class Thread:
    """A `threading.Thread` that is an actor of the process that starts it."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "thread", **_: Any) -> None:
        self._work = lambda: target(*args)
        self._name = name.removeprefix("easel-")

    def start(self) -> None:
        current = _stage.world.current
        assert current is not None, "only actors start threads"
        _stage.world.spawn(current.process, self._name, self._work)

    def join(self, timeout: float | None = None) -> None:
        """Nobody waits for a thread here."""


class Pool:
    """A `ThreadPoolExecutor` whose work is done by who asks for it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """There is nothing to prepare."""

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return [work(item) for item in items]


class Log:
    """Stands where a module logs: its lines are part of the trace."""

    def __init__(self, module: str) -> None:
        self._module = module

    def _line(self, event: str, **fields: Any) -> None:
        if _stage.is_here and _stage.world.told is not None:
            _stage.world.tell(f"log {self._module}: {event} {fields}")

    debug = info = warning = error = _line


def _new_id() -> UUID:
    return _stage.world.new_id() if _stage.is_here else ids.new_id()


def _new_random_id() -> UUID:
    return _stage.world.new_random_id() if _stage.is_here else uuid4()


def _keep_no_house(*_: Any) -> None:
    return None


def _of_this_thread(stand_in: Any, real: Any) -> Any:
    """What makes one or the other, as who asks is on the stage or not."""
    return lambda *args, **given: (stand_in if _stage.is_here else real)(*args, **given)


THREADS = SimpleNamespace(
    Thread=_of_this_thread(Thread, threading.Thread),
    Event=_of_this_thread(Event, threading.Event),
    BoundedSemaphore=_of_this_thread(BoundedSemaphore, threading.BoundedSemaphore),
    Lock=threading.Lock,
    Condition=threading.Condition,
)


PLAYED = ("scheduler", "store", "worker")
"""Packages whose modules have the world's time, ids and logs, whichever of them asks."""


def _replacements() -> Generator[tuple[Any, str, Any]]:
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in PLAYED:
            known = vars(module)
            for attribute, original, stand_in in (
                ("time", time, Clock),
                ("new_id", ids.new_id, _new_id),
                ("uuid4", uuid4, _new_random_id),
            ):
                if known.get(attribute) is original:
                    yield module, attribute, stand_in
            if "log" in known:
                yield module, "log", Log(name)
            if known.get("datetime") is datetime and name.startswith("scheduler"):
                yield module, "datetime", Calendar
    for module in (leases, cancel_listener, report_batcher, claim_batcher):
        yield module, "threading", THREADS
    yield cancel_listener, "ThreadPoolExecutor", _of_this_thread(Pool, ThreadPoolExecutor)
    yield leases, "TICK", LOOKED_AFTER_EVERY
    yield cancel_listener, "MIN_POLL_INTERVAL", LOOKED_AFTER_EVERY
    yield sweeper, "run_exclusive_maintenance", _keep_no_house


@contextmanager
def played(*more: tuple[Any, str, Any]) -> Generator[None]:
    """Within this block worlds can be played."""
    with ExitStack() as replaced:
        for module, name, stand_in in (*_replacements(), *more):
            replaced.enter_context(patch.object(module, name, stand_in))
        yield


def enter(world: World) -> None:
    """From here on this world plays."""
    _stage.world, _stage.thread = world, threading.get_ident()
