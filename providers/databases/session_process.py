"""The processes that hold database sessions: a fork server, and a child of it for each session.

A database that a node names may be anybody's program, and what it sends is read by drivers, most of them written in C.
So each session has a process of its own, whose memory the kernel limits, and which is killed when its node has ended:
no driver, whatever it does, takes more memory than that, or reads on after its time.

The fork server has imported the drivers, so that a session starts within milliseconds. It receives two descriptors for
each session: the wire, which its child serves, and the leash, which it watches itself. When a worker closes both, or
dies, the child cancels its statement at the server, and is killed `GRACE` seconds later at the latest.

This module runs in processes of its own (`providers/databases/sessions.py` starts them), single-threaded but for the
thread of a child that cancels its statement.
"""

import ctypes
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from canvas.errors import ToolError
from providers.databases import session_frames as wire
from providers.databases.drivers import Driver, Target
from providers.interfaces import Rows

MIB = 1024 * 1024
MEMORY = 256 * MIB  # bytes of address space that a session may use beyond what the drivers need
MOST_BYTES = 32 * MIB  # of all rows of a statement; what a canvas can hold is far less
FIRST_ROWS = 4  # that are fetched at once; then ever more, until they are too large
GRACE = 2.0  # seconds that a child has to cancel its statement at the server
RECORD = 256  # bytes of a message to the fork server: the table of drivers, and which of them
TOO_LARGE = f"The rows hold more than {MOST_BYTES:,} characters. Ask for less of them."

_STACK = 512 * 1024  # bytes of a thread's stack
_OTHER_SYSTEMS = 1024 * MIB  # bytes of address space where the kernel does not tell how much is in use
_FIRST_FOR_THE_OOM_KILLER = "1000"
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_NO_MEMORY = ("out of memory", "cannot allocate memory", "memory allocation")


# -- the fork server --------------------------------------------------------------------------------------------------
def main() -> None:
    """Serve until the worker is gone. Arguments: the module search path, and the descriptor of the control socket."""
    control = socket.socket(fileno=int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the worker ends its sessions itself
    _ForkServer(control).run()


class _ForkServer:
    """The control socket, and a child for each leash."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._children: dict[int, int] = {}  # process id by leash
        self._ends: dict[int, float] = {}  # when a process is killed, by its id

    def run(self) -> None:
        """Start sessions and end them, until the worker and all sessions are gone."""
        has_worker = True
        while has_worker or self._children:
            for descriptor, _ in self._poll.poll(self._pause()):
                if descriptor != self._control.fileno():
                    self._poll.unregister(descriptor)  # the worker has let go of this session
                    self._ends[self._children[descriptor]] = time.monotonic() + GRACE
                elif not self._start_session():
                    self._poll.unregister(self._control)
                    has_worker = False
            self._kill_late()
            self._reap()

    def _pause(self) -> int | None:
        """Milliseconds until there is something to do, whatever is sent."""
        if self._ends:
            return max(0, round(1000 * (min(self._ends.values()) - time.monotonic())) + 1)
        return 1000 if self._children else None

    def _start_session(self) -> bool:
        """Fork a child for the next session; False if there is no worker any more."""
        record, descriptors, _, _ = socket.recv_fds(self._control, RECORD, 2)
        if not record:
            return False
        if len(descriptors) != 2:  # there is no room for more; the worker sees that the wire is closed
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        wire_end, leash = descriptors
        table, kind = record.decode().rstrip().split("\n")
        driver = _driver(table, kind)
        if driver.is_fork_safe and _import(driver):
            gc.freeze()
        try:
            child = os.fork()
        except OSError:  # the worker sees that the wire is closed
            os.close(wire_end)
            os.close(leash)
            return True
        if child == 0:
            self._become_session(wire_end, driver)
        os.close(wire_end)
        self._children[leash] = child
        self._poll.register(leash, 0)  # hang-ups are reported always
        return True

    def _become_session(self, wire_end: int, driver: Driver) -> None:
        code = 1
        try:
            parent = os.getppid()
            os.closerange(3, wire_end)
            os.closerange(wire_end + 1, 4096)
            _limit(driver, parent)
            _Session(socket.socket(fileno=wire_end), driver).serve()
            code = 0
        finally:
            os._exit(code)

    def _kill_late(self) -> None:
        now = time.monotonic()
        for child in [child for child, end in self._ends.items() if end <= now]:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            self._ends[child] = now + GRACE

    def _reap(self) -> None:
        """Forget children that have ended. A process id is not used again before its child was waited for."""
        for leash, child in list(self._children.items()):
            if os.waitpid(child, os.WNOHANG)[0] != 0:
                if self._ends.pop(child, None) is None:
                    self._poll.unregister(leash)
                os.close(leash)
                del self._children[leash]


def _driver(table: str, kind: str) -> Driver:
    """A driver by the name that the worker has given; nothing that a tenant sends becomes the name of a module."""
    module, _, name = table.partition(":")
    return getattr(importlib.import_module(module), name)[kind]


def _import(driver: Driver) -> bool:
    """Import what a driver needs; return whether anything was new. What is not installed is told on connecting."""
    before = len(sys.modules)
    for name in driver.modules:
        with suppress(ImportError):
            importlib.import_module(name)
    return len(sys.modules) > before


def _limit(driver: Driver, parent: int) -> None:
    """Let the kernel limit this process, and kill it with the fork server."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        with suppress(OSError):  # where memory is short, the session goes and not the worker
            Path("/proc/self/oom_score_adj").write_text(_FIRST_FOR_THE_OOM_KILLER)
    _import(driver)
    _set_limit(resource.RLIMIT_AS, _address_space() + MEMORY)
    _set_limit(resource.RLIMIT_CORE, 0)


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return _OTHER_SYSTEMS


def _set_limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(OSError, ValueError):  # systems that do not know a limit of address space
        resource.setrlimit(kind, (value, value))


# -- a session --------------------------------------------------------------------------------------------------------
class _Session:
    """One connection, and the requests that come for it over the wire."""

    def __init__(self, connection: socket.socket, driver: Driver) -> None:
        self._wire = connection
        self._driver = driver
        self._connection: Any = None
        self._is_busy = False

    def serve(self) -> None:
        """Answer requests until the worker hangs up."""
        threading.stack_size(_STACK)
        threading.Thread(target=self._cancel_when_hung_up, daemon=True).start()
        while (request := self._next()) is not None:
            self._wire.sendall(self._answer(request))
        if self._connection is not None:
            with suppress(Exception):  # nobody waits for this connection any more
                self._connection.close()

    def _next(self) -> Mapping[str, Any] | None:
        head = self._read(wire.LENGTH.size)
        body = self._read(wire.LENGTH.unpack(head)[0]) if head is not None else None
        return wire.decoded(body) if body is not None else None

    def _read(self, size: int) -> bytes | None:
        parts: list[bytes] = []
        while size > 0:
            with suppress(ConnectionError):
                if part := self._wire.recv(min(size, MIB)):
                    parts.append(part)
                    size -= len(part)
                    continue
            return None
        return b"".join(parts)

    def _answer(self, request: Mapping[str, Any]) -> bytes:
        self._is_busy = True
        try:
            frame = wire.encoded(self._carried_out(request))
            if len(frame) > MOST_BYTES + wire.LENGTH.size:
                raise ToolError(TOO_LARGE)
            return frame
        except ToolError as error:
            return wire.encoded({"error": error.message, "retryable": error.retryable})
        except MemoryError:
            return wire.encoded({"error": TOO_LARGE, "retryable": False})
        finally:
            self._is_busy = False

    def _carried_out(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "targets" in request:
            self._connection = connect(self._driver, [Target(**told) for told in request["targets"]])
            return {}
        rows = execute(self._driver, self._connection, request["parts"], request["values"], request["most_rows"])
        return {"columns": rows.columns, "rows": wire.rows_as_json(rows.rows)}

    def _cancel_when_hung_up(self) -> None:
        """Cancel the statement when the worker hangs up, and end this process, whatever the driver does."""
        poll = select.poll()
        poll.register(self._wire, 0)  # hang-ups are reported always
        poll.poll()
        if self._is_busy and self._connection is not None:
            with suppress(Exception):  # a courtesy to the server; its time limit ends the statement as well
                self._driver.call_off(self._connection)
        time.sleep(GRACE)
        os._exit(0)


def connect(driver: Driver, targets: list[Target]) -> Any:
    """A connection to the first address that answers. Raises ToolError."""
    last: Exception | None = None
    for target in targets:
        try:
            return driver.connect(target)
        except ToolError:
            raise
        except Exception as error:
            if _lacks_memory(error):
                raise ToolError(TOO_LARGE) from error
            last = error
    assert last is not None  # there is at least one address
    raise ToolError(f"Database Connection Failed! \n{driver.reason(last)}", retryable=True) from last


def execute(driver: Driver, connection: Any, parts: list[str], values: list[Any], most_rows: int) -> Rows:
    """The first rows of one statement. Raises ToolError in the server's words; the session goes on after it."""
    try:
        text = driver.marked(parts) if len(parts) > 1 else parts[0]
        cursor = driver.ask(connection, text, values, most_rows)
        try:
            columns = [str(column[0]) for column in cursor.description or ()]
            return Rows(columns, _fetched(cursor, most_rows) if columns else [])
        finally:
            cursor.close()
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(TOO_LARGE if _lacks_memory(error) else driver.reason(error)) from error
    finally:
        with suppress(Exception):  # a broken connection says so at the next statement
            connection.rollback()


def _fetched(cursor: Any, most_rows: int) -> list[tuple[Any, ...]]:
    """The first rows, a few and then more at a time: a driver holds in memory what it is asked for at once."""
    rows: list[tuple[Any, ...]] = []
    room, number = MOST_BYTES, FIRST_ROWS
    while len(rows) < most_rows:
        found = [tuple(row) for row in cursor.fetchmany(min(number, most_rows - len(rows)))]
        if not found:
            break
        rows += found
        size = sum(_size(value) for row in found for value in row)
        room -= size
        if room < 0:
            raise ToolError(TOO_LARGE)
        number = max(1, min(4 * number, number * room // max(1, size)))  # so that the next ones will fit
    return rows


def _size(value: Any) -> int:
    """About how much room a value takes; of lists and the like their text."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value)
    return len(str(value)) if isinstance(value, list | tuple | dict | set) else 8


def _lacks_memory(error: BaseException) -> bool:
    """Whether an error says that this process, and not the server, has no more memory."""
    if getattr(error, "sqlstate", None):
        return False
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or any(text in str(cause).lower() for text in _NO_MEMORY):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
