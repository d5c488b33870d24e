"""The events of a run: appended by an advance, in order and without gaps; read from a number on.

`node_finished` and `workflow_finished` show values that have rows of their own; reading an event joins them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, insert, text

from canvas.events.run_events import Event
from canvas.ids import ActivationId, RunId
from store.db.transaction import Transaction
from store.primitives.json_codec import encode
from store.tables.runs import run_events

_COLUMNS = ("run_id", "number", "event", "activation_id", "node_id", "body")
MAX_SINGLE_ROWS = 4  # events of one advance; most have two or three
APPEND_BATCH = 500

APPEND = insert(run_events)
APPEND_SOME = [  # one statement for each number of events from two on
    insert(run_events).values(
        [{name: bindparam(f"{name}_{at}", type_=run_events.c[name].type) for name in _COLUMNS} for at in range(count)]
    )
    for count in range(2, MAX_SINGLE_ROWS + 1)
]
APPEND_MANY = text("""
    insert into run_events (run_id, number, event, activation_id, node_id, body)
    select :run_id, u.number, u.event, u.activation_id, u.node_id, cast(u.body as json)
    from unnest(cast(:number as int[]), cast(:event as text[]), cast(:activation_id as uuid[]),
        cast(:node_id as text[]), cast(:body as text[])) as u(number, event, activation_id, node_id, body)
""")

AFTER = text("""
    select e.number, e.event, e.activation_id, e.node_id, e.body, e.created_at, v.inputs, v.outputs, v.large
    from run_events e
    left join node_values v
      on v.run_id = e.run_id and v.activation_id = e.activation_id and v.node_id = e.node_id
     and e.event in ('node_finished', 'workflow_finished')
    where e.run_id = :run_id and e.number > :after and e.number <= :upto
    order by e.number limit :most
""")


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event as it is stored, with the values that it shows."""

    number: int
    name: str
    activation: ActivationId | None
    node_id: str | None
    body: Mapping[str, Any]
    created_at: datetime
    inputs: Mapping[str, Any] | None
    outputs: Mapping[str, Any] | None


def append(tx: Transaction, run_id: RunId, first: int, events: Sequence[Event]) -> None:
    """Append events under the run's lock; `first` is the number of the first one."""
    rows: list[dict[str, Any]] = [
        {
            "run_id": run_id,
            "number": first + offset,
            "event": event.name,
            "activation_id": event.activation,
            "node_id": event.node_id,
            "body": dict(event.body),
        }
        for offset, event in enumerate(events)
    ]
    if len(rows) == 1:
        tx.write(APPEND, **rows[0])
    elif 1 < len(rows) <= MAX_SINGLE_ROWS:
        values = {f"{name}_{place}": value for place, row in enumerate(rows) for name, value in row.items()}
        tx.write(APPEND_SOME[len(rows) - 2], **values)
    else:
        for at in range(0, len(rows), APPEND_BATCH):
            some = [{**row, "body": encode(row["body"])} for row in rows[at : at + APPEND_BATCH]]
            columns = {name: [row[name] for row in some] for name in _COLUMNS if name != "run_id"}
            tx.write(APPEND_MANY, run_id=run_id, **columns)


def read_after(
    tx: Transaction, run_id: RunId, number: int, *, upto: int = 2**31 - 1, most: int = 500
) -> list[EventRow]:
    """Return the events with numbers above `number`, in order."""
    rows = tx.rows(AFTER, run_id=run_id, after=number, upto=upto, most=most)
    return [event_of_row(tx, row) for row in rows]


def event_of_row(tx: Transaction, row: Any) -> EventRow:
    """Return the event of a row of AFTER."""
    return EventRow(
        number=row.number,
        name=row.event,
        activation=row.activation_id,
        node_id=row.node_id,
        body=row.body,
        created_at=row.created_at,
        inputs=tx.large.inputs(row.node_id, row.inputs, row.large),
        outputs=tx.large.outputs(row.node_id, row.outputs, row.large),
    )
