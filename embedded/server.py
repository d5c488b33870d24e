"""A server's process: started, waited for, started again under the same URL, stopped in order.

It listens on loopback, on a random port and behind a random password, and dies with the process that started it.
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
from embedded.os_user import Account
from embedded.refusals import refusal

PATIENCE_S = 30.0  # for a server to answer, or for an owner to finish starting or stopping
STOPS_WITHIN_S = 10.0  # after each signal that should end a server
PAUSE_S = 0.3  # before a server is started once more that has ended as soon as it was started again
ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}  # no PGDATA and the like; a known TZ spares a search
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass
class Server:
    """A server's process, and what it takes to start it again as it was.

    A session of its own keeps the terminal's Ctrl-C from it, which is meant for us: we need it to end in order.
    """

    name: str
    url: str = field(repr=False)
    argv: Sequence[str | Path]
    account: Account
    log: Path
    stops: Sequence[signal.Signals]  # each ends it, the next more harshly; the first comes from the kernel if we die
    is_ready: Callable[[int], bool]  # whether the process of this id answers
    prepare: Callable[[], None] = lambda: None
    given: str = field(default="", repr=False)  # on its stdin
    _process: "subprocess.Popen[Any] | None" = None
    _away_since: float | None = None  # when it ended; None once it answers
    _due: float = 0.0

    def _start(self) -> "subprocess.Popen[Any]":
        self.prepare()
        self.log.touch(mode=0o600)
        with self.log.open("wb" if self._process is None else "ab") as output, TemporaryFile() as stdin:
            stdin.write(self.given.encode())
            stdin.seek(0)
            self._process = subprocess.Popen(  # noqa: S603
                self.argv, stdin=stdin, stdout=output, stderr=output, cwd="/", env=ENVIRONMENT,
                start_new_session=True, preexec_fn=die_with_parent(self.stops[0]), **self.account,
            )  # fmt: skip
        return self._process

    @property
    def pid(self) -> int:
        """Of the process that runs now, or ran last."""
        return self._process.pid if self._process is not None else 0

    def start_and_wait(self) -> None:
        """Start it and wait until it answers. Raises ExecutorError if it ends before, or takes too long."""
        process, give_up = self._start(), time.monotonic() + PATIENCE_S
        while not self.is_ready(process.pid):
            if process.poll() is not None or time.monotonic() > give_up:
                raise self._refusal("did not start")
            time.sleep(0.004)

    def tend(self) -> bool:
        """Start it again if it has ended; whether it was running until now."""
        assert self._process is not None
        if (code := self._process.poll()) is None:
            if self._away_since is not None and self.is_ready(self._process.pid):
                self._away_since = None
            return False
        now, is_news = time.monotonic(), self._away_since is None
        if is_news or code < 0:  # one that somebody kills again and again has not failed to start
            self._away_since = now
        elif now - (self._away_since or now) > PATIENCE_S:
            raise self._refusal("does not come up again")
        if is_news or now >= self._due:
            self._due = now + PAUSE_S
            self._start()
        return is_news

    def stop(self) -> None:
        """End it in order, by force if it takes too long."""
        if self._process is None:
            return
        for stop in (*self.stops, signal.SIGKILL):
            self._process.send_signal(stop)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOPS_WITHIN_S)
                break

    def _refusal(self, fate: str) -> ExecutorError:
        said = self.log.read_text(errors="replace")[-2000:]
        return refusal(f"The embedded {self.name} {fate}: {said}")


def die_with_parent(stop: signal.Signals) -> Callable[[], None] | None:
    """What a child does before it becomes its program: ask the kernel for this signal when its parent is gone."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(DIE_WITH_PARENT, int(stop))
        if os.getppid() != parent:  # gone before we could ask
            os._exit(1)

    return ask


def free_port() -> int:
    """A port nobody listens on, below those that the kernel gives to outgoing connections, so that none gets it."""
    for port in (20000 + secrets.randbelow(12000) for _ in range(50)):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise refusal("No free port for an embedded server was found in 50 attempts.")
