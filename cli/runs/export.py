"""`easel export-run`: print all that is stored about a run as one JSON document."""

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from canvas.errors import NotFound
from cli.agents import drafts
from cli.shell.connection import find_run_id, open_connection
from cli.shell.options import LOCAL_TENANT, OfTenant, Run
from scheduler.views.run_file import RunFile
from store.db.transaction import USE_SNAPSHOT
from store.runs import run_queries
from store.runs.run_queries import RunSummary


def export_run(
    run: Run,
    large: Annotated[
        bool, typer.Option("--large", help="Print values above 1 MiB too, instead of cutting them.")
    ] = False,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Print a run as one JSON document: version, steps, values, model and tool calls, events. Secrets are masked."""
    with open_connection() as connection:
        tenant_id = connection.tenant(tenant)

        def mask(found: RunSummary, document: Mapping[str, Any]) -> Mapping[str, Any]:
            return drafts.canvas_secrets_of(tenant_id, found.canvas_id).mask_document(document)

        with connection.database.transaction() as tx:
            tx.execute(USE_SNAPSHOT)
            found = run_queries.get_summary(tx, tenant_id, find_run_id(tx, tenant_id, run))
            if found is None:
                raise NotFound(f"There is no run {run}. `easel runs` lists them.")
            RunFile(tx, connection.versions, tenant_id, found, mask, has_large=large).write(sys.stdout)
