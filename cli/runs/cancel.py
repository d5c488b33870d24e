"""`easel cancel`: stop a run. This module imports little, so that the command begins at once."""

from canvas.state.run_state import RunStatus
from cli.shell import output
from cli.shell.connection import opened, run_of, tenant_of
from cli.shell.options import LOCAL, AsJson, OfTenant, Run


def cancel(run: Run, tenant: OfTenant = LOCAL, as_json: AsJson = False) -> None:
    """Stop a run. A run that is over does not change."""
    with opened() as connection:
        with connection.database.transaction() as tx:
            tenant_id = tenant_of(tx, tenant)
            run_id = run_of(tx, tenant_id, run)
        status = connection.lifecycle.cancel_run(tenant_id, run_id)
    if as_json:
        output.say_json({"id": run_id.hex, "run_id": run_id.hex, "status": status})
        return
    was_over = status in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.REFUSED)
    output.say(f"{'it was over already: ' if was_over else ''}{status}")
