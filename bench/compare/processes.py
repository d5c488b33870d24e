"""Processes of a measurement, and deadlines.

Each process has its own session, so that its CPU time can be counted and Ctrl-C does not reach it.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from embedded import die_with_parent

STOP_TIMEOUT = 5.0  # seconds before a process is killed; its remaining work is not needed


class Process:
    """A running process. Start it from the main thread: the kernel ends it when that thread ends."""

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603 (ours)
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=die_with_parent(signal.SIGTERM),
            )  # fmt: skip

    @property
    def session(self) -> int:
        """The session of the process and its children."""
        return self._popen.pid

    def assert_running(self) -> None:
        """Raise RuntimeError with the end of the log if the process has ended."""
        if self._popen.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"The {self.name} has ended. The end of its log:\n{tail}")

    def kill(self) -> None:
        """Kill the process and its children, as the kernel does when it is out of memory."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._popen.poll() is None:
            self._popen.terminate()

    def stop(self) -> None:
        """Stop the process, by force if it takes too long."""
        self.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(STOP_TIMEOUT)
        self.kill()


def stop_all(processes: Sequence[Process]) -> None:
    """Stop processes in parallel."""
    for process in processes:
        process.terminate()
    for process in processes:
        process.stop()


class Deadline:
    """A deadline in seconds without progress; `reset` starts it again."""

    def __init__(self, seconds: float, problem: str) -> None:
        self._seconds, self._problem = seconds, problem
        self._ends = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether there was no progress for that many seconds."""
        return time.monotonic() > self._ends

    def reset(self) -> None:
        """Note progress and start the seconds again."""
        self._ends = time.monotonic() + self._seconds

    def check(self) -> None:
        """Raise TimeoutError if the deadline is over."""
        if self.is_over:
            raise TimeoutError(self._problem)
