"""`easel debug`: run one node of an agent's draft alone, with given inputs, and print its outputs.

This module imports little, as `cli/runs/run.py` does.
"""

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.agents import canvas_file
from cli.runs import inputs
from cli.shell import servers
from cli.shell.options import (
    LOCAL_TENANT,
    AsJson,
    Calls,
    Currency,
    Inputs,
    Money,
    OfTenant,
    Pairs,
    Seconds,
    Target,
    Tokens,
)
from settings import load

NODE_TURN = "cli.runs.node_turn"


def debug(
    target: Target,
    node: Annotated[str, typer.Argument(help="The id of the node.", metavar="NODE")],
    pairs: Pairs = None,
    all_inputs: Inputs = None,
    tokens: Tokens = None,
    calls: Calls = None,
    seconds: Seconds = None,
    money: Money = None,
    currency: Currency = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Run one node of a draft alone, which acts for real, and print its outputs as JSON.

    Inputs have the names of the node's form (`query`), or are outputs and variables: `--input 'LLM:0@content=…'`,
    `--input env.tone=kind`. The exit codes are those of `easel run`.
    """
    settings = load()
    given = inputs.parse_inputs(pairs, all_inputs) or {}
    budget = inputs.parse_budget(tokens, calls, seconds, money, currency)
    judged = canvas_file.load_runnable(Path(target), settings.max_canvas_bytes) if canvas_file.is_file(target) else None
    turn = inputs.TurnRequest(target, judged, tenant, {"budget": budget})
    ahead = servers.import_in_background(NODE_TURN)
    with servers.open_servers(settings) as found:
        ahead.join()
        node_turn: Any = importlib.import_module(NODE_TURN)
        ended = node_turn.debug(found, turn, node, given, as_json=as_json)
    raise typer.Exit(ended)
