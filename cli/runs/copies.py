"""Repeat runs: `easel rerun` does everything again, `easel fork` goes on from a step.

This module imports little, as `cli/runs/run.py` does.
"""

import importlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from canvas.errors import InvalidRequest
from cli.runs import inputs
from cli.shell import output, servers
from cli.shell.options import LOCAL_TENANT, AsJson, Inputs, OfTenant, Pairs, Query, Run
from settings import load

TURN = "cli.runs.turn"
EDITS = ("outputs", "variables", "params")

OfVersion = Annotated[
    str, typer.Option("--version", help="same, draft, published, or the id of a version.", metavar="VERSION")
]
AsThen = Annotated[bool, typer.Option("--answers-as-then", help="Answer forms as they were answered in the source.")]


def rerun(
    run: Run,
    query: Query = None,
    pairs: Pairs = None,
    all_inputs: Inputs = None,
    version: OfVersion = "same",
    as_then: AsThen = False,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Do all of a run again with the same inputs, and follow it. The exit codes are those of `easel run`."""
    options = _copy_options(query, pairs, all_inputs, version, as_then=as_then)
    raise typer.Exit(_with_servers(lambda turn, found: turn.rerun(found, tenant, run, options, as_json=as_json)))


def fork(
    run: Run,
    places: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            help="A step that runs again with all that follows: a node, or an activation's id. Default: what failed.",
            metavar="NODE",
        ),
    ] = None,
    item: Annotated[
        str | None, typer.Option("--item", help="Only this item (3; 3.1 in nested containers) of --from.", metavar="N")
    ] = None,
    query: Query = None,
    pairs: Pairs = None,
    all_inputs: Inputs = None,
    edits: Annotated[
        str | None,
        typer.Option(
            "--edits",
            help='JSON: {"outputs": {NODE: {…}}, "variables": {…}, "params": {NODE: {…}}}.',
            metavar="JSON",
        ),
    ] = None,
    version: OfVersion = "same",
    as_then: AsThen = False,
    confirmed: Annotated[
        list[str] | None,
        typer.Option("--confirm", help="A node whose side effects may happen again; repeatable.", metavar="NODE"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would run again, and its cost.")] = False,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Go on from any step of a run, and follow it: what lies before is taken over, what follows runs again.

    The exit codes are those of `easel run`.
    """
    if item is not None and not places:
        raise InvalidRequest("--item needs --from NODE.")
    options = {
        "copy": _copy_options(query, pairs, all_inputs, version, as_then=as_then),
        "places": [f"{place}[{item}]" if item is not None else place for place in places or ()],
        **_parse_edits(edits),
    }
    if dry_run:
        preview: Mapping[str, Any] = _with_servers(lambda turn, found: turn.preview_fork(found, tenant, run, options))
        _show(preview, as_json=as_json)
        return
    raise typer.Exit(
        _with_servers(lambda turn, found: turn.fork(found, tenant, run, options, confirmed or (), as_json=as_json))
    )


def _copy_options(
    query: str | None, pairs: list[str] | None, all_inputs: str | None, version: str, *, as_then: bool
) -> dict[str, Any]:
    return {
        "query": query,
        "inputs": inputs.parse_inputs(pairs, all_inputs),
        "version": version,
        "answers": "as_then" if as_then else "ask",
    }


def _parse_edits(written: str | None) -> dict[str, Any]:
    if written is None:
        return {}
    try:
        edits = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"--edits is not valid JSON: {error}") from error
    if not isinstance(edits, dict) or not all(isinstance(each, dict) for each in edits.values()):
        raise InvalidRequest(
            '--edits must be a JSON object of objects, for example {"variables": {"env.tone": "kind"}}.'
        )
    unknown = sorted(edits.keys() - set(EDITS))
    if unknown:
        raise InvalidRequest(f"--edits has no {unknown[0][:64]!r}. It has: {', '.join(EDITS)}.")
    return edits


def _with_servers(command: Callable[[Any, Any], Any]) -> Any:
    ahead = servers.import_in_background(TURN)
    with servers.open_servers(load()) as found:
        ahead.join()
        return command(importlib.import_module(TURN), found)


def _show(preview: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what a fork would do."""
    if as_json:
        output.print_json(dict(preview))
        return
    output.print_line(f"{preview['reused']} steps are taken over. These run again:")
    rows = [
        {
            "node": each["node_id"],
            "steps": each["count"],
            "tokens": each["tokens"],
            "cost": _money(each["cost"]),
            "took": output.format_seconds(each["ms"] / 1000),
            "effect": each["effect"] or "",
        }
        for each in preview["runs_again"]
    ]
    columns = ("node", "steps", "tokens", "cost", "took", "effect")
    output.print_table(rows, columns, as_json=False, empty="No step that has run before.")
    estimate = preview["estimate"]
    output.print_line(
        f"In the source this took {output.format_seconds(estimate['ms'] / 1000)} and {estimate['tokens']:,} tokens"
        f"{', ' + _money(estimate['cost']) if estimate['cost'] else ''}."
    )
    if preview["confirm"]:
        output.print_line(
            "Side effects may happen again. If they may: "
            + " ".join(f"--confirm {node}" for node in preview["confirm"])
        )


def _money(cost: Mapping[str, float] | None) -> str:
    return ", ".join(f"{amount:g} {currency}" for currency, amount in (cost or {}).items())
