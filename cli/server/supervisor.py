"""Child processes: restarted when they end, and stopped in order when this process stops.

A child that was killed, that had come up, or that exits with code 75 is restarted at once, however often that happens.
A child that fails to start is retried at growing intervals. These stay short, since it may only wait for a server that
is restarting.

Each child logs to its own file. Each has its own session, so that the terminal's Ctrl-C reaches this process only. If
this process is killed, the kernel ends the children (on Linux).
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

MIN_PAUSE = 0.2  # seconds before a child that was killed, or had come up, is restarted
MAX_PAUSE = 5.0  # longest pause in seconds before a child that fails to start is retried
STARTED_AFTER = 5.0  # seconds after which a child counts as started, even if it ends then
MAX_FAILED_STARTS = 3  # failed starts in a row after which `easel up` gives up
STOP_TIMEOUT = 20.0  # seconds that a child may take to stop
MAX_LOG_BYTES = 10 * 1024 * 1024  # bytes; a larger log is renamed at the next start


@dataclass
class ChildProcess:
    """A supervised program.

    Call `ensure_running` from the main thread: the kernel ends a child when its parent thread ends.
    """

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    log: Path
    starts: int = 0
    failures: int = 0  # failed starts in a row
    _process: "subprocess.Popen[bytes] | None" = None
    _started: float = 0.0
    _due: float = 0.0

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def ensure_running(self) -> None:
        """Start the program if it does not run and its pause is over."""
        if self.is_running:
            return
        now = time.monotonic()
        if self._process is not None:
            self._note_end(self._process.returncode, now)
            self._process = None
        if now >= self._due:
            self._start(now)

    def raise_if_failing(self) -> None:
        """Raise ExecutorError with the end of its log if it has failed to start `MAX_FAILED_STARTS` times."""
        if self.failures >= MAX_FAILED_STARTS and not self.is_running:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ExecutorError(f"The {self.name} does not start. The end of {self.log}:\n{tail}")

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Stop the program; kill it if it takes too long."""
        if self._process is None:
            return
        self.terminate()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _note_end(self, code: int, now: float) -> None:
        has_come_up = code < 0 or code == os.EX_TEMPFAIL or now - self._started > STARTED_AFTER
        self.failures = 0 if has_come_up else self.failures + 1
        self._due = now + min(MIN_PAUSE * 2 ** min(self.failures, 10), MAX_PAUSE)
        end = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        output.print_message(f"the {self.name} {end} and is restarted; see {self.log}", YELLOW)

    def _start(self, now: float) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
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


def stop_all(first: ChildProcess, *others: ChildProcess) -> None:
    """Stop the child that accepts new work first, then all others together."""
    first.stop()
    for child in others:
        child.terminate()
    for child in others:
        child.stop()
