"""Talk with an agent: `easel run`, `easel resume`.

This module imports little. The rest is imported while the servers start, which halves the time to the first answer.
"""

import importlib
from pathlib import Path
from typing import Any

import typer

from cli.agents import canvas_file
from cli.runs import inputs
from cli.shell import servers
from cli.shell.options import (
    LOCAL_TENANT,
    Again,
    AsJson,
    Calls,
    Currency,
    Happened,
    Inputs,
    Money,
    OfTenant,
    Pairs,
    Query,
    Released,
    Run,
    Seconds,
    Session,
    Target,
    Tokens,
)
from settings import load

TURN = "cli.runs.turn"


def run(
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
    """Run an agent: print its answer to stdout as it is streamed, and progress to stderr.

    Exit code 0: done, 1: failed, 2: bad input or canvas, 3: cancelled, 4: waits for input (see `easel resume`).
    """
    settings = load()
    node_inputs = inputs.parse_inputs(pairs, all_inputs)
    budget = inputs.parse_budget(tokens, calls, seconds, money, currency)
    options = inputs.build_options(query, node_inputs, session=session, release=release, budget=budget)
    judged = canvas_file.load_runnable(Path(target), settings.max_canvas_bytes) if canvas_file.is_file(target) else None
    ahead = servers.import_in_background(TURN)
    with servers.open_servers(settings) as found:
        ahead.join()
        turn: Any = importlib.import_module(TURN)
        ended = turn.start(found, inputs.TurnRequest(target, judged, tenant, options), as_json=as_json)
    raise typer.Exit(ended)


def resume(
    run: Run,
    query: Query = None,
    pairs: Pairs = None,
    all_inputs: Inputs = None,
    happened: Happened = None,
    again: Again = None,
    tokens: Tokens = None,
    calls: Calls = None,
    seconds: Seconds = None,
    money: Money = None,
    currency: Currency = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Answer a run that waits for input, and follow it. The exit codes are those of `easel run`."""
    settings = load()
    node_inputs = {**(inputs.parse_inputs(pairs, all_inputs) or {}), **inputs.parse_outcomes(happened, again)}
    budget = inputs.parse_budget(tokens, calls, seconds, money, currency)
    options = inputs.build_options(query, node_inputs or None, session=None, release=False, budget=budget)
    ahead = servers.import_in_background(TURN)
    with servers.open_servers(settings) as found:
        ahead.join()
        turn: Any = importlib.import_module(TURN)
        ended = turn.resume(found, tenant, run, options, as_json=as_json)
    raise typer.Exit(ended)
