"""Processes that belong to this one: started again when they end, and stopped in order when we do.

One that was killed, had come up, or asks for it (exit code 75) is back at once, however often that happens; one that
fails to start is tried at growing intervals, which stay short, since it may only wait for a server that comes back.

They write to files of their own. A session of its own keeps the terminal's Ctrl-C from a child, since it is meant for
us; should we be killed, the kernel ends them (on Linux).
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from canvas.errors import ExecutorError
from cli.shell import output
from cli.shell.output import YELLOW
from embedded import die_with_parent

PAUSE = 0.2  # seconds before a child that was killed, or had come up, is started again
LONGEST_PAUSE = 5.0  # seconds before one that fails to start is tried again
SETTLED = 5.0  # seconds after which a child that ends has not failed to start
STARTS = 3  # attempts of a child to come up at all
PATIENCE = 20.0  # seconds for a child to stop
LARGEST_LOG = 10 * 1024 * 1024  # bytes; a larger one is put aside at the next start


@dataclass
class Child:
    """A program that shall run. `tend` it from the main thread: the kernel's promise is bound to that thread."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    log: Path
    starts: int = 0
    failures: int = 0  # to start, one after another
    _process: "subprocess.Popen[bytes] | None" = None
    _started: float = 0.0
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
            self._note_end(self._process.returncode, now)
            self._process = None
        if now >= self._due:
            self._start(now)

    def must_come_up(self) -> None:
        """Raises ExecutorError with the end of its log if it has failed to start again and again."""
        if self.failures >= STARTS and not self.is_running:
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

    def _note_end(self, code: int, now: float) -> None:
        has_come_up = code < 0 or code == os.EX_TEMPFAIL or now - self._started > SETTLED
        self.failures = 0 if has_come_up else self.failures + 1
        self._due = now + min(PAUSE * 2 ** min(self.failures, 10), LONGEST_PAUSE)
        fate = f"was ended by signal {-code}" if code < 0 else f"has ended with code {code}"
        output.tell(f"the {self.name} {fate} and is started again; see {self.log}", YELLOW)

    def _start(self, now: float) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.log.exists() and self.log.stat().st_size > LARGEST_LOG:
            self.log.replace(self.log.with_suffix(".log.1"))
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._process = subprocess.Popen(  # noqa: S603
                self.argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor,
                start_new_session=True, preexec_fn=die_with_parent(signal.SIGTERM),
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
