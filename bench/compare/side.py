"""The interface of both sides of a comparison: start runs, wait for their end, kill and restart processes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

CONTROL, EASEL = "control", "easel"  # names of the control, and of Easel as it is by default
LOCAL, COORDINATOR = "local", "coordinator"  # names of Easel with other settings
MODES: Mapping[str, Mapping[str, str]] = {
    EASEL: {"EASEL_CONTINUE_LOCALLY_FOR": "0", "EASEL_INLINE_ADVANCE": "true"},
    LOCAL: {"EASEL_CONTINUE_LOCALLY_FOR": "5s", "EASEL_INLINE_ADVANCE": "true"},
    COORDINATOR: {"EASEL_CONTINUE_LOCALLY_FOR": "0", "EASEL_INLINE_ADVANCE": "false"},
}
"""The ways in which ready nodes are dispatched and runs are advanced, each a side: its settings.

By default each ready node is a task message, and the worker that reports advances the run. `local`: a worker thread
continues with the run. `coordinator`: only the scheduler's task advances runs.
"""
MODE_TITLES: Mapping[str, str] = {EASEL: "Easel", LOCAL: "local continuation", COORDINATOR: "coordinator only"}


@dataclass(frozen=True, slots=True)
class RunWork:
    """The work of one run: a chain of `size` nodes, or a fan-out of `size` nodes between a first node and a join."""

    size: int
    is_fan: bool = False
    wait_ms: int = 0  # of each node of a chain, or each branch
    has_large_output: bool = False

    @property
    def nodes(self) -> int:
        """The number of nodes of a run."""
        return self.size + 2 if self.is_fan else self.size


class Side(Protocol):
    """One of the sides of a comparison. Its processes run from `start` to `stop`."""

    name: str

    @property
    def sessions(self) -> Collection[int]:
        """The sessions of the processes, by which their CPU time is counted."""
        ...

    def pause(self) -> None:
        """Stop the processes if they would disturb another side; `start` starts them again."""
        ...

    def start(self, work: RunWork, *, is_safe: bool = False) -> None:
        """Start processes for this work. `is_safe`: they will be killed and are configured for that."""
        ...

    def start_runs(self, work: RunWork, runs: int) -> Sequence[str]:
        """Start runs; return their ids."""
        ...

    def await_end(self, runs: Sequence[str], timeout: float) -> int:
        """Wait until a user would see these runs end, or until none has progressed for `timeout` seconds.

        Returns the number of runs that have ended.
        """
        ...

    def commit_times(self, runs: Sequence[str]) -> Sequence[float]:
        """Return the times at which nodes were committed, ascending; a node that was committed twice counts once."""
        ...

    def count_committed_twice(self, runs: Sequence[str]) -> int:
        """Return the number of nodes whose result was committed more than once."""
        ...

    def kill(self) -> None:
        """Kill all processes."""
        ...

    def restart(self) -> None:
        """Start killed processes again."""
        ...

    def stop(self) -> None:
        """Stop all processes in order."""
        ...
