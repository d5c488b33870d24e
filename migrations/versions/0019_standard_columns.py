"""Add columns with the words of docs/glossary.md beside those with a former name, and triggers that keep both equal.

The previous release reads and writes the former names until its last process has ended. So a row that one release
writes must be complete for the other one: a trigger fills in the other names of a new row, and two copy changes, one
in each direction. Which of the two fires depends on the columns that a statement sets. Revision 0020 fills the rows of
before. The next release drops the triggers and the former columns
(docs/decisions/0055-columns-are-renamed-in-two-releases.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alembic import op

revision = "0019"
down_revision = "0018"


@dataclass(frozen=True)
class Renamed:
    """A column under both names. `is_fixed`: no release changes it after the row was inserted."""

    former: str
    name: str
    type: str  # of the new column
    is_fixed: bool = False
    is_comparable: bool = True

    @property
    def from_former(self) -> str:
        """Return SQL for the value of the new column."""
        return "new.asked is not null" if self.former == "asked" else f"new.{self.former}"

    @property
    def to_former(self) -> str:
        """Return SQL for the value of the former column."""
        return "case when new.cancel_requested then 'cancel' end" if self.former == "asked" else f"new.{self.name}"


COUNT, FLAG = "integer not null default 0", "boolean not null default false"
COLUMNS: Mapping[str, Sequence[Renamed]] = {
    "runs": (
        Renamed("engine", "rules_version", "integer", is_fixed=True),
        Renamed("asked", "cancel_requested", FLAG),
        Renamed("turn", "open_stream", "uuid"),
        Renamed("base", "baseline", "json", is_comparable=False),
    ),
    "activations": (
        Renamed("place", "order_key", "bytea", is_fixed=True),
        Renamed("wave", "level", "integer", is_fixed=True),
        Renamed("strikes", "crash_count", COUNT),
        Renamed("called_off", "cancel_requested", FLAG),
        Renamed("hinted_at", "enqueued_at", "timestamptz"),
        Renamed("turn", "stream_id", "uuid"),
        Renamed("folded_rev", "applied_rev", "integer"),
    ),
    "node_values": (
        Renamed("pass_of", "container_entry", "text", is_fixed=True),
        Renamed("place", "order_key", "bytea", is_fixed=True),
    ),
    "variables": (Renamed("place", "order_key", "bytea", is_fixed=True),),
    "turns": (Renamed("speaker", "writer", "uuid"), Renamed("keep", "retained_length", COUNT)),
}
BY_PREVIOUS_RELEASE = {
    "runs": "new.rules_version is null",
    "activations": "new.order_key is null",
    "node_values": "new.order_key is null",
    "variables": "new.order_key is null",
    "turns": "new.keep > new.retained_length or new.speaker is not null",
}
"""Whether the previous release has inserted a row. A row of `turns` without lease and length is the same in both."""


def upgrade() -> None:
    # all locks at once: a weak lock that is upgraded later could deadlock with a writer
    op.execute(f"lock table {', '.join(COLUMNS)} in access exclusive mode")
    for table, columns in COLUMNS.items():
        added = ", ".join(f"add column {each.name} {each.type}" for each in columns)
        op.execute(f"alter table {table} {added}")
        _fill_new_rows(table, columns)
        changing = [each for each in columns if not each.is_fixed]
        for part in ([c for c in changing if c.is_comparable], [c for c in changing if not c.is_comparable]):
            if part:
                _copy_changes(table, part)


def _fill_new_rows(table: str, columns: Sequence[Renamed]) -> None:
    name = f"{table}_former_names"
    from_former = " ".join(f"new.{each.name} := {each.from_former};" for each in columns)
    to_former = " ".join(f"new.{each.former} := {each.to_former};" for each in columns)
    _function(name, f"if {BY_PREVIOUS_RELEASE[table]} then {from_former} else {to_former} end if;")
    op.execute(f"create trigger {name} before insert on {table} for each row execute function {name}()")


def _copy_changes(table: str, columns: Sequence[Renamed]) -> None:
    suffix = "" if columns[0].is_comparable else f"_{columns[0].name}"
    directions = (
        (f"{table}_to_former{suffix}", [(each.name, each.former, each.to_former) for each in columns]),
        (f"{table}_from_former{suffix}", [(each.former, each.name, each.from_former) for each in columns]),
    )
    for name, copies in directions:
        _function(name, " ".join(f"new.{target} := {value};" for _, target, value in copies))
        names = ", ".join(source for source, _, _ in copies)
        differs = " or ".join(f"new.{source} is distinct from old.{source}" for source, _, _ in copies)
        condition = f" when ({differs})" if columns[0].is_comparable else ""
        op.execute(
            f"create trigger {name} before update of {names} on {table}"
            f" for each row{condition} execute function {name}()"
        )


def _function(name: str, body: str) -> None:
    op.execute(f"create function {name}() returns trigger language plpgsql as $$ begin {body} return new; end $$")
