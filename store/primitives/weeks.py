"""ISO weeks, by which runs are partitioned: a run's id is a UUIDv7, so a week of runs is a range of ids."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from canvas.ids import RunId
from store.primitives.ids import created_at_of, first_id_at

_NAME = re.compile(r"(\d{4})w(\d{2})")


@dataclass(frozen=True, slots=True, order=True)
class Week:
    """An ISO week in UTC."""

    year: int
    number: int

    @classmethod
    def of(cls, moment: datetime) -> "Week":
        """Return the week that contains a moment."""
        year, number, _ = moment.astimezone(UTC).isocalendar()
        return cls(year, number)

    @classmethod
    def of_run(cls, run_id: RunId) -> "Week":
        """Return the week of a run; the last week of all for a later id (of an earlier release, not a UUIDv7)."""
        try:
            return min(cls.of(created_at_of(run_id)), cls(9999, 51))
        except OverflowError:
            return cls(9999, 51)

    @classmethod
    def from_name(cls, name: str) -> "Week | None":
        """Return the week with a name (`2026w47`); None if it is not the name of a week."""
        match = _NAME.fullmatch(name)
        try:
            return cls(*date.fromisocalendar(int(match[1]), int(match[2]), 1).isocalendar()[:2]) if match else None
        except ValueError:
            return None

    @property
    def name(self) -> str:
        """Return the name of the week: 2026w47."""
        return f"{self.year}w{self.number:02}"

    @property
    def begins_at(self) -> datetime:
        """Return Monday 00:00 UTC, which is part of the week."""
        return datetime.combine(date.fromisocalendar(self.year, self.number, 1), time(), UTC)

    @property
    def first_id(self) -> UUID:
        """Return the lower bound of the ids of the week's runs."""
        return first_id_at(self.begins_at)

    @property
    def end_id(self) -> UUID:
        """Return the upper bound of the ids of the week's runs; not part of the week."""
        return first_id_at(self.ends_at) if (self.year, self.number) != (9999, 51) else UUID(int=(1 << 128) - 1)

    @property
    def ends_at(self) -> datetime:
        """Return the next Monday 00:00 UTC, which is not part of the week."""
        return self.begins_at + timedelta(weeks=1)

    def partition(self, table: str) -> str:
        """Return the name of a table's partition for the week."""
        return f"{table}_p{self.name}"
