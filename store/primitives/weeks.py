"""The weeks that runs lie in: a run's id is a UUIDv7, so a week of ids is a range of ids."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from store.primitives.ids import first_id_at, moment_of

_NAME = re.compile(r"(\d{4})w(\d{2})")


@dataclass(frozen=True, slots=True, order=True)
class Week:
    """An ISO week in UTC."""

    year: int
    number: int

    @classmethod
    def of(cls, moment: datetime) -> "Week":
        """The week a moment lies in."""
        year, number, _ = moment.astimezone(UTC).isocalendar()
        return cls(year, number)

    @classmethod
    def of_run(cls, run_id: UUID) -> "Week":
        """The week a run lies in; the last one of all for an id beyond it (of an earlier release, and no UUIDv7)."""
        try:
            return min(cls.of(moment_of(run_id)), cls(9999, 51))
        except OverflowError:
            return cls(9999, 51)

    @classmethod
    def named(cls, name: str) -> "Week | None":
        """The inverse of `name`; None for what names no week."""
        match = _NAME.fullmatch(name)
        try:
            return cls(*date.fromisocalendar(int(match[1]), int(match[2]), 1).isocalendar()[:2]) if match else None
        except ValueError:
            return None

    @property
    def name(self) -> str:
        """2026w47."""
        return f"{self.year}w{self.number:02}"

    @property
    def begins(self) -> datetime:
        """Monday, midnight."""
        return datetime.combine(date.fromisocalendar(self.year, self.number, 1), time(), UTC)

    @property
    def first(self) -> UUID:
        """No run of the week has a smaller id."""
        return first_id_at(self.begins)

    @property
    def end(self) -> UUID:
        """Every run of the week has a smaller id."""
        return first_id_at(self.ends) if (self.year, self.number) != (9999, 51) else UUID(int=(1 << 128) - 1)

    @property
    def ends(self) -> datetime:
        """The next Monday, midnight: no longer part of it."""
        return self.begins + timedelta(weeks=1)

    def partition(self, table: str) -> str:
        """The name of a table's partition."""
        return f"{table}_p{self.name}"
