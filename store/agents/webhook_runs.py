"""Runs that webhooks started: the canvas that a call is for, the status code of its reply, and recent tests.

The caller of a public webhook has no token, so the canvas determines the tenant.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, func, select

from canvas.events.run_events import MESSAGE_END
from canvas.ids import CanvasId, RunId, TenantId
from store.db.transaction import Transaction
from store.primitives.ids import first_id_at
from store.tables.runs import run_events, runs
from store.tables.tenants import canvases

TEST_RETENTION = timedelta(seconds=600)
OPTION = "webhook"  # the option of a run's request that says that a webhook started it: TEST or LIVE
TEST, LIVE = "test", "live"
MAX_TESTS = 1000

TARGET = select(canvases.c.id, canvases.c.tenant_id, canvases.c.canvas_category).where(
    canvases.c.id == bindparam("canvas_id")
)
TESTS = (
    select(runs.c.id, runs.c.created_at)
    .where(
        runs.c.tenant_id == bindparam("of_tenant"),
        runs.c.canvas_id == bindparam("of_canvas"),
        runs.c.id >= bindparam("oldest"),
        runs.c.created_at > func.now() - TEST_RETENTION,
        runs.c.request["options"][OPTION].as_string() == TEST,
    )
    .order_by(runs.c.created_at, runs.c.id)
    .limit(MAX_TESTS)
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
    """The canvas that a call is for, and its tenant."""

    canvas_id: CanvasId
    tenant_id: TenantId
    category: str


@dataclass(frozen=True, slots=True)
class WebhookTest:
    """A run that an author started to test a webhook."""

    run_id: RunId
    created_at: datetime


def find_target(tx: Transaction, canvas_id: CanvasId) -> WebhookTarget | None:
    """Return a canvas of any tenant, for a call that names only the canvas; None if there is none."""
    row = tx.one_or_none(TARGET, canvas_id=canvas_id)
    return WebhookTarget(row["id"], row["tenant_id"], row["canvas_category"]) if row else None


def list_tests(tx: Transaction, tenant_id: TenantId, canvas_id: CanvasId) -> list[WebhookTest]:
    """Return the tests of a canvas's webhook in the last ten minutes, oldest first."""
    oldest = first_id_at(datetime.now(UTC) - 2 * TEST_RETENTION)  # so that old partitions are not read
    rows = tx.rows(TESTS, of_tenant=tenant_id, of_canvas=canvas_id, oldest=oldest)
    return [WebhookTest(*row) for row in rows]


def list_event_times(tx: Transaction, run_id: RunId) -> list[tuple[int, datetime]]:
    """Return when each event of a run was stored, by number."""
    return [(number, moment) for number, moment in tx.rows(TIMES, of_run=run_id)]


def list_reply_statuses(tx: Transaction, run_id: RunId, after: int) -> list[Any]:
    """Return the status codes that the Message nodes of a turn set, in order; None for each that sets none."""
    return [status for (status,) in tx.rows(STATUSES, of_run=run_id, after=after)]
