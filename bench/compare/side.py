"""What both sides of a comparison can do: start runs of some work, tell when they are over, and be killed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

CONTROL, EASEL = "control", "easel"  # names of the two sides


@dataclass(frozen=True, slots=True)
class Work:
    """What one run does. A chain of `size` nodes, or a fan of `size` between a first node and a join."""

    size: int
    is_fan: bool = False
    wait_ms: int = 0  # of each node, or each branch
    has_large_output: bool = False

    @property
    def nodes(self) -> int:
        """Nodes of a run."""
        return self.size + 2 if self.is_fan else self.size


class Side(Protocol):
    """One of the two that are compared; its processes run from `start` to `stop`."""

    name: str

    @property
    def sessions(self) -> Collection[int]:
        """Sessions of its processes, for their CPU."""
        ...

    def start(self, work: Work, *, is_safe: bool = False) -> None:
        """Have processes that can do this work. `is_safe`: they are to be killed, and set up for that."""
        ...

    def begin(self, work: Work, runs: int) -> Sequence[str]:
        """Start runs; their ids."""
        ...

    def await_end(self, runs: Sequence[str], patience: float) -> int:
        """Wait until these runs are over as their user sees it, or nothing has moved for so long; how many are."""
        ...

    def committed(self, runs: Sequence[str]) -> Sequence[float]:
        """When each of their nodes was committed, ascending; one that was committed twice counts once."""
        ...

    def committed_twice(self, runs: Sequence[str]) -> int:
        """Nodes of theirs whose result was committed more than once."""
        ...

    def kill(self) -> None:
        """End all its processes at once."""
        ...

    def restart(self) -> None:
        """Start again what was killed."""
        ...

    def stop(self) -> None:
        """End its processes in order."""
        ...
