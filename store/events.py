"""The events of a run: appended in a fold, in order, without gaps; read after a number.

`node_finished` and `workflow_finished` show values that lie in rows of their own; reading puts them together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, insert, text

from canvas.events import Event
from store.schema import run_events
from store.transaction import Transaction

_COLUMNS = ("run_id", "number", "event", "activation_id", "node_id", "body")
AT_ONCE = 4  # events in one statement; most steps have two or three

APPEND = insert(run_events)
APPEND_SOME = [  # by their number, from two on
    insert(run_events).values(
        [{name: bindparam(f"{name}_{at}", type_=run_events.c[name].type) for name in _COLUMNS} for at in range(count)]
    )
    for count in range(2, AT_ONCE + 1)
]

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
class Stored:
    """An event as it was stored, with the values it shows."""

    number: int
    name: str
    activation: UUID | None
    node_id: str | None
    body: Mapping[str, Any]
    created_at: datetime
    inputs: Mapping[str, Any] | None
    outputs: Mapping[str, Any] | None


def append(tx: Transaction, run_id: UUID, first: int, events: Sequence[Event]) -> None:
    """Append events under the run's lock; `first` is the number of the first."""
    rows = [
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
    for at in range(0, len(rows), AT_ONCE):
        some = rows[at : at + AT_ONCE]
        if len(some) == 1:
            tx.later(APPEND, **some[0])
        else:
            values = {f"{name}_{place}": value for place, row in enumerate(some) for name, value in row.items()}
            tx.later(APPEND_SOME[len(some) - 2], **values)


def after(tx: Transaction, run_id: UUID, number: int, *, upto: int = 2**31 - 1, most: int = 500) -> list[Stored]:
    """Events with greater numbers, in order."""
    rows = tx.rows(AFTER, run_id=run_id, after=number, upto=upto, most=most)
    return [stored(tx, row) for row in rows]


def stored(tx: Transaction, row: Any) -> Stored:
    """An event from a row of AFTER."""
    return Stored(
        number=row.number,
        name=row.event,
        activation=row.activation_id,
        node_id=row.node_id,
        body=row.body,
        created_at=row.created_at,
        inputs=tx.large.inputs(row.node_id, row.inputs, row.large),
        outputs=tx.large.outputs(row.node_id, row.outputs, row.large),
    )
