"""The results of fault tests, counted per guarantee."""

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass
class Tally:
    """Counts of one experiment. These must be zero: `lost`, `committed_twice`, `effects_doubled`, `requests_doubled`.

    `lost`: not ended in time, or with another result than without faults. `poisoned`: failed with a reason since three
    workers were killed while they executed one of its nodes; this does not count as lost.
    """

    started: int = 0
    ended: int = 0
    lost: int = 0
    poisoned: int = 0
    committed_twice: int = 0
    effects: int = 0  # that were expected
    effects_doubled: int = 0  # done under two keys, or one key with two bodies
    effects_repeated: int = 0  # repeated under the same key, which the receiver recognises
    requests_doubled: int = 0  # of one Idempotency-Key
    kills: int = 0
    stall: float = 0.0  # seconds; the longest without progress of a run

    @property
    def is_ok(self) -> bool:
        """Whether every guarantee holds."""
        return not (self.lost or self.committed_twice or self.effects_doubled or self.requests_doubled)

    def __add__(self, other: "Tally") -> "Tally":
        both = Tally(stall=max(self.stall, other.stall))
        for name in (field.name for field in fields(self) if field.name != "stall"):
            setattr(both, name, getattr(self, name) + getattr(other, name))
        return both


def table(rows: Mapping[str, Tally]) -> str:
    """Format all tallies as lines, with their sum if there are several."""
    shown = {**rows, "all": sum(rows.values(), Tally())} if len(rows) > 1 else rows
    widest = max(map(len, shown))
    names = [field.name for field in fields(Tally)]
    head = " " * widest + "".join(f"  {name.replace('_', ' ')}" for name in names)
    lines = [
        f"{row:<{widest}}" + "".join(f"  {_cell(getattr(tally, name)):>{len(name)}}" for name in names)
        + ("" if tally.is_ok else "  BROKEN")
        for row, tally in shown.items()
    ]  # fmt: skip
    return "\n".join((head, *lines))


def _cell(value: float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)
