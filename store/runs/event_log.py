"""The stored events of a run as a log: filtered, from its beginning or its end, with the activation of each event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import TextClause, Uuid, bindparam, text

from canvas.ids import ActivationId, RunId, TenantId
from canvas.state.run_state import scope_key
from store.db.transaction import Transaction
from store.runs.events import EventRow, event_of_row
from store.runs.run_queries import PAGE_SIZE, STREAMS_SINCE, SUMMARY, EventPage, RunSummary, streams_of

MAX_LIMIT = 500

_CONDITIONS: Mapping[str, str] = {
    "before": "e.number < :before",
    "upto": "e.number <= :upto",
    "names": "e.event = any(cast(:names as text[]))",
    "node_ids": "e.node_id = any(cast(:node_ids as text[]))",
    "activation": "e.activation_id = :activation",
}
_ACTIVATION = """
    left join lateral (
        select scope, attempt from activations where run_id = :run_id and id = e.activation_id limit 1
    ) a on true
"""
"""The activation of each event. Each is looked up by its key; a plain join reads all activations of the run."""
DETAILS = text(f"""
    select e.number, e.activation_id, a.scope, a.attempt, e.created_at
    from run_events e {_ACTIVATION}
    where e.run_id = :run_id and e.number = any(cast(:numbers as int[]))
""")  # noqa: S608 (constants only)
OF_ACTIVATIONS = text("""
    select id, scope, attempt from activations where run_id = :run_id and id = any(cast(:ids as uuid[]))
""")


@dataclass(frozen=True, slots=True)
class EventDetails:
    """The activation of an event, its item in the innermost container, and its attempts so far; None where none is."""

    activation: ActivationId | None
    item: int | None
    attempt: int | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which events a log shows; None: no restriction. `after` and `before` are numbers, not shown themselves.

    With `before` the newest come first.
    """

    after: int = 0
    before: int | None = None
    names: Sequence[str] | None = None
    node_ids: Sequence[str] | None = None
    activation: ActivationId | None = None

    def values(self) -> dict[str, Any]:
        """Return the parameters of the conditions."""
        named: dict[str, Any] = {
            "before": self.before,
            "names": list(self.names) if self.names is not None else None,
            "node_ids": list(self.node_ids) if self.node_ids is not None else None,
            "activation": self.activation,
        }
        return {name: value for name, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class LogPage:
    """A page of a log, with the run as of then. `has_more`: whether the filter selects events beyond the page."""

    run: RunSummary
    events: Sequence[tuple[EventRow, EventDetails]]
    has_more: bool


@cache
def log_statement(names: tuple[str, ...], *, has_values: bool) -> TextClause:
    """Return the statement that reads the events that meet these conditions, with or without the values they show."""
    shown = "v.inputs, v.outputs, v.large" if has_values else "null as inputs, null as outputs, null as large"
    values = """
        left join node_values v on v.run_id = e.run_id and v.activation_id = e.activation_id and v.node_id = e.node_id
            and e.event in ('node_finished', 'workflow_finished')
    """
    where = " and ".join(("e.run_id = :run_id", "e.number > :after", *(_CONDITIONS[name] for name in names)))
    statement = text(f"""
        select e.number, e.event, e.activation_id, e.node_id, e.body, e.created_at, {shown}, a.scope, a.attempt
        from run_events e {_ACTIVATION} {values if has_values else ""}
        where {where} order by e.number {"desc" if "before" in names else ""} limit :most
    """)  # noqa: S608 (constants only)
    return statement.bindparams(bindparam("activation", type_=Uuid)) if "activation" in names else statement


def read_log(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, chosen: LogFilter, *, limit: int, has_values: bool
) -> LogPage | None:
    """Return a page of a tenant's run; None if the tenant has no such run."""
    run = tx.send(SUMMARY, of_tenant=tenant_id, of_run=run_id)
    values = chosen.values()
    statement = log_statement(tuple(values), has_values=has_values)
    found = tx.send(statement, run_id=run_id, after=chosen.after, most=limit + 1, **values)
    summary = run.one_or_none()
    if summary is None:
        return None
    rows = found.rows()
    shown = [
        (event_of_row(tx, row), EventDetails(row.activation_id, _item(row.scope), row.attempt, row.created_at))
        for row in rows[:limit]
    ]
    return LogPage(RunSummary(**summary), shown, len(rows) > limit)


def read_outline(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, number: int
) -> tuple[EventPage, Mapping[int, EventDetails]] | None:
    """Return what `run_queries.read_events` does, without the values of nodes, and the details of the events by number.

    None if the tenant has no such run.
    """
    run = tx.send(SUMMARY, of_tenant=tenant_id, of_run=run_id)
    statement = log_statement(("upto",), has_values=False)
    events = tx.send(statement, run_id=run_id, after=number, upto=number + PAGE_SIZE, most=PAGE_SIZE)
    streams = tx.send(STREAMS_SINCE, of_run=run_id, number=number)
    summary = run.one_or_none()
    if summary is None:
        return None
    rows = events.rows()
    details = {
        row.number: EventDetails(row.activation_id, _item(row.scope), row.attempt, row.created_at) for row in rows
    }
    page = EventPage(RunSummary(**summary), [event_of_row(tx, row) for row in rows], streams_of(streams.rows()))
    return page, details


def load_details(tx: Transaction, run_id: RunId, numbers: Sequence[int]) -> dict[int, EventDetails]:
    """Return the details of events, by number."""
    return {
        row.number: EventDetails(row.activation_id, _item(row.scope), row.attempt, row.created_at)
        for row in (tx.rows(DETAILS, run_id=run_id, numbers=list(numbers)) if numbers else ())
    }


def load_stream_details(
    tx: Transaction, run_id: RunId, ids: Sequence[ActivationId]
) -> dict[ActivationId, EventDetails]:
    """Return the details of text of message streams, by stream: the stream's id is that of its activation."""
    return {
        row.id: EventDetails(row.id, _item(row.scope), row.attempt, None)
        for row in (tx.rows(OF_ACTIVATIONS, run_id=run_id, ids=list(ids)) if ids else ())
    }


def _item(scope: str | None) -> int | None:
    key = scope_key(scope) if scope else ()
    return key[-1][2] if key else None
