"""`easel cancel`: stop runs. This module imports little, so that the command begins at once."""

from typing import Annotated, Any

import typer

from canvas.state.run_state import RunStatus
from cli.shell import output
from cli.shell.actor import find_actor
from cli.shell.connection import find_tenant_id, open_connection, run_not_found
from cli.shell.exit_codes import Exit
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from scheduler.lifecycle.cancellation import CancelledRun, cancel_runs

Runs = Annotated[list[str], typer.Argument(help="Ids or external ids of runs.", metavar="RUN...")]


def cancel(runs: Runs, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Stop runs. A run that is over does not change. If some ids name no run, the others are stopped."""
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
        done = cancel_runs(connection.lifecycle, tenant_id, runs, by=find_actor())
    for each in done:
        if each.run_id is None and len(done) > 1:
            output.print_message(run_not_found(each.written).message, output.RED)
        elif each.run_id is not None and as_json:
            output.print_json(_json(each))
        elif each.run_id is not None:
            output.print_line(_line(each) if len(done) == 1 else f"{each.written}  {_line(each)}")
    if len(done) == 1 and done[0].run_id is None:
        raise run_not_found(done[0].written)
    if any(each.run_id is None for each in done):
        raise typer.Exit(Exit.BAD_INPUT)


def _json(each: CancelledRun) -> dict[str, Any]:
    assert each.run_id is not None
    return {"id": each.run_id.hex, "run_id": each.run_id.hex, "status": each.status}


def _line(each: CancelledRun) -> str:
    was_over = each.status in (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.REFUSED)
    return f"{'it was over already: ' if was_over else ''}{each.status}"
