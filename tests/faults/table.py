"""What came of runs that were disturbed, counted in the words of the promise."""

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass
class Tally:
    """Counts of one experiment. What must be zero is `lost`, `committed_twice`, `effects_doubled`, `requests_doubled`.

    `lost`: not ended by itself in its time, or ended in another way than undisturbed. `struck`: failed since three
    workers were killed under one of its nodes: told, with its reason, and so not lost, but no fault of its own either.
    """

    started: int = 0
    ended: int = 0
    lost: int = 0
    struck: int = 0
    committed_twice: int = 0
    effects: int = 0  # that were wanted
    effects_doubled: int = 0  # done under two keys, or one key with two bodies
    effects_repeated: int = 0  # came again under the same key, for the receiver to recognise
    requests_doubled: int = 0  # of one Idempotency-Key
    kills: int = 0
    stall: float = 0.0  # seconds; the longest in which a run that could move did not

    @property
    def is_kept(self) -> bool:
        """Whether every promise was."""
        return not (self.lost or self.committed_twice or self.effects_doubled or self.requests_doubled)

    def __add__(self, other: "Tally") -> "Tally":
        both = Tally(stall=max(self.stall, other.stall))
        for name in (it.name for it in fields(self) if it.name != "stall"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both


def table(rows: Mapping[str, Tally]) -> str:
    """All tallies below each other, and their sum if there are several."""
    shown = {**rows, "all": sum(rows.values(), Tally())} if len(rows) > 1 else rows
    widest = max(map(len, shown))
    names = [it.name for it in fields(Tally)]
    head = " " * widest + "".join(f"  {name.replace('_', ' ')}" for name in names)
    lines = [
        f"{row:<{widest}}" + "".join(f"  {_cell(getattr(tally, name)):>{len(name)}}" for name in names)
        + ("" if tally.is_kept else "  BROKEN")
        for row, tally in shown.items()
    ]  # fmt: skip
    return "\n".join((head, *lines))


def _cell(value: float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
