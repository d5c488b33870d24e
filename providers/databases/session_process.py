"""The processes of database sessions: a fork server, and one child of it per session.

A database that a node names may be a hostile program, and most of the drivers that read its data are written in C. So
each session has a process of its own. The kernel limits its memory, and the process is killed when its node has ended:
no driver can use more memory or keep reading after that.

The fork server has imported the drivers, so that a session starts within milliseconds. It receives two descriptors for
each session: the wire, which the child serves, and the leash, which the fork server watches. When a worker closes both,
or dies, the child cancels its statement at the server, and is killed at most `GRACE` seconds later.

This module runs in processes that `providers/databases/sessions.py` starts. They have one thread, except that a child
has a second one which cancels its statement.
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
MAX_MEMORY = 256 * MIB  # bytes of address space that a session may use in addition to its drivers
MAX_RESULT_BYTES = 32 * MIB  # of all rows of a statement; the limits of a canvas are far lower
FIRST_ROWS = 4  # rows of the first fetch; later fetches are larger as long as the rows fit
GRACE = 2.0  # seconds that a child has to cancel its statement at the server
RECORD_BYTES = 256  # bytes of a message to the fork server: the table of drivers, and the name of one of them
TOO_LARGE = f"The rows have more than {MAX_RESULT_BYTES:,} characters. Select fewer or shorter rows."

_STACK = 512 * 1024  # bytes of a thread's stack
_DEFAULT_ADDRESS_SPACE = 1024 * MIB  # assumed bytes of address space in use on systems without /proc
_OOM_SCORE = "1000"
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_OUT_OF_MEMORY_TEXTS = ("out of memory", "cannot allocate memory", "memory allocation")


# -- the fork server --------------------------------------------------------------------------------------------------
def main() -> None:
    """Serve until the worker is gone. Arguments: the module search path, and the descriptor of the control socket."""
    control = socket.socket(fileno=int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal; the worker ends its sessions itself
    _ForkServer(control).run()


class _ForkServer:
    """The control socket, and one child per leash."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._children: dict[int, int] = {}  # process id by leash
        self._kill_times: dict[int, float] = {}  # time at which a process is killed, by its id

    def run(self) -> None:
        """Start and end sessions until the worker and all sessions are gone."""
        has_worker = True
        while has_worker or self._children:
            for descriptor, _ in self._poll.poll(self._poll_timeout()):
                if descriptor != self._control.fileno():
                    self._poll.unregister(descriptor)  # the worker has closed this session
                    self._kill_times[self._children[descriptor]] = time.monotonic() + GRACE
                elif not self._start_session():
                    self._poll.unregister(self._control)
                    has_worker = False
            self._kill_late_children()
            self._reap()

    def _poll_timeout(self) -> int | None:
        """Return the milliseconds until the next child is killed or reaped; None: wait for a message."""
        if self._kill_times:
            return max(0, round(1000 * (min(self._kill_times.values()) - time.monotonic())) + 1)
        return 1000 if self._children else None

    def _start_session(self) -> bool:
        """Fork a child for the next session; return False if the worker is gone."""
        record, descriptors, _, _ = socket.recv_fds(self._control, RECORD_BYTES, 2)
        if not record:
            return False
        if len(descriptors) != 2:  # this process has no free descriptors; the worker sees that the wire is closed
            for descriptor in descriptors:
                os.close(descriptor)
            return True
        wire_end, leash = descriptors
        table, kind = record.decode().rstrip().split("\n")
        driver = _load_driver(table, kind)
        if driver.is_fork_safe and _import_modules(driver):
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
        self._poll.register(leash, 0)  # hang-ups are always reported
        return True

    def _become_session(self, wire_end: int, driver: Driver) -> None:
        code = 1
        try:
            parent = os.getppid()
            os.closerange(3, wire_end)
            os.closerange(wire_end + 1, 4096)
            _set_limits(driver, parent)
            _Session(socket.socket(fileno=wire_end), driver).serve()
            code = 0
        finally:
            os._exit(code)

    def _kill_late_children(self) -> None:
        now = time.monotonic()
        for child in [child for child, end in self._kill_times.items() if end <= now]:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            self._kill_times[child] = now + GRACE

    def _reap(self) -> None:
        """Wait for children that have ended. The kernel does not reuse a process id before that."""
        for leash, child in list(self._children.items()):
            if os.waitpid(child, os.WNOHANG)[0] != 0:
                if self._kill_times.pop(child, None) is None:
                    self._poll.unregister(leash)
                os.close(leash)
                del self._children[leash]


def _load_driver(table: str, kind: str) -> Driver:
    """Return the driver that the worker names; a tenant's data never becomes the name of a module."""
    module, _, name = table.partition(":")
    return getattr(importlib.import_module(module), name)[kind]


def _import_modules(driver: Driver) -> bool:
    """Import the modules of a driver; return whether any was new. `connect` reports a missing module later."""
    before = len(sys.modules)
    for name in driver.modules:
        with suppress(ImportError):
            importlib.import_module(name)
    return len(sys.modules) > before


def _set_limits(driver: Driver, parent: int) -> None:
    """Have the kernel limit this process, and kill it when the fork server ends."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        with suppress(OSError):  # when memory is short, the kernel kills the session and not the worker
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    _import_modules(driver)
    _set_limit(resource.RLIMIT_AS, _address_space() + MAX_MEMORY)
    _set_limit(resource.RLIMIT_CORE, 0)


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return _DEFAULT_ADDRESS_SPACE


def _set_limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with suppress(OSError, ValueError):  # systems without a limit of address space
        resource.setrlimit(kind, (value, value))


# -- a session --------------------------------------------------------------------------------------------------------
class _Session:
    """One database connection, and the requests for it that come over the wire."""

    def __init__(self, connection: socket.socket, driver: Driver) -> None:
        self._wire = connection
        self._driver = driver
        self._connection: Any = None
        self._is_busy = False

    def serve(self) -> None:
        """Answer requests until the worker hangs up."""
        threading.stack_size(_STACK)
        threading.Thread(target=self._cancel_on_hangup, daemon=True).start()
        while (request := self._read_request()) is not None:
            self._wire.sendall(self._response_frame(request))
        if self._connection is not None:
            with suppress(Exception):  # no caller waits for the result
                self._connection.close()

    def _read_request(self) -> Mapping[str, Any] | None:
        head = self._read(wire.LENGTH.size)
        body = self._read(wire.LENGTH.unpack(head)[0]) if head is not None else None
        return wire.decode_body(body) if body is not None else None

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

    def _response_frame(self, request: Mapping[str, Any]) -> bytes:
        self._is_busy = True
        try:
            frame = wire.encode_frame(self._execute(request))
            if len(frame) > MAX_RESULT_BYTES + wire.LENGTH.size:
                raise ToolError(TOO_LARGE)
            return frame
        except ToolError as error:
            return wire.encode_frame({"error": error.message, "retryable": error.retryable})
        except MemoryError:
            return wire.encode_frame({"error": TOO_LARGE, "retryable": False})
        finally:
            self._is_busy = False

    def _execute(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if "targets" in request:
            self._connection = connect(self._driver, [Target(**target) for target in request["targets"]])
            return {}
        rows = execute(self._driver, self._connection, request["parts"], request["values"], request["most_rows"])
        return {"columns": rows.columns, "rows": wire.rows_as_json(rows.rows)}

    def _cancel_on_hangup(self) -> None:
        """Cancel the statement when the worker hangs up, then end this process, whatever the driver does."""
        poll = select.poll()
        poll.register(self._wire, 0)  # hang-ups are always reported
        poll.poll()
        if self._is_busy and self._connection is not None:
            with suppress(Exception):  # saves the server some work; its time limit ends the statement anyway
                self._driver.cancel(self._connection)
        time.sleep(GRACE)
        os._exit(0)


def connect(driver: Driver, targets: list[Target]) -> Any:
    """Connect to the first address that answers. Raises ToolError."""
    last: Exception | None = None
    for target in targets:
        try:
            return driver.connect(target)
        except ToolError:
            raise
        except Exception as error:
            if _is_out_of_memory(error):
                raise ToolError(TOO_LARGE) from error
            last = error
    assert last is not None  # there is at least one address
    raise ToolError(f"Database Connection Failed! \n{driver.reason(last)}", retryable=True) from last


def execute(driver: Driver, connection: Any, parts: list[str], values: list[Any], most_rows: int) -> Rows:
    """Execute one statement and return its first rows.

    Raises ToolError with the server's message; the session stays usable.
    """
    try:
        text = driver.insert_placeholders(parts) if len(parts) > 1 else parts[0]
        cursor = driver.execute(connection, text, values, most_rows)
        try:
            columns = [str(column[0]) for column in cursor.description or ()]
            return Rows(columns, _fetch_rows(cursor, most_rows) if columns else [])
        finally:
            cursor.close()
    except ToolError:
        raise
    except Exception as error:
        raise ToolError(TOO_LARGE if _is_out_of_memory(error) else driver.reason(error)) from error
    finally:
        with suppress(Exception):  # a broken connection fails the next statement
            connection.rollback()


def _fetch_rows(cursor: Any, most_rows: int) -> list[tuple[Any, ...]]:
    """Fetch the first rows in growing batches, because a driver holds a whole batch in memory."""
    rows: list[tuple[Any, ...]] = []
    free, number = MAX_RESULT_BYTES, FIRST_ROWS
    while len(rows) < most_rows:
        batch = [tuple(row) for row in cursor.fetchmany(min(number, most_rows - len(rows)))]
        if not batch:
            break
        rows += batch
        size = sum(_size(value) for row in batch for value in row)
        free -= size
        if free < 0:
            raise ToolError(TOO_LARGE)
        number = max(1, min(4 * number, number * free // max(1, size)))  # rows of this size will fit
    return rows


def _size(value: Any) -> int:
    """Return the approximate size of a value in characters; of containers, that of their text."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value)
    return len(str(value)) if isinstance(value, list | tuple | dict | set) else 8


def _is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that this process, and not the server, is out of memory."""
    if getattr(error, "sqlstate", None):
        return False
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) or any(text in str(cause).lower() for text in _OUT_OF_MEMORY_TEXTS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
