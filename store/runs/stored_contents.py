"""What a run has stored, for a copy of the whole run, that no list of it shows: values, variables, call parts."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import RunId
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID

VALUES = text("""
    select activation_id, node_id, inputs, outputs, large from node_values
    where run_id = :run_id and activation_id = any(cast(:ids as uuid[])) order by activation_id, node_id
""")
VARIABLES = text("""
    select activation_id, name, value, large from variables
    where run_id = :run_id and activation_id = any(cast(:ids as uuid[])) order by activation_id, name
""")
PARTS = text("""
    select digest, body from call_parts where run_id = :run_id and digest > cast(:after as uuid)
    order by digest limit :most
""")


def list_values(tx: Transaction, run_id: RunId, ids: Sequence[str]) -> Sequence[Any]:
    """Return (activation_id, node_id, inputs, outputs, large) of activations; an activation may write several nodes."""
    return tx.rows(VALUES, run_id=run_id, ids=list(ids))


def list_variables(tx: Transaction, run_id: RunId, ids: Sequence[str]) -> Sequence[Any]:
    """Return (activation_id, name, value, large) of what activations have set."""
    return tx.rows(VARIABLES, run_id=run_id, ids=list(ids))


def iterate_parts(tx: Transaction, run_id: RunId, page_size: int) -> Iterator[tuple[UUID, Any]]:
    """Yield the parts of the bodies of model calls, with their digests."""
    after = NO_ID
    while rows := tx.rows(PARTS, run_id=run_id, after=after, most=page_size):
        yield from map(tuple, rows)
        after = rows[-1].digest
