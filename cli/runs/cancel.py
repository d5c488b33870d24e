"""`easel cancel`: stop a run. This module imports little, so that the command begins at once."""

from canvas.state.run_state import RunStatus
from cli.shell import output
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant, Run


def cancel(run: Run, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Stop a run. A run that is over does not change."""
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            run_id = find_run_id(tx, tenant_id, run)
        status = connection.lifecycle.cancel_run(tenant_id, run_id)
    if as_json:
        output.print_json({"id": run_id.hex, "run_id": run_id.hex, "status": status})
        return
    was_over = status in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.REFUSED)
    output.print_line(f"{'it was over already: ' if was_over else ''}{status}")
