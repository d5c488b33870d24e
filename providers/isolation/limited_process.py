"""A pool of child processes with memory and time limits, for work on untrusted data.

    await in_limited_process(file_text, "a.pdf", "application/pdf", data)

A parser of a foreign format may loop, use all memory, or crash. In a child process it does not affect the worker: the
child is killed and another one is started. Requests and replies are JSON plus raw bytes (no pickle), so a child that an
attacker controls can only send a wrong value. A child gets only those environment variables of its parent that are
listed here and contain no secrets. Children start on first use, and end after some minutes without work.

One tenant (`OWNER`) never occupies all children: one child always remains for other tenants.

`limited_process_child.py` is the program of the child; both sides use the frames of `limited_process_frames.py`.
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
CLOSE_TIMEOUT = 5.0  # seconds that `close` waits for the threads
_PASSED_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from providers.isolation.limited_process_child import main; main()"
)

OWNER: ContextVar[str] = ContextVar("owner", default="")
"""The id of the tenant that the current work belongs to."""


class ResourceLimitExceeded(NodeFailure):
    """Work in a child process exceeded its time or memory limit, or crashed the child."""

    code = "resource_limit_exceeded"


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits of one call in a child process."""

    memory: int = 2048 * MIB  # bytes of address space, including the interpreter and its libraries
    seconds: float = 120.0  # of wall-clock time, and of CPU time
    reply: int = 256 * MIB  # bytes
    idle: float = 300.0  # seconds without work after which a child ends


@dataclass
class _PendingCall:
    """A call that waits for a child or is being executed by one."""

    owner: str
    request: Sequence[bytes | memoryview]
    seconds: float
    future: "Future[wire.ChildReply]" = field(default_factory=lambda: Future[wire.ChildReply]())
    child: "_Child | None" = None
    is_cancelled: bool = False


class ProcessPool:
    """Up to `size` child processes, each with a thread that communicates with it. Both start on first use."""

    def __init__(self, size: int, limits: ProcessLimits | None = None) -> None:
        self._size = size
        self._limits = limits or ProcessLimits()
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_PendingCall]] = {}  # by owner; the next owner to serve comes first
        self._running: list[_PendingCall] = []
        self._threads: list[threading.Thread] = []
        self._idle_threads = 0
        self._is_closed = False

    async def run(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call a function of a module in a child process. Cancelling kills the child.

        Arguments are JSON values or bytes, and so is the result. Raises ResourceLimitExceeded, the function's own
        NodeFailure, and a NodeFailure with the text of any other error of the function.
        """
        return await self.run_within(self._limits.seconds, function, *arguments, **named)

    async def run_within(self, seconds: float, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do the same as `run` with another time limit. The time that the call waits for a child does not count."""
        call = _new_call(seconds, function, arguments, named)
        self._submit(call)
        try:
            reply = await asyncio.wrap_future(call.future)
        except asyncio.CancelledError:
            self._cancel(call)
            raise
        return cast("T", _unwrap_reply(reply, seconds, self._limits))

    def run_blocking(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Do the same as `run`, blocking the calling thread."""
        call = _new_call(self._limits.seconds, function, arguments, named)
        self._submit(call)
        return cast("T", _unwrap_reply(call.future.result(), self._limits.seconds, self._limits))

    @property
    def is_busy(self) -> bool:
        """Return whether a child is executing a call."""
        with self._changed:
            return any(call.child is not None for call in self._running)

    def close(self) -> None:
        """Kill all children, and fail the calls that wait for one."""
        with self._changed:
            self._is_closed = True
            waiting = [call for calls in self._waiting.values() for call in calls]
            self._waiting.clear()
            for call in [*waiting, *self._running]:
                _cancel_call(call)
            self._changed.notify_all()
            threads = list(self._threads)
        for call in waiting:
            _fail_call(call, ResourceLimitExceeded("The worker process is shutting down.", retryable=True))
        give_up = time.monotonic() + CLOSE_TIMEOUT
        for thread in threads:
            thread.join(max(0.0, give_up - time.monotonic()))

    # -- the queue ------------------------------------------------------------------------------------------------
    def _submit(self, call: _PendingCall) -> None:
        with self._changed:
            if self._is_closed:
                raise ResourceLimitExceeded("The worker process is shutting down.", retryable=True)
            self._waiting.setdefault(call.owner, deque()).append(call)
            if not self._idle_threads and len(self._threads) < self._size:
                thread = threading.Thread(target=self._serve, name="easel-limited", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()

    def _cancel(self, call: _PendingCall) -> None:
        with self._changed:
            calls = self._waiting.get(call.owner)
            if calls and call in calls:
                calls.remove(call)
                if not calls:
                    del self._waiting[call.owner]
            _cancel_call(call)

    def _next_call(self) -> _PendingCall | None:
        """Wait for the next call that a free child may execute and return it; None if the pool is closed."""
        with self._changed:
            while not self._is_closed:
                for owner in list(self._waiting):
                    if self._may_run(owner):
                        calls = self._waiting.pop(owner)
                        call = calls.popleft()
                        if calls:
                            self._waiting[owner] = calls  # at the end, behind the other owners
                        self._running.append(call)
                        return call
                self._idle_threads += 1
                self._changed.wait()
                self._idle_threads -= 1
            return None

    def _may_run(self, owner: str) -> bool:
        """Return whether an owner may use another child; with several children, one remains for other owners."""
        return sum(call.owner == owner for call in self._running) < max(1, self._size - 1)

    def _finish_call(self, call: _PendingCall) -> None:
        with self._changed:
            self._running.remove(call)
            self._changed.notify_all()  # the owner may run its next call

    # -- a thread and its child -----------------------------------------------------------------------------------
    def _serve(self) -> None:
        child: _Child | None = None
        try:
            while (call := self._next_call()) is not None:
                try:
                    child = self._execute(call, child)
                finally:
                    self._finish_call(call)
        finally:
            if child is not None:
                child.end()

    def _execute(self, call: _PendingCall, child: "_Child | None") -> "_Child | None":
        """Execute a call; return the child if it can be used again."""
        reply: wire.ChildReply | None = None
        try:
            if child is not None and child.has_ended:  # after its idle time
                child.end()
                child = None
            child = child or _Child(self._limits)
            with self._changed:
                call.child = child
            if not call.is_cancelled:
                reply = child.call(call.request, call.seconds, self._limits.reply)
        except Exception as error:  # noqa: BLE001 (the thread must serve the calls after this one)
            log.error("limited_process_failed", error=f"{type(error).__name__}: {error}")
            message = f"The child process for this work failed: {type(error).__name__}."
            _fail_call(call, ResourceLimitExceeded(message, retryable=True))
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
            options = wire.child_options(theirs.fileno(), os.getpid(), limits.memory, limits.idle)
            environment = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
            # linear algebra libraries reserve address space for each of their threads
            environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(  # noqa: S603
                [
                    *(sys.executable, "-I", "-c", _START),
                    *(wire.to_argument([path or os.getcwd() for path in sys.path]), options),
                ],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), env=environment, start_new_session=True,
            )  # fmt: skip
            on_failure.pop_all()
        self._socket = ours

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Kill the process; a pending `call` returns ENDED."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process, reap it and close the socket."""
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def call(self, request: Sequence[bytes | memoryview], seconds: float, most: int) -> wire.ChildReply:
        """Send a request and return the reply; a timeout, an oversized reply and a dead child are replies as well."""
        give_up = time.monotonic() + seconds
        try:
            for part in request:
                self._socket.settimeout(max(0.001, give_up - time.monotonic()))
                self._socket.sendall(part)
            return wire.read_reply(self._socket, give_up, most)
        except TimeoutError:
            return wire.ChildReply(wire.TIMEOUT)
        except wire.FrameTooLarge:
            return wire.ChildReply(wire.TOO_LARGE)
        except OSError:
            self._process.kill()
            return wire.ChildReply(wire.ENDED, -self._process.wait())
        except ValueError:  # not a valid reply
            return wire.ChildReply(wire.ENDED, 0)


def _new_call(
    seconds: float, function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> _PendingCall:
    name = f"{function.__module__}:{function.__qualname__}"
    request = wire.request_frame(name, arguments, named, cpu_seconds=max(1, round(seconds) + 1))
    return _PendingCall(OWNER.get(), request, seconds)


def _cancel_call(call: _PendingCall) -> None:
    """Cancel a call and kill its child. The caller holds the pool's lock."""
    call.is_cancelled = True
    if call.child is not None:
        call.child.kill()


def _fail_call(call: _PendingCall, failure: NodeFailure) -> None:
    if not call.future.done():
        call.future.set_exception(failure)


def _unwrap_reply(reply: wire.ChildReply, seconds: float, limits: ProcessLimits) -> Any:
    """Return the value of a reply. Raises the failure that the reply reports."""
    match reply.status:
        case wire.VALUE:
            return reply.value
        case wire.FAILURE:
            raise _failure_from_json(reply.value)
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


def _failure_from_json(value: Any) -> NodeFailure:
    """Return the failure that a child reported, as the subclass of NodeFailure that it names."""
    if not isinstance(value, Mapping):
        return NodeFailure("The process that worked on it gave no valid reply.")
    fields = cast("Mapping[str, Any]", value)
    kind = _subclasses_by_name(NodeFailure).get(str(fields.get("kind")), NodeFailure)
    details = fields.get("details")
    failure = kind(str(fields.get("message")), retryable=bool(fields.get("retryable")))
    failure.details = dict(cast("Mapping[str, Any]", details)) if isinstance(details, Mapping) else {}
    return failure


def _subclasses_by_name(root: type[NodeFailure]) -> dict[str, type[NodeFailure]]:
    found = {root.__name__: root}
    for kind in root.__subclasses__():
        found |= _subclasses_by_name(kind)
    return found


# -- the pool of this process -----------------------------------------------------------------------------------------

POOL_SIZE = max(2, min(4, os.cpu_count() or 2))
_lock = threading.Lock()
_pools: list[ProcessPool] = []


def process_pool() -> ProcessPool:
    """Return the pool of this process; the first call creates it."""
    with _lock:
        if not _pools:
            _pools.append(ProcessPool(POOL_SIZE))
        return _pools[0]


async def in_limited_process(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call a function of a module in one of this process's children; see `ProcessPool.run`."""
    return await process_pool().run(function, *arguments, **named)


def in_limited_process_blocking(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Do the same as `in_limited_process`, blocking the calling thread."""
    return process_pool().run_blocking(function, *arguments, **named)


def close_limited_processes() -> None:
    """Kill the children of this process. A later call starts new ones."""
    with _lock:
        closing = list(_pools)
        _pools.clear()
    for each in closing:
        each.close()
