"""What a comparison has given so far."""

from dataclasses import dataclass, field

from bench.compare.workloads import Figures, Workload

CONTROL, EASEL = "control", "easel"


@dataclass
class Played:
    """A workload and its figures: those of one repetition stand at the same place of both sides' lists."""

    workload: Workload
    figures: dict[str, list[Figures]] = field(default_factory=lambda: {CONTROL: [], EASEL: []})
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether there is something to compare."""
        return not self.problem and bool(self.figures[EASEL])
