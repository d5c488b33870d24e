"""What a run has stored, for a copy of the whole run, that no list of it shows: values, variables, journal, sources."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import ActivationId, RunId
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

STEPS = text("""
    select id, node_id, component, scope, ordinal, status, attempt, effect, answers, outcome, usage
    from activations where run_id = :run_id order by order_key, id
""")
SETTLED = text("""
    select id from activations where run_id = :run_id and status in ('done', 'waiting', 'open', 'saying', 'closed')
""")
STREAMS = text("select id, node_id, text, opened_at from turns where run_id = :run_id order by opened_at, id")
JOURNAL = text("select activation_id, key, value from journal where run_id = :run_id order by activation_id, key")
CHUNKS = text("""
    select message_id, number, chunk_id, chunk from citations where run_id = :run_id order by message_id, number
""")
DOCUMENTS = text("""
    select message_id, activation_id, name, document from cited_documents
    where run_id = :run_id order by activation_id, finding, name
""")

EVENTS = text("""
    select event, activation_id, node_id, body from run_events where run_id = :run_id order by number
""")


def list_steps(tx: Transaction, run_id: RunId) -> Sequence[Any]:
    """Return all activations in canonical order, without what only scheduling needs."""
    return tx.rows(STEPS, run_id=run_id)


def list_settled(tx: Transaction, run_id: RunId) -> list[ActivationId]:
    """Return the activations whose outcome the run has applied, and those that will have none."""
    return [row.id for row in tx.rows(SETTLED, run_id=run_id)]


def list_streams(tx: Transaction, run_id: RunId) -> Sequence[Any]:
    """Return (id, node_id, text, opened_at) of every message stream, those that readers may show first."""
    return tx.rows(STREAMS, run_id=run_id)


def list_journal(tx: Transaction, run_id: RunId) -> Sequence[Any]:
    """Return (activation_id, key, value) of the journal."""
    return tx.rows(JOURNAL, run_id=run_id)


def list_cited_chunks(tx: Transaction, run_id: RunId) -> Sequence[Any]:
    """Return (message_id, number, chunk_id, chunk) of what the answers of each turn may cite."""
    return tx.rows(CHUNKS, run_id=run_id)


def list_cited_documents(tx: Transaction, run_id: RunId) -> Sequence[Any]:
    """Return (message_id, activation_id, name, document) of the documents that activations found."""
    return tx.rows(DOCUMENTS, run_id=run_id)


def list_events(tx: Transaction, run_id: RunId) -> Sequence[Any]:
    """Return (event, activation_id, node_id, body) of all events in order, without the values that they show."""
    return tx.rows(EVENTS, run_id=run_id)


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
