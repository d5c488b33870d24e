"""The process of an embedded server: start, wait until it answers, restart under the same URL, stop in order.

It listens on the loopback interface, on a random port with a random password, and ends with the process that started
it.
"""

import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from canvas.errors import ExecutorError
from embedded.errors import cannot_run
from embedded.os_user import OsAccount

START_TIMEOUT_S = 30.0  # seconds for a server to answer, and for an owner to start or stop
STOP_TIMEOUT_S = 10.0  # seconds after each signal that should end a server
RESTART_INTERVAL_S = 0.3  # seconds between restarts of a server that ends at once
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # no PGDATA and the like; TZ saves initdb a search
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass
class ServerProcess:
    """A server's process, and what is needed to restart it.

    It has a session of its own, so that Ctrl-C in the terminal does not reach it: the owner needs it until it has
    stopped in order.
    """

    name: str
    url: str = field(repr=False)
    argv: Sequence[str | Path]
    account: OsAccount
    log: Path
    # signals that end it, ever harsher; the kernel sends the first if the owner dies
    stop_signals: Sequence[signal.Signals]
    is_ready: Callable[[int], bool]  # whether the process of this id answers
    prepare: Callable[[], None] = lambda: None
    stdin: str = field(default="", repr=False)  # passed on stdin
    _process: "subprocess.Popen[Any] | None" = None
    _down_since: float | None = None  # when it ended; None while it answers
    _next_restart: float = 0.0

    def _start(self) -> "subprocess.Popen[Any]":
        self.prepare()
        self.log.touch(mode=0o600)
        with self.log.open("wb" if self._process is None else "ab") as output, TemporaryFile() as stdin:
            stdin.write(self.stdin.encode())
            stdin.seek(0)
            self._process = subprocess.Popen(  # noqa: S603
                self.argv, stdin=stdin, stdout=output, stderr=output, cwd="/", env=ENVIRONMENT,
                start_new_session=True, preexec_fn=die_with_parent(self.stop_signals[0]), **self.account,
            )  # fmt: skip
        return self._process

    @property
    def pid(self) -> int:
        """The id of the current or last process; 0 before the first start."""
        return self._process.pid if self._process is not None else 0

    def start_and_wait(self) -> None:
        """Start the server and wait until it answers. Raises ExecutorError if it ends first or takes too long."""
        process, give_up = self._start(), time.monotonic() + START_TIMEOUT_S
        while not self.is_ready(process.pid):
            if process.poll() is not None or time.monotonic() > give_up:
                raise self._error("did not start")
            time.sleep(0.004)

    def restart_if_ended(self) -> bool:
        """Restart the server if it has ended; return whether it has ended since the last call."""
        assert self._process is not None
        if (code := self._process.poll()) is None:
            if self._down_since is not None and self.is_ready(self._process.pid):
                self._down_since = None
            return False
        now, is_news = time.monotonic(), self._down_since is None
        if is_news or code < 0:  # a server that is killed repeatedly has not failed to start
            self._down_since = now
        elif now - (self._down_since or now) > START_TIMEOUT_S:
            raise self._error("does not come up again")
        if is_news or now >= self._next_restart:
            self._next_restart = now + RESTART_INTERVAL_S
            self._start()
        return is_news

    def stop(self) -> None:
        """Stop the server, by force if it takes too long."""
        if self._process is None:
            return
        for stop in (*self.stop_signals, signal.SIGKILL):
            self._process.send_signal(stop)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
                break

    def _error(self, fate: str) -> ExecutorError:
        log_end = self.log.read_text(errors="replace")[-2000:]
        return cannot_run(f"The embedded {self.name} {fate}: {log_end}")


def die_with_parent(stop: signal.Signals) -> Callable[[], None] | None:
    """Return a `preexec_fn` by which the kernel sends this signal to the child when its parent ends; None off Linux."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(DIE_WITH_PARENT, int(stop))
        if os.getppid() != parent:  # the parent ended before the call of prctl
            os._exit(1)

    return ask


def find_free_port() -> int:
    """Return a free port below the range of outgoing connections, so that none of those takes it meanwhile."""
    for port in (20000 + secrets.randbelow(12000) for _ in range(50)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise cannot_run("No free port for an embedded server was found in 50 attempts.")
