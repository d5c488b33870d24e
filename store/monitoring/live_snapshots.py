"""What a live view shows of a run at one moment: its row, counts of its activations, and what has changed.

A snapshot is one repeatable-read transaction with a few statements, in one round trip or two.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import text

from canvas.ids import ActivationId, RunId, TenantId, VersionId
from store.db.transaction import USE_SNAPSHOT, Transaction
from store.monitoring import node_counts
from store.monitoring.node_counts import NodeCounts, NodeOutcomes
from store.primitives.ids import NO_ID
from store.runs import activation_list, model_calls
from store.runs.activation_list import Changes
from store.runs.model_calls import MAX_LISTED, StoredCall

RUN = text("""
    select status, version_id, revision, last_event, usage, error, budgeted, now() as now,
        state -> 'failing' as failing, cast(state ->> 'activated' as int) as activated,
        cast(state ->> 'live' as int) as active, cast(state ->> 'queued' as int) as queued
    from runs where id = :run_id and tenant_id = :tenant_id
""")


@dataclass(frozen=True, slots=True)
class RunNow:
    """The row of a run. `active`: activations that are ready or running."""

    status: str
    version_id: VersionId
    revision: int
    last_event: int
    usage: Mapping[str, int]
    error: str
    budgeted: bool
    now: datetime
    failing: Sequence[Any] | None  # canvas/state/checkpoint.py
    activated: int | None
    active: int | None
    queued: int | None


@dataclass(frozen=True, slots=True)
class LiveSnapshot:
    """A run at one moment. `calls`: those of changed activations, without the known ones."""

    run: RunNow
    counts: Sequence[NodeCounts]
    outcomes: Sequence[NodeOutcomes]
    changes: Changes
    calls: Sequence[StoredCall]


@dataclass(frozen=True, slots=True)
class ChangePage:
    """A page of changed activations with their model calls, and time and revision of the run in the same snapshot."""

    now: datetime
    revision: int
    changes: Changes
    calls: Sequence[StoredCall]


def read_snapshot(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, *, since: int, limit: int, known_calls: Collection[UUID]
) -> LiveSnapshot | None:
    """Return a tenant's run as it is now; None if there is no such run. Call it first in a transaction.

    `limit`: how many changed activations are read. If there are more, `changes` and `calls` are not complete.
    """
    tx.send(USE_SNAPSHOT)
    run = tx.send(RUN, run_id=run_id, tenant_id=tenant_id)
    counts = node_counts.send_node_counts(tx, tenant_id, run_id)
    outcomes = node_counts.send_outcomes(tx, tenant_id, run_id)
    changes = activation_list.send_changes(tx, run_id, since, limit=limit)
    row = run.one_or_none()
    if row is None:
        return None
    found = changes.read(tx)
    calls = () if found.has_more else _read_calls(tx, tenant_id, run_id, found, known_calls)
    return LiveSnapshot(RunNow(**row), counts.read(), node_counts.outcomes_of(outcomes), found, calls)


def read_changes(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, *, since: int, after: ActivationId | None, limit: int
) -> ChangePage | None:
    """Return a page of what has changed since a revision; None if there is no such run. Call it first in a transaction.

    If there are several pages, read them all with the same `since`; the revision of the first is the next `since`.
    """
    tx.send(USE_SNAPSHOT)
    run = tx.send(RUN, run_id=run_id, tenant_id=tenant_id)
    changes = activation_list.send_changes(tx, run_id, since, after=after, limit=limit)
    row = run.one_or_none()
    if row is None:
        return None
    found = changes.read(tx)
    return ChangePage(row["now"], row["revision"], found, _read_calls(tx, tenant_id, run_id, found, ()))


def _read_calls(
    tx: Transaction, tenant_id: TenantId, run_id: RunId, changes: Changes, known: Collection[UUID]
) -> list[StoredCall]:
    """Return the calls of changed activations, without the known ones.

    A call is stored with a report or a journal entry of its activation, which is among the changed ones then. So no
    call is missed, in whatever order calls are committed.
    """
    ids = [ActivationId(UUID(row.id)) for row in changes.rows if row.attempt]
    found: list[StoredCall] = []
    while ids:
        after = found[-1].id if found else NO_ID
        page = model_calls.list_calls_of(tx, tenant_id, run_id, ids, known_ids=known, after=after)
        found += page
        if len(page) < MAX_LISTED:
            break
    return found
