"""`easel calls`: list the model calls of a run, or show one with its request and response."""

from typing import Annotated, Any
from uuid import UUID

import typer

from canvas.errors import NotFound
from canvas.ids import RunId, TenantId
from cli.shell import output
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant, Run
from scheduler.views.call_views import call_json, call_with_bodies_json
from store.db.transaction import Transaction
from store.primitives.ids import NO_ID
from store.runs import model_calls
from store.runs.external_ids import uuid_of

COLUMNS = ("id", "round", "kind", "model", "status", "tries", "seconds", "tokens", "error")


def calls(
    run: Run,
    call: Annotated[str | None, typer.Argument(help="The id of a call, to show what was sent and answered.")] = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """List the model calls of a run; with the id of a call, print that call with its request and response."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        run_id = find_run_id(tx, tenant_id, run)
        whole = _load_call(tx, tenant_id, run_id, call) if call is not None else None
        rows = _load_rows(tx, tenant_id, run_id) if call is None else []
    if whole is not None:
        (output.print_json if as_json else output.print_document)(whole)
        return
    shown = rows if as_json else [_table_row(row) for row in rows]
    output.print_table(shown, COLUMNS, as_json=as_json, empty="No model calls of this run are stored.")


def _load_call(tx: Transaction, tenant_id: TenantId, run_id: RunId, written: str) -> dict[str, Any]:
    chosen = uuid_of(written)
    found = model_calls.get_call(tx, tenant_id, run_id, chosen) if chosen is not None else None
    if found is None:
        raise NotFound(f"The run has no model call {written}. `easel calls {run_id.hex}` lists them.")
    return call_with_bodies_json(found, model_calls.load_bodies(tx, run_id, found))


def _load_rows(tx: Transaction, tenant_id: TenantId, run_id: RunId) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    after: UUID | None = NO_ID
    while after is not None:
        page = model_calls.list_calls(tx, tenant_id, run_id, after=after)
        rows += map(call_json, page)
        after = page[-1].id if len(page) == model_calls.MAX_LISTED else None
    return rows


def _table_row(row: dict[str, Any]) -> dict[str, Any]:
    usage = row["usage"] or {}
    elapsed = row["elapsed_ms"]
    return {
        **row,
        "seconds": f"{elapsed / 1000:.1f}" if elapsed is not None else None,
        "tokens": usage.get("total_tokens"),
    }
