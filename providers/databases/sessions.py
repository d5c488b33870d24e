"""The worker's side of database sessions: starts the fork server, and communicates with one child per session.

    session = await open_session("postgres", targets)
    rows = await session.execute("SELECT 1", 10)
    session.close()

See `providers/databases/session_process.py` for the other side and its limits.
"""

import asyncio
import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from typing import Any

from canvas.errors import ToolError
from providers.databases import session_frames as wire
from providers.databases.drivers import Target
from providers.databases.session_process import GRACE, MAX_RESULT_BYTES, RECORD_BYTES
from providers.interfaces import BoundStatement, Rows

DRIVERS = "providers.databases.drivers:DRIVERS"
"""Module and name of the table of drivers; tests pass another table to `open_session`."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from providers.databases.session_process import main; main()"
)
_PASSED_VARIABLES = frozenset({"HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "TMPDIR", "TZ"})
_PASSED_PREFIXES = ("DB2", "FREETDS", "IBM_DB", "LC_", "ODBC", "PGSSL", "SSL_CERT")
_PROCESS_ENDED = "The process of the database session ended. The server may have sent data that the driver cannot read."


class ProcessSession:
    """A database session in a process of its own, for one caller at a time."""

    def __init__(self, connection: socket.socket, leash: socket.socket) -> None:
        self._wire = connection
        self._leash = leash

    async def open(self, targets: Sequence[Target]) -> None:
        """Connect to the first address that answers. Raises ToolError."""
        await self._request({"targets": [asdict(target) for target in targets]}, retryable=True)

    async def execute(self, sql: str | BoundStatement, most_rows: int) -> Rows:
        """Execute one statement and return its first rows.

        Raises ToolError with the server's message; the session stays usable.
        """
        parts, values = ([sql], []) if isinstance(sql, str) else (list(sql.parts), list(sql.values))
        answer = await self._request({"parts": parts, "values": values, "most_rows": most_rows})
        try:
            return Rows(list(answer["columns"]), await asyncio.to_thread(wire.rows_from_json, answer["rows"]))
        except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise ToolError(_PROCESS_ENDED) from error

    def close(self) -> None:
        """End the session. Its process cancels a running statement, and is killed after GRACE seconds."""
        for end in (self._wire, self._leash):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    async def _request(self, request: Mapping[str, Any], *, retryable: bool = False) -> Mapping[str, Any]:
        """Send a request and return the answer. `retryable`: a new session may try again if the process has ended."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._wire, wire.encode_frame(request))
            (size,) = wire.LENGTH.unpack(await self._read(wire.LENGTH.size))
            if size > MAX_RESULT_BYTES:
                raise ValueError(f"The frame has {size} bytes.")
            body = await self._read(size)
            answer = await asyncio.to_thread(wire.decode_body, body)
        except (OSError, RecursionError, ValueError) as error:
            raise ToolError(_PROCESS_ENDED, retryable=retryable) from error
        if "error" in answer:
            raise ToolError(str(answer["error"]), retryable=bool(answer.get("retryable")))
        return answer

    async def _read(self, size: int) -> bytearray:
        loop = asyncio.get_running_loop()
        body = bytearray(size)
        with memoryview(body) as view:
            done = 0
            while done < size:
                received = await loop.sock_recv_into(self._wire, view[done:])
                if received == 0:
                    raise ConnectionResetError("The process has ended.")
                done += received
        return body


async def open_session(kind: str, targets: Sequence[Target], *, drivers: str = DRIVERS) -> ProcessSession:
    """Open a session on the first address that answers. Raises ToolError."""
    starting = asyncio.create_task(asyncio.to_thread(_start_session, kind, drivers))
    try:
        session = await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_close_unused)
        raise
    with ExitStack() as on_failure:
        on_failure.callback(session.close)
        await session.open(targets)
        on_failure.pop_all()
    return session


def _close_unused(starting: "asyncio.Task[ProcessSession]") -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().close()


# -- the fork server of this process ----------------------------------------------------------------------------------
class _ForkServer:
    """The running fork server, and the process that started it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-c", _START, json.dumps([path for path in sys.path if path]),
                 str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),), env=_environment(), start_new_session=True,
            )  # fmt: skip
        self._control = ours
        self.owner = os.getpid()

    @property
    def is_usable(self) -> bool:
        """Return whether the server runs and this process started it."""
        return self.owner == os.getpid() and self._process.poll() is None

    def start_session(self, record: bytes, descriptors: list[int]) -> None:
        """Have the server fork a child that uses the descriptors."""
        socket.send_fds(self._control, [record], descriptors)

    def close(self) -> None:
        """Close the control socket; the server ends after its last session, once every process has closed it."""
        self._control.close()
        if self.owner == os.getpid():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2 * GRACE)


_lock = threading.Lock()
_running: list[_ForkServer] = []


def _start_session(kind: str, drivers: str) -> ProcessSession:
    """Start the process of a session, which is not connected to a database yet."""
    record = f"{drivers}\n{kind}".encode().ljust(RECORD_BYTES)
    with ExitStack() as opened:
        wires, leashes = socket.socketpair(), socket.socketpair()
        for end in (*wires, *leashes):
            opened.callback(end.close)
        descriptors = [wires[1].fileno(), leashes[1].fileno()]
        try:
            with _lock:
                try:
                    _fork_server().start_session(record, descriptors)
                except OSError:  # the fork server has just ended; start a new one
                    _running.pop().close()
                    _fork_server().start_session(record, descriptors)
        except OSError as error:
            raise ToolError(
                f"The process for the database session could not be started: {error}", retryable=True
            ) from error
        wires[0].setblocking(False)
        opened.pop_all()
    wires[1].close()
    leashes[1].close()
    return ProcessSession(wires[0], leashes[0])


def _fork_server() -> _ForkServer:
    """Return the fork server of this process, and start it if necessary. The caller holds the lock."""
    if _running and not _running[0].is_usable:
        _running.pop().close()
    if not _running:
        _running.append(_ForkServer())
    return _running[0]


@atexit.register
def _close_fork_servers() -> None:
    with _lock:
        while _running:
            _running.pop().close()


def _environment() -> dict[str, str]:
    """Return the environment variables for drivers: no keys, addresses or passwords."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_VARIABLES or name.startswith(_PASSED_PREFIXES)
    }
    return variables | {"MALLOC_ARENA_MAX": "1"}  # each further arena takes 128 MiB of address space
