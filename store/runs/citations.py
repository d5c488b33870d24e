"""The references of a turn: which evidence answers may cite, under which numbers (tools 1.6, [DIST]).

Numbers are given out in the rows of the run, under a lock of the turn, so that two nodes never give one to different
chunks. Evidence that is found again, by a second attempt for instance, keeps its number and counts once. Of a document
that several searches of a turn find, the first entry stays as it is, its count included (as upstream).
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, null, select, text, union_all
from sqlalchemy.dialects.postgresql import insert

from canvas.events import citation_numbers
from store.db.transaction import Transaction
from store.primitives.json_codec import encode
from store.tables.runs import citations, cited_documents

ONE_AT_A_TIME = text("select pg_advisory_xact_lock(hashtextextended(cast(:message_id as text), 0))")
TAKEN = union_all(
    select(citations.c.chunk_id, citations.c.number).where(
        citations.c.run_id == bindparam("of_run"), citations.c.message_id == bindparam("of_message")
    ),
    select(cited_documents.c.name, null()).where(
        cited_documents.c.run_id == bindparam("of_run"), cited_documents.c.message_id == bindparam("of_message")
    ),
)
"""The chunks of a turn with their numbers, and the names of its documents without any."""
ADD_CHUNKS = insert(citations)
ADD_DOCUMENTS = insert(cited_documents).on_conflict_do_nothing()
CHUNKS = (
    select(citations.c.number, citations.c.chunk)
    .where(citations.c.run_id == bindparam("of_run"), citations.c.message_id == bindparam("of_message"))
    .order_by(citations.c.number)
)
OF_RUNS = (
    select(citations.c.run_id, citations.c.number, citations.c.chunk)
    .where(citations.c.run_id == func.any(bindparam("run_ids")))
    .order_by(citations.c.run_id, citations.c.message_id, citations.c.number)
)
DOCUMENTS_OF_RUNS = (
    select(cited_documents.c.run_id, cited_documents.c.name, cited_documents.c.document)
    .where(cited_documents.c.run_id == func.any(bindparam("run_ids")))
    .order_by(
        cited_documents.c.run_id,
        cited_documents.c.message_id,
        cited_documents.c.name,
        cited_documents.c.finding,
        cited_documents.c.activation_id,
    )
)
DOCUMENTS = (
    select(cited_documents.c.name, cited_documents.c.document)
    .where(cited_documents.c.run_id == bindparam("of_run"), cited_documents.c.message_id == bindparam("of_message"))
    .order_by(cited_documents.c.name, cited_documents.c.finding, cited_documents.c.activation_id)
)


def add(
    tx: Transaction,
    run_id: UUID,
    message_id: UUID,
    activation_id: UUID,
    chunks: Sequence[Mapping[str, Any]],
    documents: Sequence[Mapping[str, Any]],
) -> list[int]:
    """Add what a node has found to the turn's references; the display number of each chunk, in order.

    A chunk has `chunk_id`, which is no part of what is kept; a document has `doc_name`.
    """
    tx.run(ONE_AT_A_TIME, message_id=str(message_id))
    taken = tx.rows(TAKEN, of_run=run_id, of_message=message_id)
    numbers: dict[str, int] = {chunk_id: number for chunk_id, number in taken if number is not None}
    known = {name for name, number in taken if number is None}
    bodies = {str(chunk["chunk_id"]): _kept(chunk) for chunk in reversed(chunks)}
    new = citation_numbers.assign_numbers([str(chunk["chunk_id"]) for chunk in chunks], numbers)
    tx.write_many(
        ADD_CHUNKS,
        [
            {
                "run_id": run_id,
                "message_id": message_id,
                "number": number,
                "chunk_id": chunk_id,
                "chunk": bodies[chunk_id],
            }
            for chunk_id, number in new.items()
        ],
    )
    finding = sha256(encode([sorted(bodies), list(map(dict, documents))]).encode()).hexdigest()
    named = {str(document["doc_name"]): dict(document) for document in reversed(documents)}
    tx.write_many(
        ADD_DOCUMENTS,
        [
            {
                "run_id": run_id,
                "message_id": message_id,
                "activation_id": activation_id,
                "finding": finding,
                "name": name,
                "document": document,
            }
            for name, document in named.items()
            if name not in known
        ],
    )
    numbers |= new
    return [numbers[str(chunk["chunk_id"])] for chunk in chunks]


def references(tx: Transaction, run_id: UUID, message_id: UUID) -> dict[str, Any]:
    """The turn's references: {"chunks": {number: chunk}, "doc_aggs": {name: document}}."""
    chunks = {str(number): chunk for number, chunk in tx.rows(CHUNKS, of_run=run_id, of_message=message_id)}
    documents: dict[str, Any] = {}
    for name, document in tx.rows(DOCUMENTS, of_run=run_id, of_message=message_id):
        documents.setdefault(name, document)
    return {"chunks": chunks, "doc_aggs": documents}


def of_runs(tx: Transaction, run_ids: Collection[UUID]) -> dict[UUID, dict[str, Any]]:
    """The references of whole runs, every turn's together; runs without any are left out."""
    told: dict[UUID, dict[str, Any]] = defaultdict(lambda: {"chunks": {}, "doc_aggs": {}})
    if not run_ids:
        return told
    for run_id, number, chunk in tx.rows(OF_RUNS, run_ids=list(run_ids)):
        told[run_id]["chunks"].setdefault(str(number), chunk)
    for run_id, name, document in tx.rows(DOCUMENTS_OF_RUNS, run_ids=list(run_ids)):
        told[run_id]["doc_aggs"].setdefault(name, document)
    return dict(told)


def _kept(chunk: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in chunk.items() if name != "chunk_id"}
