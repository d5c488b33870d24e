"""What an attempt stores before it reports: journal entries, tool calls and citations.

- The journal holds what the next attempt at the same activation need not repeat: model rounds, tool calls, begun side
  effects, each under a key that the component chooses. Only the attempt that holds the lease may write, and the first
  value of a key stays.
- Tool calls are a trace for people. RAGFlow's log endpoint shows it.
- Citations are the chunks and documents that the answers of a turn may cite, under the numbers that RAGFlow displays.
  Numbers are assigned in rows of the run, under a lock of the turn, so that two nodes never give one number to
  different chunks. A chunk that is cited again, for example by a second attempt, keeps its number and counts once. If
  several searches of a turn find the same document, its first entry counts, unchanged (as upstream): the first of an
  activation, and of several activations that of the first in canonical order, whichever was stored first.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import and_, bindparam, func, or_, select, text, true
from sqlalchemy.dialects.postgresql import insert

from canvas.events import citation_numbers
from canvas.ids import ActivationId, RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID, new_id
from store.primitives.json_codec import encode
from store.runs.activations import Claim
from store.tables.runs import activations, citations, cited_documents, journal, runs, tool_calls
from store.tables.tenants import conversations

MAX_LISTED = 500  # tool calls of a page

PUT_ENTRY = text("""
    with mine as (
        select run_id, id from activations
        where run_id = :run_id and id = :activation_id and lease_id = :lease_id and status = 'running'
        for no key update
    ), put as (
        insert into journal (run_id, activation_id, key, value)
        select run_id, id, :key, cast(:value as json) from mine on conflict do nothing returning 1
    )
    select (select count(*) from mine) as held, (select count(*) from put) as written
""")
"""The row lock keeps the sweeper from expiring the lease before the entry is committed, so that no two attempts write
the same entry."""
GET_ENTRY = select(journal.c.value).where(
    journal.c.run_id == bindparam("of_run"),
    journal.c.activation_id == bindparam("of_activation"),
    journal.c.key == bindparam("key"),
)

ADD_TOOL_CALL = text("""
    insert into tool_calls (run_id, id, message_id, node_id, body, activation_id, attempt, round, ordinal, started_at,
        failed, replayed)
    values (:run_id, :id, :message_id, :node_id, :body, :activation_id, :attempt, :round, :ordinal,
        now() - make_interval(secs => :elapsed), :failed, :replayed)
""").bindparams(bindparam("body", type_=tool_calls.c.body.type))
_WAS_MADE = tool_calls.c.replayed.is_not(true())
TOOL_CALLS = (
    select(tool_calls.c.node_id, tool_calls.c.body)
    .where(tool_calls.c.message_id == bindparam("of_message"), tool_calls.c.run_id == bindparam("of_run"), _WAS_MADE)
    .order_by(tool_calls.c.id)
)
TOOL_CALLS_OF_TENANT = (
    select(tool_calls.c.node_id, tool_calls.c.body)
    .join(runs, runs.c.id == tool_calls.c.run_id)
    .where(
        tool_calls.c.message_id == bindparam("of_message"),
        _WAS_MADE,
        runs.c.tenant_id == bindparam("of_tenant"),
        or_(*(column == bindparam("of") for column in (runs.c.canvas_id, runs.c.conversation_id, runs.c.id))),
    )
    .order_by(tool_calls.c.id)
)
TOOL_CALLS_OF_LINK = TOOL_CALLS_OF_TENANT.join(conversations, conversations.c.id == runs.c.conversation_id).where(
    conversations.c.token_id == bindparam("of_token")
)

_columns = (
    tool_calls.c.id,
    tool_calls.c.activation_id,
    tool_calls.c.node_id,
    tool_calls.c.attempt,
    tool_calls.c.round,
    tool_calls.c.ordinal,
    tool_calls.c.started_at,
    tool_calls.c.failed,
    tool_calls.c.replayed,
    tool_calls.c.body,
)
LIST_TOOL_CALLS = (
    select(*_columns)
    .where(
        tool_calls.c.run_id == bindparam("of_run"),
        select(runs.c.id).where(runs.c.id == bindparam("of_run"), runs.c.tenant_id == bindparam("of_tenant")).exists(),
        tool_calls.c.id > bindparam("after"),
    )
    .order_by(tool_calls.c.id)
    .limit(bindparam("most"))
)
LIST_TOOL_CALLS_OF_ACTIVATION = LIST_TOOL_CALLS.where(tool_calls.c.activation_id == bindparam("of_activation"))

LOCK_CITATIONS = text("select pg_advisory_xact_lock(hashtextextended(cast(:message_id as text), 0))")
CITED = text("""
    select chunk_id, number from citations where run_id = :of_run and message_id = :of_message
    union all
    select d.name, null from cited_documents d
    left join activations theirs on theirs.run_id = d.run_id and theirs.id = d.activation_id
    left join activations mine on mine.run_id = :of_run and mine.id = :of_activation
    where d.run_id = :of_run and d.message_id = :of_message and (theirs.order_key <= mine.order_key) is not false
""")
"""The chunk ids of a turn with their numbers, and with null the names of the documents that already have an entry of
this activation or of one before it in canonical order."""
ADD_CHUNK = insert(citations)
ADD_DOCUMENT = insert(cited_documents).on_conflict_do_nothing()
CHUNKS = (
    select(citations.c.number, citations.c.chunk)
    .where(citations.c.run_id == bindparam("of_run"), citations.c.message_id == bindparam("of_message"))
    .order_by(citations.c.number)
)
_WRITER = and_(activations.c.run_id == cited_documents.c.run_id, activations.c.id == cited_documents.c.activation_id)
DOCUMENTS = (
    select(cited_documents.c.name, cited_documents.c.document)
    .outerjoin(activations, _WRITER)
    .where(cited_documents.c.run_id == bindparam("of_run"), cited_documents.c.message_id == bindparam("of_message"))
    .order_by(
        cited_documents.c.name, activations.c.order_key, cited_documents.c.finding, cited_documents.c.activation_id
    )
)
"""The documents of a turn by name; of several entries the first in canonical order comes first."""
CHUNKS_OF_RUNS = (
    select(citations.c.run_id, citations.c.number, citations.c.chunk)
    .where(citations.c.run_id == func.any(bindparam("run_ids")))
    .order_by(citations.c.run_id, citations.c.message_id, citations.c.number)
)
DOCUMENTS_OF_RUNS = (
    select(cited_documents.c.run_id, cited_documents.c.name, cited_documents.c.document)
    .outerjoin(activations, _WRITER)
    .where(cited_documents.c.run_id == func.any(bindparam("run_ids")))
    .order_by(
        cited_documents.c.run_id,
        cited_documents.c.message_id,
        cited_documents.c.name,
        activations.c.order_key,
        cited_documents.c.finding,
        cited_documents.c.activation_id,
    )
)


# -- the journal --------------------------------------------------------------------------------------------------
def put_journal_entry(tx: Transaction, claim: Claim, key: str, value: Any) -> bool | None:
    """Store a value under a key, unless the key has one already, which stays; return whether the value was stored.

    Returns None, and stores nothing, if the attempt has lost its lease.
    """
    (row,) = tx.rows(
        PUT_ENTRY,
        run_id=claim.run_id,
        activation_id=claim.id,
        lease_id=claim.lease_id,
        key=key,
        value=encode(value),
    )
    return row.written == 1 if row.held else None


def get_journal_entry(tx: Transaction, claim: Claim, key: str) -> Any:
    """Return the value that an attempt of this activation stored under a key; None if there is none."""
    return tx.scalar(GET_ENTRY, of_run=claim.run_id, of_activation=claim.id, key=key)


# -- tool calls ---------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class CallPosition:
    """The attempt that a tool call belongs to, its place there, and how it ended (components/context.py)."""

    activation_id: ActivationId | None = None
    attempt: int | None = None
    round: str | None = None
    ordinal: int | None = None
    has_failed: bool = False
    is_replayed: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallRow:
    """A tool call as its row has it. Rows of earlier releases have None from `activation_id` on, except `node_id`."""

    id: UUID
    activation_id: ActivationId | None
    node_id: str
    attempt: int | None
    round: str | None
    ordinal: int | None
    started_at: datetime | None
    failed: bool | None
    replayed: bool | None
    body: Mapping[str, Any]  # {path, tool_name, arguments, result, elapsed_time}


def add_tool_call(
    tx: Transaction,
    run_id: RunId,
    message_id: UUID,
    node_id: str,
    call: Mapping[str, Any],
    position: CallPosition | None = None,
) -> None:
    """Store a tool call of a node, which ended just now."""
    at = position or CallPosition()
    elapsed = call.get("elapsed_time")
    tx.execute(
        ADD_TOOL_CALL,
        run_id=run_id,
        id=new_id(),
        message_id=message_id,
        node_id=node_id,
        body=dict(call),
        activation_id=at.activation_id,
        attempt=at.attempt,
        round=at.round,
        ordinal=at.ordinal,
        elapsed=float(elapsed) if isinstance(elapsed, int | float) and not at.is_replayed else 0.0,
        failed=at.has_failed,
        replayed=at.is_replayed,
    )


def list_calls_of_run(
    tx: Transaction,
    tenant_id: TenantId,
    run_id: RunId,
    *,
    activation_id: ActivationId | None = None,
    after: UUID = NO_ID,
    limit: int = MAX_LISTED,
) -> list[ToolCallRow]:
    """Return the tool calls of a tenant's run, or of one activation, after a call, oldest first.

    Calls of releases before revision 0024 belong to no activation.
    """
    values = {"of_tenant": tenant_id, "of_run": run_id, "after": after, "most": limit}
    if activation_id is not None:
        rows = tx.rows(LIST_TOOL_CALLS_OF_ACTIVATION, **values, of_activation=activation_id)
    else:
        rows = tx.rows(LIST_TOOL_CALLS, **values)
    return [ToolCallRow(*row) for row in rows]


def list_tool_calls(tx: Transaction, run_id: RunId, message_id: UUID) -> list[dict[str, Any]]:
    """Return the tool calls of a turn in order: [{component_id, trace: [call]}].

    Consecutive calls of one node are one item.
    """
    return _group_by_node(tx.rows(TOOL_CALLS, of_run=run_id, of_message=message_id))


def find_tool_calls(
    tx: Transaction, tenant_id: TenantId, of: UUID, message_id: UUID, *, token_id: UUID | None = None
) -> list[dict[str, Any]]:
    """Return the same for a reader who may not know the run: `of` is the id of the agent, the conversation or the run.

    `token_id`: only conversations that this share link began.
    """
    filters = {"of_tenant": tenant_id, "of": of, "of_message": message_id}
    if token_id is None:
        return _group_by_node(tx.rows(TOOL_CALLS_OF_TENANT, **filters))
    return _group_by_node(tx.rows(TOOL_CALLS_OF_LINK, **filters, of_token=token_id))


def _group_by_node(calls: Iterable[Any]) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = []
    for node_id, body in calls:
        if not groups or groups[-1]["component_id"] != node_id:
            groups.append({"component_id": node_id, "trace": []})
        groups[-1]["trace"].append(body)
    return groups


# -- citations ----------------------------------------------------------------------------------------------------
def add_citations(
    tx: Transaction,
    run_id: RunId,
    message_id: UUID,
    activation_id: ActivationId,
    chunks: Sequence[Mapping[str, Any]],
    documents: Sequence[Mapping[str, Any]],
) -> list[int]:
    """Add the chunks and documents that a node found to the turn's citations; return the number of each chunk in order.

    A chunk has a `chunk_id`, which is not stored in its body; a document has a `doc_name`.
    """
    tx.execute(LOCK_CITATIONS, message_id=str(message_id))
    cited = tx.rows(CITED, of_run=run_id, of_message=message_id, of_activation=activation_id)
    numbers: dict[str, int] = {chunk_id: number for chunk_id, number in cited if number is not None}
    document_names = {name for name, number in cited if number is None}
    bodies = {str(chunk["chunk_id"]): _without_id(chunk) for chunk in reversed(chunks)}
    new = citation_numbers.assign_numbers([str(chunk["chunk_id"]) for chunk in chunks], numbers)
    tx.write_many(
        ADD_CHUNK,
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
    by_name = {str(document["doc_name"]): dict(document) for document in reversed(documents)}
    tx.write_many(
        ADD_DOCUMENT,
        [
            {
                "run_id": run_id,
                "message_id": message_id,
                "activation_id": activation_id,
                "finding": finding,
                "name": name,
                "document": document,
            }
            for name, document in by_name.items()
            if name not in document_names
        ],
    )
    numbers |= new
    return [numbers[str(chunk["chunk_id"])] for chunk in chunks]


def load_citations(tx: Transaction, run_id: RunId, message_id: UUID) -> dict[str, Any]:
    """Return the citations of a turn: {"chunks": {number: chunk}, "doc_aggs": {name: document}}."""
    chunks = {str(number): chunk for number, chunk in tx.rows(CHUNKS, of_run=run_id, of_message=message_id)}
    documents: dict[str, Any] = {}
    for name, document in tx.rows(DOCUMENTS, of_run=run_id, of_message=message_id):
        documents.setdefault(name, document)
    return {"chunks": chunks, "doc_aggs": documents}


def citations_of_runs(tx: Transaction, run_ids: Collection[RunId]) -> dict[RunId, dict[str, Any]]:
    """Return the citations of whole runs, the turns of a run merged; a run without citations has no entry."""
    by_run: dict[RunId, dict[str, Any]] = defaultdict(lambda: {"chunks": {}, "doc_aggs": {}})
    if not run_ids:
        return by_run
    for run_id, number, chunk in tx.rows(CHUNKS_OF_RUNS, run_ids=list(run_ids)):
        by_run[run_id]["chunks"].setdefault(str(number), chunk)
    for run_id, name, document in tx.rows(DOCUMENTS_OF_RUNS, run_ids=list(run_ids)):
        by_run[run_id]["doc_aggs"].setdefault(name, document)
    return dict(by_run)


def _without_id(chunk: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in chunk.items() if name != "chunk_id"}
