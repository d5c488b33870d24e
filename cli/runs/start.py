"""`easel start`: store a run for the workers, and return."""

from pathlib import Path

from cli.agents import canvas_file
from cli.runs import inputs, start_options
from cli.shell import output
from cli.shell.connection import opened
from cli.shell.options import (
    LOCAL,
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
    tenant: OfTenant = LOCAL,
    as_json: AsJson = False,
) -> None:
    """Start a run and print its id. Workers execute it in the background."""
    given = inputs.inputs_of(pairs, all_inputs)
    budget = inputs.budget_of(tokens, calls, seconds, money, currency)
    options = inputs.options_of(query, given, session=session, release=release, budget=budget)
    judged = canvas_file.accepted(Path(target), load().max_canvas_bytes) if canvas_file.is_file(target) else None
    with opened() as connection:
        with connection.database.transaction() as tx:
            chosen = start_options.chosen(tx, inputs.Wanted(target, judged, tenant, options), new_id())
        started = connection.lifecycle.start_run(chosen)
        is_alone = connection.found.is_embedded and connection.found.up is None
    if as_json:
        output.say_json(
            {"id": started.run_id.hex, "run_id": started.run_id.hex, "session_id": started.conversation_id.hex}
        )
    else:
        output.say(started.run_id.hex)
        output.tell(f"session {started.conversation_id.hex}")
    if is_alone:
        output.tell("No worker runs here now. The next `easel up` or `easel run` executes the run.", YELLOW)
