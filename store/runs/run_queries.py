"""Read-only queries of runs for people: lists, a summary, the activations, and progress since an earlier query.

They read small columns only: neither the baseline nor the state of a run.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, bindparam, func, select, text, true
from sqlalchemy.dialects.postgresql import ARRAY

from canvas.ids import ActivationId, CanvasId, RunId, SessionId, TenantId, VersionId
from canvas.state.run_state import RunStatus
from store.db.transaction import Transaction
from store.runs import external_ids
from store.runs.events import AFTER, EventRow, event_of_row
from store.runs.message_streams import StreamRow
from store.tables.runs import activations, runs, turns

PAGE_SIZE = 500  # events per page
MAX_STEPS = 2000  # activations shown of a run
MAX_COPIES = 20  # reruns and forks shown of a run

_summary_columns = (
    runs.c.id,
    runs.c.canvas_id,
    runs.c.version_id,
    runs.c.conversation_id,
    runs.c.message_id,
    runs.c.status,
    runs.c.first_event,
    runs.c.last_event,
    runs.c.request,
    runs.c.usage,
    runs.c.error,
    runs.c.created_at,
    runs.c.started_at,
    runs.c.finished_at,
    runs.c.external_id,
    runs.c.origin,
)
_of_tenant = runs.c.tenant_id == bindparam("of_tenant")
SUMMARY = select(*_summary_columns).where(runs.c.id == bindparam("of_run"), _of_tenant)
STATUSES = select(runs.c.id, runs.c.status).where(
    runs.c.id == func.any(bindparam("run_ids", type_=ARRAY(Uuid))), _of_tenant
)
PAGE = select(*_summary_columns).where(_of_tenant)
COUNT = select(func.count()).select_from(runs).where(_of_tenant)

ACTIVATIONS = (
    select(
        activations.c.id,
        activations.c.node_id,
        activations.c.component,
        activations.c.scope,
        activations.c.ordinal,
        activations.c.status,
        activations.c.attempt,
        activations.c.outcome,
        activations.c.usage,
        activations.c.created_at,
        activations.c.started_at,
        activations.c.finished_at,
    )
    .where(activations.c.run_id == bindparam("of_run"))
    .order_by(activations.c.order_key, activations.c.id)
    .limit(bindparam("most"))
)

STEPS = select(func.count()).select_from(activations).where(activations.c.run_id == bindparam("of_run"))

COPIES = (
    select(runs.c.id).where(_of_tenant, runs.c.source_run == bindparam("source")).order_by(runs.c.id.desc()).limit(1000)
)

STREAMS_SINCE = (
    select(turns)
    .where(
        turns.c.run_id == bindparam("of_run"),
        turns.c.opened_at.is_not(None),
        func.coalesce(turns.c.closed_at, bindparam("number")) >= bindparam("number"),
    )
    .order_by(turns.c.opened_at)
)

STREAM_TEXTS = (
    select(turns.c.run_id, turns.c.text)
    .where(turns.c.run_id == func.any(bindparam("run_ids", type_=ARRAY(Uuid))), turns.c.opened_at.is_not(None))
    .order_by(turns.c.run_id, turns.c.opened_at)
)

PROGRESS = text("""
    select r.id, r.status, r.last_event, t.id as turn, t.epoch, char_length(t.text) as length
    from runs r left join turns t on t.run_id = r.id and t.id = r.open_stream
    where r.id = any(cast(:run_ids as uuid[]))
""")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run without its values. For a refused start the ids of version and conversation are all zero."""

    id: RunId
    canvas_id: CanvasId
    version_id: VersionId
    conversation_id: SessionId
    message_id: UUID
    status: str
    first_event: int  # of the conversation's current turn
    last_event: int
    request: Mapping[str, Any]
    usage: Mapping[str, int]
    error: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    external_id: str | None = None
    origin: Mapping[str, Any] | None = None  # of a rerun, fork or debug run


@dataclass(frozen=True, slots=True)
class ActivationRow:
    """An activation without values."""

    id: ActivationId
    node_id: str
    component: str
    scope: str
    ordinal: int
    status: str
    attempt: int
    outcome: Mapping[str, Any] | None
    usage: Mapping[str, int] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of a run's events, with the run's summary and the message streams that the events may belong to."""

    run: RunSummary
    events: Sequence[EventRow]
    streams: Sequence[StreamRow]

    @property
    def is_last(self) -> bool:
        """Return whether there are no more events to read."""
        return len(self.events) < PAGE_SIZE


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run has advanced: its last event, and the stored length of its open message stream."""

    run_id: RunId
    status: str
    last_event: int
    stream_id: ActivationId | None
    epoch: int | None
    length: int | None


def get_summary(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> RunSummary | None:
    """Return the summary of a tenant's run; None if the tenant has no such run."""
    row = tx.one_or_none(SUMMARY, of_tenant=tenant_id, of_run=run_id)
    return RunSummary(**row) if row else None


def statuses_of(tx: Transaction, tenant_id: TenantId, run_ids: Collection[RunId]) -> dict[RunId, RunStatus]:
    """Return the status of each of some runs of a tenant, without those that it does not have."""
    found = tx.rows(STATUSES, of_tenant=tenant_id, run_ids=sorted(run_ids))
    return {RunId(run_id): RunStatus(status) for run_id, status in found}


def page(
    tx: Transaction,
    tenant_id: TenantId,
    *,
    canvas_id: CanvasId | None = None,
    conversation_id: SessionId | None = None,
    status: str = "",
    external_id: str = "",
    limit: int = 30,
    offset: int = 0,
) -> tuple[list[RunSummary], int]:
    """Return one page of a tenant's runs, newest first, and the number of runs on all pages.

    Sorted by the time at which a run was accepted, because runs of an earlier release may have ids without a time.
    """
    conditions = [
        runs.c.canvas_id == canvas_id if canvas_id else true(),
        runs.c.conversation_id == conversation_id if conversation_id else true(),
        runs.c.status == status if status else true(),
        runs.c.id == (external_ids.find_run(tx, tenant_id, external_id) or UUID(int=0)) if external_id else true(),
    ]
    total = int(tx.scalar(COUNT.where(*conditions), of_tenant=tenant_id))
    newest_first = PAGE.where(*conditions).order_by(runs.c.created_at.desc(), runs.c.id.desc())
    rows = tx.rows(newest_first.limit(limit).offset(offset), of_tenant=tenant_id)
    return [RunSummary(*row) for row in rows], max(total, offset + len(rows) if rows else 0)


def list_copies(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> tuple[list[RunId], int]:
    """Return the newest reruns and forks of a run, at most MAX_COPIES, and how many it has, counted up to 1000."""
    found = [copy for (copy,) in tx.rows(COPIES, of_tenant=tenant_id, source=run_id)]
    return found[:MAX_COPIES], len(found)


def count_steps(tx: Transaction, run_id: RunId) -> int:
    """Return the number of a run's activations."""
    return int(tx.scalar(STEPS, of_run=run_id))


def list_steps(tx: Transaction, run_id: RunId) -> list[ActivationRow]:
    """Return a run's activations in canonical order, the first MAX_STEPS of them."""
    return [ActivationRow(*row) for row in tx.rows(ACTIVATIONS, of_run=run_id, most=MAX_STEPS)]


def read_events(tx: Transaction, tenant_id: TenantId, run_id: RunId, number: int) -> EventPage | None:
    """Return the events after a number, and the message streams that were open after it; None if there is no such run.

    The run is read first, then the events, then the streams: streams must not be older than the events
    (canvas/events/stream_sequencer.py), nor the events older than the run's status. The three statements take one round
    trip.
    """
    run = tx.send(SUMMARY, of_tenant=tenant_id, of_run=run_id)
    events = tx.send(AFTER, run_id=run_id, after=number, upto=number + PAGE_SIZE, most=PAGE_SIZE)
    streams = tx.send(STREAMS_SINCE, of_run=run_id, number=number)
    row = run.one_or_none()
    if row is None:
        return None
    return EventPage(
        RunSummary(**row), [event_of_row(tx, event) for event in events.rows()], streams_of(streams.rows())
    )


def streams_of(rows: Sequence[Any]) -> list[StreamRow]:
    """Return the message streams of rows of STREAMS_SINCE."""
    return [
        StreamRow(
            r.id, r.node_id, r.epoch, r.retained_length, r.text, r.opened_at, r.epoch_at or r.opened_at, r.closed_at
        )
        for r in rows
    ]


def progress_of(tx: Transaction, run_ids: Sequence[RunId]) -> list[RunProgress]:
    """Return how far some runs have advanced."""
    return [RunProgress(*row) for row in tx.rows(PROGRESS, run_ids=list(run_ids))]


def load_answer_texts(tx: Transaction, run_ids: Sequence[RunId]) -> dict[RunId, str]:
    """Return the text of all message streams of each run, in the order in which they were opened."""
    texts: dict[RunId, str] = {}
    for run_id, part in tx.rows(STREAM_TEXTS, run_ids=list(run_ids)):
        texts[run_id] = texts.get(run_id, "") + part
    return texts
