"""Processes that belong to this one: started again when they end, and stopped in order when we do.

They write to files of their own. A session of its own keeps the terminal's Ctrl-C from a child, since it is meant for
us; should we be killed, the kernel ends them (on Linux).
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canvas.errors import ExecutorError
from cli import output
from cli.output import YELLOW

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before a child that has ended is started again
SETTLED = 60.0  # seconds after which a child that ends has not failed to start
STARTS = 3  # attempts of a child to come up at all
PATIENCE = 20.0  # seconds for a child to stop
LARGEST_LOG = 10 * 1024 * 1024  # bytes; a larger one is put aside at the next start
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@dataclass
class Child:
    """A program that shall run. `tend` it from the main thread: the kernel's promise is bound to that thread."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    log: Path
    starts: int = 0
    _process: "subprocess.Popen[bytes] | None" = None
    _started: float = 0.0
    _pause: float = FIRST_PAUSE
    _due: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.poll() is None

    def tend(self) -> None:
        """Start it if it does not run and its pause is over."""
        if self.is_running:
            return
        now = time.monotonic()
        if self._process is not None:
            lasted, self._process = now - self._started, None
            self._pause = FIRST_PAUSE if lasted > SETTLED else min(2 * self._pause, LONGEST_PAUSE)
            self._due = now + self._pause
            output.tell(f"the {self.name} has ended and is started again; see {self.log}", YELLOW)
        if now >= self._due:
            self._start(now)

    def must_come_up(self) -> None:
        """Raises ExecutorError with the end of its log if it has ended again and again."""
        if self.starts >= STARTS and not self.is_running:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ExecutorError(f"The {self.name} does not start. The end of {self.log}:\n{tail}")

    def ask_to_stop(self) -> None:
        """Tell it to end."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Have it end, by force if it takes too long."""
        if self._process is None:
            return
        self.ask_to_stop()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self, now: float) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            self.log.replace(self.log.with_suffix(".log.1"))
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(  # noqa: S603
                self.argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor,
                start_new_session=True, preexec_fn=_die_with_parent(),
            )  # fmt: skip
        finally:
            os.close(descriptor)
        self._started = now
        self.starts += 1


def stop_all(first: Child, *others: Child) -> None:
    """Stop the one that takes in new work, then all others together."""
    first.stop()
    for child in others:
        child.ask_to_stop()
    for child in others:
        child.stop()


def _die_with_parent() -> Callable[[], None] | None:
    """What a child does before it becomes its program: ask the kernel for SIGTERM when we are gone."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(DIE_WITH_PARENT, int(signal.SIGTERM))
        if os.getppid() != parent:  # gone before we could ask
            os._exit(1)

    return ask
