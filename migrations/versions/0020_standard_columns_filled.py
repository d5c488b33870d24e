"""Fill the columns of revision 0019 in the rows of before, require them, and index them instead of the former ones.

Rows are filled some pages at a time, so that no transaction holds many rows of running runs. Then each partition gets a
constraint that PostgreSQL verifies beside the traffic; because of it, requiring the columns reads no rows. Every row
has its values when the constraint is added: rows of before are filled, and the triggers of 0019 fill all others.
"""

from collections.abc import Iterator, Mapping, Sequence

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

PAGES = 2000  # of 8 KB; what one transaction fills
SIZES = sa.text("""
    select inhrelid::regclass::text as name, pg_relation_size(inhrelid) / current_setting('block_size')::int as pages
    from pg_inherits where inhparent = to_regclass(:parent)
""")
FILL: Mapping[str, tuple[str, str]] = {  # table: what to set, in which rows
    "runs": (
        "rules_version = engine, cancel_requested = asked is not null, open_stream = turn, baseline = base",
        "rules_version is null",
    ),
    "activations": (
        "order_key = place, level = wave, crash_count = strikes, cancel_requested = called_off,"
        " enqueued_at = hinted_at, stream_id = turn, applied_rev = folded_rev",
        "order_key is null",
    ),
    "node_values": ("container_entry = pass_of, order_key = place", "order_key is null"),
    "variables": ("order_key = place", "order_key is null"),
    "turns": (
        "writer = speaker, retained_length = keep",
        "writer is distinct from speaker or retained_length <> keep",
    ),
}
REQUIRED: Mapping[str, Sequence[str]] = {
    "runs": ("rules_version", "baseline"),
    "activations": ("order_key", "level"),
    "node_values": ("container_entry", "order_key"),
    "variables": ("order_key",),
}
BEGINNING = "substr(order_key, 1, 1024)"
INDEXES = (  # table, the index that goes, the index that comes, columns, condition
    ("activations", "ix_activations_ready", "ix_activations_enqueued", "enqueued_at", " where status = 'ready'"),
    (
        "activations",
        "ix_activations_queued_place",
        "ix_activations_queued_order_key",
        f"run_id, {BEGINNING}",
        " where status = 'queued'",
    ),
    ("node_values", "ix_node_values_place", "ix_node_values_order_key", f"run_id, node_id, {BEGINNING}", ""),
    ("variables", "ix_variables_place", "ix_variables_order_key", f"run_id, name, {BEGINNING}", ""),
)


def prepare(connection: sa.Connection) -> list[str]:
    """Return statements that fill, check and index each partition, the weeks that are no longer written to first."""
    partitions = [
        (partition.removeprefix(table), table, partition, pages)
        for table in FILL
        for partition, pages in connection.execute(SIZES, {"parent": table}).all()
    ]
    partitions.sort(key=lambda each: (each[0] == "_default", each[0], each[1]))
    return [
        statement
        for _, table, partition, pages in partitions
        for statement in (
            *_fill_partition(table, partition, pages),
            *_check_partition(table, partition),
            *_index_partition(table, partition),
        )
    ]


def _fill_partition(table: str, partition: str, pages: int) -> Iterator[str]:
    values, missing = FILL[table]
    for first in range(0, pages - PAGES, PAGES):
        within = f"ctid >= '({first},0)' and ctid < '({first + PAGES},0)'"
        yield _fill(partition, values, f"{within} and ({missing})")
    yield _fill(partition, values, missing)  # what is left, and rows that have moved meanwhile


def _fill(table: str, values: str, missing: str) -> str:
    return f"update {table} set {values} where {missing}"  # noqa: S608 (constants and names of tables only)


def _check_partition(table: str, partition: str) -> Iterator[str]:
    if table in REQUIRED:
        check = " and ".join(f"{column} is not null" for column in REQUIRED[table])
        yield f"alter table {partition} drop constraint if exists {_check_name(partition)}"
        yield f"alter table {partition} add constraint {_check_name(partition)} check ({check}) not valid"
        yield f"alter table {partition} validate constraint {_check_name(partition)}"


def _check_name(partition: str) -> str:
    return f"ck_{partition}_filled"


def _index_partition(table: str, partition: str) -> Iterator[str]:
    for of, _, name, columns, condition in INDEXES:
        if of == table:
            suffix = name.removeprefix(f"ix_{table}")
            yield f"create index if not exists ix_{partition}{suffix} on {partition} ({columns}){condition}"


def upgrade() -> None:
    for table, (values, missing) in FILL.items():  # before the locks; a prepared table has no such row
        op.execute(_fill(table, values, missing))
    # all locks at once: a weak lock that is upgraded later could deadlock with a writer
    op.execute(f"lock table {', '.join(FILL)} in access exclusive mode")
    for table, columns in REQUIRED.items():
        required = ", ".join(f"alter column {column} set not null" for column in columns)
        op.execute(f"alter table {table} {required}")
        for partition, _ in op.get_bind().execute(SIZES, {"parent": table}).all():
            op.execute(f"alter table {partition} drop constraint if exists {_check_name(partition)}")
    for table, _, name, columns, condition in INDEXES:
        op.execute(f"create index {name} on {table} ({columns}){condition}")
    for _, former, _, _, _ in INDEXES:
        op.execute(f"drop index {former}")
