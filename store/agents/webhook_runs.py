"""Runs that webhooks have started: whose canvas a call is for, what status it is answered with, and recent tests.

A public webhook has no caller whose tenant could be asked for: the canvas says whose run it becomes.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, select

from canvas.events.run_events import MESSAGE_END
from store.db.transaction import Transaction
from store.primitives.ids import first_id_at
from store.tables.runs import run_events, runs
from store.tables.tenants import canvases

TRACE_KEPT = timedelta(seconds=600)
MARK = "webhook"  # the option of a run's request that says how it came in
TEST, LIVE = "test", "live"
MOST_TESTS = 1000

DOOR = select(canvases.c.id, canvases.c.tenant_id, canvases.c.canvas_category).where(
    canvases.c.id == bindparam("canvas_id")
)
TESTS = (
    select(runs.c.id, runs.c.created_at)
    .where(
        runs.c.tenant_id == bindparam("of_tenant"),
        runs.c.canvas_id == bindparam("of_canvas"),
        runs.c.id >= bindparam("oldest"),
        runs.c.created_at > func.now() - TRACE_KEPT,
        runs.c.request["options"][MARK].as_string() == TEST,
    )
    .order_by(runs.c.created_at, runs.c.id)
    .limit(MOST_TESTS)
)
TIMES = (
    select(run_events.c.number, run_events.c.created_at)
    .where(run_events.c.run_id == bindparam("of_run"))
    .order_by(run_events.c.number)
)
STATUSES = (
    select(run_events.c.body["status"])
    .where(
        run_events.c.run_id == bindparam("of_run"),
        run_events.c.number > bindparam("after"),
        run_events.c.event == MESSAGE_END,
    )
    .order_by(run_events.c.number)
)


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """The canvas that a call is for, and its owner."""

    canvas_id: UUID
    tenant_id: UUID
    category: str


@dataclass(frozen=True, slots=True)
class WebhookTest:
    """A run that somebody has started to test a webhook."""

    run_id: UUID
    created_at: datetime


def find_target(tx: Transaction, canvas_id: UUID) -> WebhookTarget | None:
    """A canvas, whoever owns it; for calls that name nothing else. None if there is none."""
    row = tx.one_or_none(DOOR, canvas_id=canvas_id)
    return WebhookTarget(row["id"], row["tenant_id"], row["canvas_category"]) if row else None


def list_tests(tx: Transaction, tenant_id: UUID, canvas_id: UUID) -> list[WebhookTest]:
    """The tests of a canvas's webhook in the last ten minutes, in the order in which they began."""
    oldest = first_id_at(datetime.now(UTC) - 2 * TRACE_KEPT)  # so that old partitions are not looked at
    rows = tx.rows(TESTS, of_tenant=tenant_id, of_canvas=canvas_id, oldest=oldest)
    return [WebhookTest(*row) for row in rows]


def times(tx: Transaction, run_id: UUID) -> list[tuple[int, datetime]]:
    """When each event of a run was stored, by number."""
    return [(number, moment) for number, moment in tx.rows(TIMES, of_run=run_id)]


def statuses(tx: Transaction, run_id: UUID, after: int) -> list[Any]:
    """The reply codes that the Messages of a turn name, in order; None for each that names none."""
    return [status for (status,) in tx.rows(STATUSES, of_run=run_id, after=after)]
