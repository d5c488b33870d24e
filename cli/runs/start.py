"""`easel start`: store a run for the workers, and return."""

from pathlib import Path

from canvas.ids import RunId
from cli.agents import canvas_file
from cli.runs import inputs, start_options
from cli.shell import output
from cli.shell.connection import open_connection
from cli.shell.options import (
    LOCAL_TENANT,
    AsJson,
    Calls,
    Currency,
    Inputs,
    Money,
    OfTenant,
    Pairs,
    Query,
    Released,
    Seconds,
    Session,
    Target,
    Tokens,
)
from cli.shell.output import YELLOW
from cli.shell.page_server import find_run_address
from settings import load
from store.primitives.ids import new_id


def start(
    target: Target,
    query: Query = None,
    pairs: Pairs = None,
    all_inputs: Inputs = None,
    session: Session = None,
    release: Released = False,
    tokens: Tokens = None,
    calls: Calls = None,
    seconds: Seconds = None,
    money: Money = None,
    currency: Currency = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Start a run and print its id. Workers execute it in the background."""
    node_inputs = inputs.parse_inputs(pairs, all_inputs)
    budget = inputs.parse_budget(tokens, calls, seconds, money, currency)
    options = inputs.build_options(query, node_inputs, session=session, release=release, budget=budget)
    judged = canvas_file.load_runnable(Path(target), load().max_canvas_bytes) if canvas_file.is_file(target) else None
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            turn = inputs.TurnRequest(target, judged, tenant, options)
            chosen = start_options.build_start(tx, turn, RunId(new_id()))
        started = connection.lifecycle.start_run(chosen)
        is_alone = connection.servers.is_embedded and connection.servers.up is None
        address = find_run_address(connection.servers.up, started.run_id)
    if as_json:
        output.print_json(
            {"id": started.run_id.hex, "run_id": started.run_id.hex, "session_id": started.conversation_id.hex}
        )
    else:
        output.print_line(started.run_id.hex)
        output.print_message(f"session {started.conversation_id.hex}")
        if address is not None:
            output.print_message(f"page: {address}")
    if is_alone:
        output.print_message("No worker runs here now. The next `easel up` or `easel run` executes the run.", YELLOW)
