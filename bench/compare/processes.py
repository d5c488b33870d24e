"""Programs of a measurement: each in a session of its own, so that its CPU can be told apart and ^C is ours alone."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from embedded import die_with_parent

STOPS_WITHIN = 5.0  # seconds; nothing that they still do is wanted


class Process:
    """A running program. To be started from the main thread: the kernel ends it should that thread be gone."""

    def __init__(self, name: str, argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603 (ours)
                argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, preexec_fn=die_with_parent(signal.SIGTERM),
            )  # fmt: skip

    @property
    def session(self) -> int:
        """The session that it and its children are in."""
        return self._popen.pid

    def must_run(self) -> None:
        """Raises RuntimeError with the end of its log if it has ended."""
        if self._popen.poll() is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise RuntimeError(f"The {self.name} has ended. The end of its log:\n{tail}")

    def kill(self) -> None:
        """End it and its children at once, as the kernel would that is out of memory."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def ask_to_stop(self) -> None:
        """Tell it to end."""
        if self._popen.poll() is None:
            self._popen.terminate()

    def stop(self) -> None:
        """Have it end, by force if it takes too long."""
        self.ask_to_stop()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(STOPS_WITHIN)
        self.kill()


def stop_all(processes: Sequence[Process]) -> None:
    """Stop them side by side."""
    for process in processes:
        process.ask_to_stop()
    for process in processes:
        process.stop()


class Deadline:
    """Seconds that something may take while nothing moves; whoever sees progress begins them anew."""

    def __init__(self, seconds: float, problem: str) -> None:
        self._seconds, self._problem = seconds, problem
        self._ends = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether nothing has moved for so long."""
        return time.monotonic() > self._ends

    def moves(self) -> None:
        """Something has moved."""
        self._ends = time.monotonic() + self._seconds

    def check(self) -> None:
        """Raises TimeoutError once it is over."""
        if self.is_over:
            raise TimeoutError(self._problem)
