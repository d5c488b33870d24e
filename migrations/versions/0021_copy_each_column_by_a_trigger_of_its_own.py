"""Copy each column that has a former name by a trigger of its own.

The triggers of revision 0019 examined, and copied, all columns of a table with each change. A statement that applies a
report sets two of the five such columns of `activations`; now it pays for these two only. The next release drops the
triggers (docs/decisions/0055-columns-are-renamed-in-two-releases.md).
"""

from collections.abc import Iterator, Mapping, Sequence

from alembic import op

revision = "0021"
down_revision = "0020"

COLUMNS: Mapping[str, Sequence[tuple[str, str]]] = {  # (former name, name)
    "runs": (("asked", "cancel_requested"), ("turn", "open_stream")),
    "activations": (
        ("strikes", "crash_count"),
        ("called_off", "cancel_requested"),
        ("hinted_at", "enqueued_at"),
        ("turn", "stream_id"),
        ("folded_rev", "applied_rev"),
    ),
    "turns": (("speaker", "writer"), ("keep", "retained_length")),
}
VALUES: Mapping[tuple[str, str], str] = {  # (column that is set, column it is copied to), where the types differ
    ("asked", "cancel_requested"): "new.asked is not null",
    ("cancel_requested", "asked"): "case when new.cancel_requested then 'cancel' end",
}


def upgrade() -> None:
    # all locks at once: a weak lock that is upgraded later could deadlock with a writer
    op.execute(f"lock table {', '.join(COLUMNS)} in access exclusive mode")
    for table, columns in COLUMNS.items():
        for joint in (f"{table}_to_former", f"{table}_from_former"):
            op.execute(f"drop trigger {joint} on {table}")
            op.execute(f"drop function {joint}()")
        for source, target in _directions(columns):
            _copy(table, source, target)


def _directions(columns: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for former, name in columns:
        yield name, former
        yield former, name


def _copy(table: str, source: str, target: str) -> None:
    """Copy a column whenever a statement that sets it changes it."""
    function = f"{table}_{source}_to_{target}"
    value = VALUES.get((source, target), f"new.{source}")
    op.execute(
        f"create function {function}() returns trigger language plpgsql as $$ begin"
        f" new.{target} := {value}; return new; end $$"
    )
    op.execute(
        f"create trigger {function} before update of {source} on {table} for each row"
        f" when (new.{source} is distinct from old.{source}) execute function {function}()"
    )
