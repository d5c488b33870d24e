"""Callbacks: `easel callbacks list`, `deliveries`, `replay`. Secrets are not shown; the API makes and replaces them."""

from typing import Annotated, Any
from uuid import UUID

import typer

from canvas.errors import InvalidRequest
from cli.runs import inputs
from cli.shell import output
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from store.tenants import callback_deliveries
from store.tenants import callbacks as callback_rows
from store.tenants.callback_deliveries import Delivery, DeliveryStatus

callbacks = typer.Typer(help="Callbacks: who is told when runs end or wait.", no_args_is_help=True)

MOST = 1000  # rows of a table

DeliveryIds = Annotated[list[str] | None, typer.Argument(help="The deliveries to send again.", metavar="ID...")]
Status = Annotated[str | None, typer.Option("--status", help=f"One of {', '.join(DeliveryStatus)}.", metavar="STATUS")]
OfRun = Annotated[str | None, typer.Option("--run", help="Those about this run, by id or external id.", metavar="RUN")]
AllDead = Annotated[bool, typer.Option("--all-dead", help=f"Send all dead deliveries again, {MOST} at most.")]


@callbacks.command("list")
def list_callbacks(tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """List the stored callbacks of a tenant."""
    with open_connection() as connection, connection.database.transaction() as tx:
        found = callback_rows.list_callbacks(tx, find_tenant_id(tx, tenant), limit=MOST)
    rows = [
        {
            "id": each.id.hex,
            "agent": each.canvas_id.hex if each.canvas_id is not None else "",
            "url": each.url,
            "events": ", ".join(each.events),
            "disabled": each.disabled_because or "",
            "description": each.description,
        }
        for each in found
    ]
    empty = "There are no callbacks. POST /api/v1/callbacks stores one."
    output.print_table(rows, tuple(rows[0]) if rows else (), as_json=as_json, empty=empty)


@callbacks.command()
def deliveries(
    status: Status = None, run: OfRun = None, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False
) -> None:
    """List deliveries, the newest first, each with its last attempt."""
    if status is not None and status not in list(DeliveryStatus):
        raise InvalidRequest(f"--status is {status!r}. Use one of: {', '.join(DeliveryStatus)}.")
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = callback_deliveries.list_deliveries(
            tx,
            tenant_id,
            statuses=[status] if status is not None else tuple(DeliveryStatus),
            run_id=find_run_id(tx, tenant_id, run) if run is not None else None,
            limit=MOST,
        )
    rows = [_row(each) for each in found]
    output.print_table(rows, tuple(rows[0]) if rows else (), as_json=as_json, empty="There are no such deliveries.")


@callbacks.command()
def replay(ids: DeliveryIds = None, all_dead: AllDead = False, tenant: OfTenant = LOCAL_TENANT) -> None:
    """Send deliveries again, now and with all their retries. A sweeper sends them."""
    if bool(ids) == all_dead:
        raise InvalidRequest("Name deliveries by their ids, or use --all-dead.")
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        chosen: list[UUID] = [inputs.parse_id(written, "delivery") for written in ids or ()]
        if all_dead:
            dead = callback_deliveries.list_deliveries(tx, tenant_id, statuses=[DeliveryStatus.DEAD], limit=MOST)
            chosen = [each.id for each in dead]
        for delivery_id in chosen:
            callback_deliveries.replay(tx, tenant_id, delivery_id)
    output.print_message(f"{len(chosen)} {'delivery is' if len(chosen) == 1 else 'deliveries are'} due now.")


def _row(delivery: Delivery) -> dict[str, Any]:
    last = delivery.latest_attempts[-1] if delivery.latest_attempts else {}
    return {
        "id": delivery.id.hex,
        "event": delivery.event,
        "run": delivery.run_id.hex if delivery.run_id is not None else "",
        "status": delivery.status,
        "attempts": delivery.attempt,
        "answer": last.get("status") or "",
        "error": (last.get("error") or "")[:80],
        "occurred_at": output.format_time(delivery.occurred_at),
    }
