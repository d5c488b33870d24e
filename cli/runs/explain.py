"""`easel explain`: print what a run waits for, what resolves the wait, and when it continues at the latest."""

from canvas.errors import NotFound
from canvas.events.explain import Explanation, WaitsFor, explain, explain_refusal, explanation_json
from canvas.state.run_state import RunStatus
from cli.shell import output
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant, Run
from cli.shell.output import DIM, RED
from settings import load
from store.monitoring import wait_facts

MAX_WAITS_SHOWN = 20  # further waits that are printed; --json has all


def explain_run(run: Run, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Print what a run waits for, who or what resolves it, and until when."""
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            run_id = find_run_id(tx, tenant_id, run)
        with connection.database.transaction() as tx:
            found = wait_facts.load_facts(tx, tenant_id, run_id)
            if found is None:
                raise NotFound(f"There is no run {run}. `easel runs` lists them.")
            facts, version_id = found
            is_refused = facts.status is RunStatus.REFUSED
            canvas = connection.versions.get_or_empty(tx, version_id).canvas if not is_refused else None
        explanation = explain(facts, canvas, load().time_limit) if canvas is not None else explain_refusal(facts)
    if as_json:
        output.print_json(explanation_json(explanation, canvas))
    else:
        _print_explanation(explanation)


def _print_explanation(explanation: Explanation) -> None:
    output.print_line(explanation.wait.sentence)
    if explanation.wait.until is not None:
        output.print_message(f"until {output.format_time(explanation.wait.until)} at the latest", DIM)
    for wait in explanation.also[:MAX_WAITS_SHOWN]:
        output.print_message(f"also: {wait.sentence}", DIM)
    if len(explanation.also) > MAX_WAITS_SHOWN:
        output.print_message(f"and {len(explanation.also) - MAX_WAITS_SHOWN} more: --json", DIM)
    if explanation.wait.kind is WaitsFor.NOTHING:
        output.print_message("The sweeper reports it too: `run_stalled` in its log.", RED)
