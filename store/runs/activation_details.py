"""One activation of a run, for the page that inspects it: its row, its values with their sizes, and its neighbours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from canvas.ids import ActivationId, RunId, TenantId
from canvas.state.order_key import OrderKey
from store.db.transaction import Transaction
from store.runs.activations import order_key_from_row

MAX_EVENTS = 200  # event numbers, journal entries

DETAILS = text("""
    select level, trail, region, limits, activated_rev, order_key, lease_until, enqueued_at, answers, outcome
    from activations where run_id = :run_id and id = :id
""")
VALUES = text("""
    select inputs, outputs, large from node_values
    where run_id = :run_id and activation_id = :id and node_id = :node_id
""")
CONTAINER_OUTPUTS = text("""
    select v.outputs, v.large
    from node_values v join activations w on w.run_id = v.run_id and w.id = v.activation_id
    where v.run_id = :run_id and v.node_id = :node_id and starts_with(w.scope, :entry)
    order by v.order_key desc limit 1
""")
VARIABLES = text(
    "select name, value, large from variables where run_id = :run_id and activation_id = :id order by name"
)
JOURNAL = text("""
    select key, octet_length(cast(value as text)) from journal
    where run_id = :run_id and activation_id = :id order by key limit :most
""")
EVENTS = text("""
    select number from run_events where run_id = :run_id and activation_id = :id order by number limit :most
""")
SIBLINGS = text("""
    select count(*), count(*) filter (where (order_key, id) < (:order_key, cast(:id as uuid))),
        count(*) filter (where status = 'done' and outcome ->> 'is' = 'Failed')
    from activations where run_id = :run_id and node_id = :node_id
""")
COUNTS = text("""
    select id, cast(outcome ->> 'count' as int) from activations
    where run_id = :run_id and id = any(cast(:ids as uuid[]))
""")
BASELINE_NAMES = text("""
    select array(select json_object_keys(baseline -> 'globals')), array(select json_object_keys(baseline -> 'values'))
    from runs where id = :run_id
""")
BASELINE_GLOBALS = text("select baseline -> 'globals' from runs where tenant_id = :tenant_id and id = :run_id")
VALUE = {
    column: text(f"""
        select {column} -> :name as value, json_typeof({column} -> :name) is not null as exists,
            large -> '{column}' -> :name as file
        from node_values where run_id = :run_id and activation_id = :id and node_id = :node_id
    """)  # noqa: S608 (constants only)
    for column in ("inputs", "outputs")
}
VARIABLE = text("""
    select value, true as exists, large -> 'value' as file from variables
    where run_id = :run_id and activation_id = :id and name = :name
""")

FileRef = Sequence[Any]
"""Where a large value is in the file storage, and the bytes of its JSON (store/files/large_values.py)."""


@dataclass(frozen=True, slots=True)
class StoredValues:
    """Values by name. Those in the file storage are None here and have an entry in `files`."""

    values: Mapping[str, Any]
    files: Mapping[str, FileRef]


@dataclass(frozen=True, slots=True)
class Siblings:
    """The activations of the same node: how many, the position of this one from 0 on, and how many failed."""

    count: int
    index: int
    failed: int


@dataclass(frozen=True, slots=True)
class ActivationDetails:
    """What an activation has beside the row of a list."""

    order_key: OrderKey
    limits: Sequence[tuple[bytes, int]]  # regions and revisions up to which it may read
    lease_until: datetime | None
    answers: Any
    outcome: Mapping[str, Any] | None
    inputs: StoredValues
    outputs: StoredValues
    variables: StoredValues
    journal: Sequence[tuple[str, int]]  # key, bytes; like `events` one more than MAX_EVENTS if there are more
    events: Sequence[int]
    siblings: Siblings


@dataclass(frozen=True, slots=True)
class ValueRef:
    """One value: from its row, or where it is in the file storage."""

    value: Any
    file: FileRef | None


_NOTHING = StoredValues({}, {})


def load_details(
    tx: Transaction, run_id: RunId, activation_id: ActivationId, node_id: str, *, entry: str | None, has_values: bool
) -> ActivationDetails:
    """Return the details of an activation that exists.

    `entry`: of a container that has ended, what the scopes inside of it begin with; its outputs are then those that its
    last item stored. `has_values`: whether values are read, or left empty.
    """
    key = {"run_id": run_id, "id": activation_id}
    found = tx.send(DETAILS, **key)
    values = tx.send(VALUES, **key, node_id=node_id) if has_values else None
    collected = (
        tx.send(CONTAINER_OUTPUTS, run_id=run_id, node_id=node_id, entry=entry) if has_values and entry else None
    )
    variables = tx.send(VARIABLES, **key) if has_values else None
    journal = tx.send(JOURNAL, **key, most=MAX_EVENTS + 1)
    events = tx.send(EVENTS, **key, most=MAX_EVENTS + 1)
    row = found.one_or_none()
    assert row is not None  # the caller has read it in the same snapshot
    (siblings,) = tx.rows(SIBLINGS, **key, node_id=node_id, order_key=row["order_key"])
    order_key = order_key_from_row(row)
    enclosing = [(bytes.fromhex(region), revision) for region, revision in row["limits"] or ()]
    inputs, outputs = _node_values(values.rows() if values is not None else ())
    if collected is not None and (last := collected.rows()):
        outputs = _with_files(last[0].outputs, (last[0].large or {}).get("outputs"))
    return ActivationDetails(
        order_key=order_key,
        limits=(*enclosing, (order_key.region, row["activated_rev"])),
        lease_until=row["lease_until"],
        answers=row["answers"],
        outcome=row["outcome"],
        inputs=inputs,
        outputs=outputs,
        variables=_variables(variables.rows() if variables is not None else ()),
        journal=[(each[0], each[1]) for each in journal.rows()],
        events=[each[0] for each in events.rows()],
        siblings=Siblings(*siblings),
    )


def load_counts(tx: Transaction, run_id: RunId, ids: Sequence[ActivationId]) -> dict[ActivationId, int | None]:
    """Return the number of items of container activations, by id; None for a Loop."""
    return {row[0]: row[1] for row in tx.rows(COUNTS, run_id=run_id, ids=list(ids))} if ids else {}


def load_baseline_names(tx: Transaction, run_id: RunId) -> tuple[set[str], set[str]]:
    """Return the names of the globals that a run began with, and the nodes that had outputs then."""
    rows = tx.rows(BASELINE_NAMES, run_id=run_id)
    return set(rows[0][0]), set(rows[0][1])


def load_baseline_globals(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> dict[str, Any]:
    """Return the globals that a run began with; none if the tenant has no such run."""
    rows = tx.rows(BASELINE_GLOBALS, tenant_id=tenant_id, run_id=run_id)
    return (rows[0][0] if rows else None) or {}


def find_value(
    tx: Transaction, run_id: RunId, activation_id: ActivationId, node_id: str, kind: str, name: str
) -> ValueRef | None:
    """Return one value of an activation; None if it has no such value. `kind`: inputs, outputs or variables."""
    key = {"run_id": run_id, "id": activation_id, "name": name}
    rows = tx.rows(VARIABLE, **key) if kind == "variables" else tx.rows(VALUE[kind], **key, node_id=node_id)
    if not rows or not rows[0].exists:
        return None
    return ValueRef(rows[0].value, rows[0].file if rows[0].value is None else None)


def find_collected_value(tx: Transaction, run_id: RunId, node_id: str, entry: str, name: str) -> ValueRef | None:
    """Return one output of a container that has ended; None if it has no such output."""
    rows = tx.rows(CONTAINER_OUTPUTS, run_id=run_id, node_id=node_id, entry=entry)
    if not rows or name not in rows[0].outputs:
        return None
    stored = _with_files(rows[0].outputs, (rows[0].large or {}).get("outputs"))
    return ValueRef(stored.values[name], stored.files.get(name))


def _node_values(rows: Sequence[Any]) -> tuple[StoredValues, StoredValues]:
    if not rows:
        return _NOTHING, _NOTHING
    inputs, outputs, large = rows[0]
    files = large or {}
    return _with_files(inputs or {}, files.get("inputs")), _with_files(outputs or {}, files.get("outputs"))


def _with_files(values: Mapping[str, Any], files: Mapping[str, FileRef] | None) -> StoredValues:
    """Return values with those files that count: a value in the row counts before a file."""
    return StoredValues(values, {name: file for name, file in (files or {}).items() if values.get(name) is None})


def _variables(rows: Sequence[Any]) -> StoredValues:
    files = {name: large["value"] for name, value, large in rows if large and value is None}
    return StoredValues({name: value for name, value, _ in rows}, files)
