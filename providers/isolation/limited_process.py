"""Work on untrusted data in child processes that have limits of memory and time.

    await in_limited_process(file_text, "a.pdf", "application/pdf", data)

A parser of a foreign format may loop, take all memory, or crash. In a child process it does so alone: the child is
killed and another one is started. Requests and replies are JSON with raw bytes beside it (no pickle), so a child that
an attacker controls can only send a wrong value. A child has no environment variables of its parent but a few that are
no secrets. Children are started when they are first needed, and end after some minutes without work.

A tenant never occupies all children: one is always left for the others (`OWNER`).

`limited_process_child.py` is the program that the child runs; both use the frames of `limited_process_frames.py`.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar, cast

import structlog

from canvas.errors import NodeFailure
from providers.isolation import limited_process_frames as wire

log = structlog.get_logger()

P = ParamSpec("P")
T = TypeVar("T")

MIB = 1024 * 1024
GOODBYE = 5.0  # seconds for threads to end when a pool is closed
_KEPT_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from providers.isolation.limited_process_child import main; main()"
)

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""Whose work this is: the tenant's id."""


class ResourceLimitExceeded(NodeFailure):
    """Work on some data needed more time or memory than it may have, or crashed the process that did it."""

    code = "resource_limit_exceeded"


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one call in a child process may use."""

    memory: int = 2048 * MIB  # bytes of address space, those of the interpreter and its libraries included
    seconds: float = 120.0  # of wall-clock time, and of processor time
    reply: int = 256 * MIB  # bytes
    idle: float = 300.0  # seconds without work after which a child ends


@dataclass
class _Call:
    """A call that waits for a child, or is carried out by one."""

    owner: str
    request: Sequence[bytes | memoryview]
    seconds: float
    future: "Future[wire.Reply]" = field(default_factory=lambda: Future[wire.Reply]())
    child: "_Child | None" = None
    is_cancelled: bool = False


class ProcessPool:
    """Up to `size` child processes, each with a thread that talks to it. Nothing is started before it is needed."""

    def __init__(self, size: int, limits: ProcessLimits | None = None) -> None:
        self._size = size
        self._limits = limits or ProcessLimits()
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_Call]] = {}  # by owner; the owner who is served next comes first
        self._running: list[_Call] = []
        self._threads: list[threading.Thread] = []
        self._idle_threads = 0
        self._is_closed = False

    async def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function of a module in a child process. Cancelling kills the child.

        Arguments are JSON values or bytes, and so is the result. Raises what the function raises of NodeFailure,
        ResourceLimitExceeded, and NodeFailure with the text of any other error.
        """
        return await self.run_within(self._limits.seconds, function, *arguments, **named)

    async def run_within(self, seconds: float, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The same, with a time limit of its own. The time for which the call waits for a child does not count."""
        call = _call_of(seconds, function, arguments, named)
        self._submit(call)
        try:
            reply = await asyncio.wrap_future(call.future)
        except asyncio.CancelledError:
            self._cancel(call)
            raise
        return cast("T", _value_of(reply, seconds, self._limits))

    def run_blocking(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The same as `run`, for a thread that may wait."""
        call = _call_of(self._limits.seconds, function, arguments, named)
        self._submit(call)
        return cast("T", _value_of(call.future.result(), self._limits.seconds, self._limits))

    @property
    def is_busy(self) -> bool:
        """Whether a child works on something."""
        with self._changed:
            return any(call.child is not None for call in self._running)

    def close(self) -> None:
        """End all children, whatever they do."""
        with self._changed:
            self._is_closed = True
            waiting = [call for calls in self._waiting.values() for call in calls]
            self._waiting.clear()
            for call in [*waiting, *self._running]:
                _kill(call)
            self._changed.notify_all()
            threads = list(self._threads)
        for call in waiting:
            _fail(call, ResourceLimitExceeded("The process shuts down.", retryable=True))
        give_up = time.monotonic() + GOODBYE
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))

    # -- the queue ------------------------------------------------------------------------------------------------
    def _submit(self, call: _Call) -> None:
        with self._changed:
            if self._is_closed:
                raise ResourceLimitExceeded("The process shuts down.", retryable=True)
            self._waiting.setdefault(call.owner, deque()).append(call)
            if not self._idle_threads and len(self._threads) < self._size:
                thread = threading.Thread(target=self._serve, name="easel-limited", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def _cancel(self, call: _Call) -> None:
        with self._changed:
            calls = self._waiting.get(call.owner)
            if calls and call in calls:
                calls.remove(call)
                if not calls:
                    del self._waiting[call.owner]
            _kill(call)

    def _next(self) -> _Call | None:
        """The call that a free child carries out now; None if the pool is closed."""
        with self._changed:
            while not self._is_closed:
                for owner in list(self._waiting):
                    if self._may_run(owner):
                        calls = self._waiting.pop(owner)
                        call = calls.popleft()
                        if calls:
                            self._waiting[owner] = calls  # at the end: the others come first
                        self._running.append(call)
                        return call
                self._idle_threads += 1
                self._changed.wait()
                self._idle_threads -= 1
            return None

    def _may_run(self, owner: str) -> bool:
        """Whether an owner has room: one child is left for the others, where there are several."""
        return sum(call.owner == owner for call in self._running) < max(1, self._size - 1)

    def _done(self, call: _Call) -> None:
        with self._changed:
            self._running.remove(call)
            self._changed.notify_all()  # the owner has room for the next one

    # -- a thread and its child -----------------------------------------------------------------------------------
    def _serve(self) -> None:
        child: _Child | None = None
        try:
            while (call := self._next()) is not None:
                try:
                    child = self._carry_out(call, child)
                finally:
                    self._done(call)
        finally:
            if child is not None:
                child.end()

    def _carry_out(self, call: _Call, child: "_Child | None") -> "_Child | None":
        """Carry out a call; return the child if it can be used again."""
        reply: wire.Reply | None = None
        try:
            if child is not None and child.has_ended:  # it had no work for long
                child.end()
                child = None
            child = child or _Child(self._limits)
            with self._changed:
                call.child = child
            if not call.is_cancelled:
                reply = child.ask(call.request, call.seconds, self._limits.reply)
        except Exception as error:  # noqa: BLE001 (the thread serves others after this call)
            log.error("limited_process_failed", error=f"{type(error).__name__}: {error}")
            _fail(call, ResourceLimitExceeded(f"No process for this work: {type(error).__name__}.", retryable=True))
        with self._changed:
            call.child = None
        if reply is not None and not call.future.done():
            call.future.set_result(reply)
        if child is not None and (reply is None or not reply.is_reusable):
            child.end()
            return None
        return child


class _Child:
    """A child process and the socket to it."""

    def __init__(self, limits: ProcessLimits) -> None:
        ours, theirs = socket.socketpair()
        with ExitStack() as on_failure, theirs:
            on_failure.callback(ours.close)
            options = wire.options(theirs.fileno(), os.getpid(), limits.memory, limits.idle)
            environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
            # libraries of linear algebra take address space for each thread
            environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-c", _START, wire.text([path or os.getcwd() for path in sys.path]), options],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), env=environment, start_new_session=True,
            )  # fmt: skip
            on_failure.pop_all()
        self._socket = ours

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once; whoever waits for its reply sees that it is gone."""
        self._process.kill()

    def end(self) -> None:
        """End it, and leave nothing of it."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def ask(self, request: Sequence[bytes | memoryview], seconds: float, most: int) -> wire.Reply:
        """The reply to a request. One that does not come in time, or never, is a reply as well."""
        give_up = time.monotonic() + seconds
        try:
            for part in request:
                self._socket.settimeout(max(0.001, give_up - time.monotonic()))
                self._socket.sendall(part)
            return wire.read_reply(self._socket, give_up, most)
        except TimeoutError:
            return wire.Reply(wire.TIMEOUT)
        except wire.TooLarge:
            return wire.Reply(wire.TOO_LARGE)
        except OSError:
            self._process.kill()
            return wire.Reply(wire.ENDED, -self._process.wait())
        except ValueError:  # what it has sent is no reply
            return wire.Reply(wire.ENDED, 0)


def _call_of(seconds: float, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> _Call:
    name = f"{function.__module__}:{function.__qualname__}"
    request = wire.request_frame(name, arguments, named, cpu_seconds=max(1, round(seconds) + 1))
    return _Call(OWNER.get(), request, seconds)


def _kill(call: _Call) -> None:
    """Called with the pool's lock."""
    call.is_cancelled = True
    if call.child is not None:
        call.child.kill()


def _fail(call: _Call, failure: NodeFailure) -> None:
    if not call.future.done():
        call.future.set_exception(failure)


def _value_of(reply: wire.Reply, seconds: float, limits: ProcessLimits) -> Any:
    """The value of a reply. Raises the failure that it tells."""
    match reply.status:
        case wire.VALUE:
            return reply.value
        case wire.FAILURE:
            raise _failure_of(reply.value)
        case wire.MEMORY:
            raise ResourceLimitExceeded(f"It needs more than {limits.memory // MIB:,} MiB of memory.")
        case wire.TIMEOUT:
            raise ResourceLimitExceeded(f"It takes longer than {seconds:g} s.")
        case wire.TOO_LARGE:
            raise ResourceLimitExceeded(f"Its result is larger than {limits.reply // MIB:,} MiB.")
        case _ if reply.value == signal.SIGXCPU:
            raise ResourceLimitExceeded(f"It takes longer than {seconds:g} s.")
        case _ if reply.value > 0:
            raise ResourceLimitExceeded(f"The process that worked on it was ended by signal {reply.value}.")
        case _:
            raise ResourceLimitExceeded("The process that worked on it gave no valid reply.")


def _failure_of(told: Any) -> NodeFailure:
    """The failure that a child has told: one of the kinds that this process knows."""
    if not isinstance(told, Mapping):
        return NodeFailure("The process that worked on it gave no valid reply.")
    fields = cast("Mapping[str, Any]", told)
    kind = _kinds(NodeFailure).get(str(fields.get("kind")), NodeFailure)
    details = fields.get("details")
    failure = kind(str(fields.get("message")), retryable=bool(fields.get("retryable")))
    failure.details = dict(cast("Mapping[str, Any]", details)) if isinstance(details, Mapping) else {}
    return failure


def _kinds(root: type[NodeFailure]) -> dict[str, type[NodeFailure]]:
    found = {root.__name__: root}
    for kind in root.__subclasses__():
        found |= _kinds(kind)
    return found


# -- the pool of this process -----------------------------------------------------------------------------------------

SIZE = max(2, min(4, os.cpu_count() or 2))
_lock = threading.Lock()
_pools: list[ProcessPool] = []


def pool() -> ProcessPool:
    """The pool of this process."""
    with _lock:
        if not _pools:
            _pools.append(ProcessPool(SIZE))
        return _pools[0]


async def in_limited_process(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function of a module in one of this process's children; see `ProcessPool.run`."""
    return await pool().run(function, *arguments, **named)


def in_limited_process_blocking(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """The same, for a thread that may wait."""
    return pool().run_blocking(function, *arguments, **named)


def close_limited_processes() -> None:
    """End the children of this process. Later work starts others."""
    with _lock:
        closing = list(_pools)
        _pools.clear()
    for each in closing:
        each.close()
