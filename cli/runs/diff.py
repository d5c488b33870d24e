"""`easel diff`: print in what two runs differ. The exit codes are those of `diff`: 0 same, 1 different, 2 trouble."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from canvas.errors import ExecutorError
from canvas.ids import CanvasId
from cli.agents import drafts
from cli.shell import output
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.exit_codes import Exit
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from scheduler.views import divergence, run_comparison
from scheduler.views.run_comparison import ComparisonPage
from store.runs.run_comparison import DIFFERS, MAX_ROWS, StepDifference

MAX_DIFF_LINES = 40  # lines of the diff of one parameter that are printed; --json has all

RunA = Annotated[str, typer.Argument(help="The run's id, or its external id.", metavar="A")]
RunB = Annotated[str, typer.Argument(help="The run to compare it with.", metavar="B")]


def diff(
    run_a: RunA,
    run_b: RunB,
    node: Annotated[str | None, typer.Option("--node", help="Only steps of this node.", metavar="NODE")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of differing steps.", min=1, max=MAX_ROWS)] = 50,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: the first step that differs, in words, all that differ, and what has changed in the version.

    Exit code 0: they are the same; 1: they differ; 2: they cannot be compared.
    """
    page = ComparisonPage(DIFFERS, node, limit=limit)
    try:
        comparison = _load(run_a, run_b, tenant, page)
    except ExecutorError as error:
        output.print_message(error.message, output.RED)
        raise typer.Exit(Exit.BAD_INPUT) from error
    if as_json:
        output.print_json(comparison)
    else:
        _print_comparison(comparison)
    raise typer.Exit(Exit.DONE if comparison["same"] else Exit.FAILED)


def _load(run_a: str, run_b: str, tenant: str, page: ComparisonPage) -> Mapping[str, Any]:
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        a, b = (find_run_id(tx, tenant_id, each) for each in (run_a, run_b))

        def mask(canvas_id: CanvasId, document: Mapping[str, Any]) -> Mapping[str, Any]:
            return drafts.canvas_secrets_of(tenant_id, canvas_id).mask_document(document)

        return run_comparison.comparison_json(tx, connection.versions, tenant_id, a, b, mask, page)


def _print_comparison(comparison: Mapping[str, Any]) -> None:
    a, b = _summary(comparison["a"]), _summary(comparison["b"])
    output.print_table([{"": name, "A": a[name], "B": b[name]} for name in a], ("", "A", "B"), as_json=False)
    output.print_line()
    first, totals = comparison["first_divergence"], comparison["totals"]
    if first is None:
        output.print_line(f"All {totals['same']} steps are the same.")
    else:
        counts = [
            f"{totals['same']} steps are the same",
            f"{totals['differs']} differ",
            f"{totals['only_a']} are only in A",
            f"{totals['only_b']} are only in B",
        ]
        output.print_line(f"First difference: {first['sentence']}")
        output.print_line(f"{', '.join(counts)}.")
        output.print_line()
        _print_steps(comparison)
    if comparison["versions"] is not None:
        output.print_line()
        _print_versions(comparison["versions"])


def _summary(run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "run": run["id"],
        "status": run["status"],
        "took": _duration(run["elapsed_ms"]),
        "steps": run["steps"],
        "tokens": run["usage"].get("total_tokens", 0),
        "cost": _money(run["usage"].get("cost", {})),
        "version": run["version_id"],
        "query": run["query"],
    }


def _print_steps(comparison: Mapping[str, Any]) -> None:
    rows = [dict(zip(comparison["columns"], row, strict=True)) for row in comparison["rows"]]
    shown = [
        {
            "step": divergence.describe_place(row["node_id"], row["scope"], row["ordinal"]),
            "difference": divergence.describe_bits(StepDifference(row["what"])),
            "took A": _duration(row["a_ms"]),
            "took B": _duration(row["b_ms"]),
            "tokens A": row["a_tokens"],
            "tokens B": row["b_tokens"],
            "cost A": _money(row["a_cost"]),
            "cost B": _money(row["b_cost"]),
        }
        for row in rows
    ]
    costs = ("cost A", "cost B") if any(row["cost A"] or row["cost B"] for row in shown) else ()
    columns = ("step", "difference", "took A", "took B", "tokens A", "tokens B", *costs)
    output.print_table(shown, columns, as_json=False, empty="No step of this node differs.")
    if comparison["next"] is not None:
        output.print_message(f"There are more: use --limit N (up to {MAX_ROWS}), or --node NODE.")


def _print_versions(versions: Mapping[str, Any]) -> None:
    if versions["unavailable"] is not None:
        output.print_line(f"The versions cannot be compared: {versions['unavailable']}")
        return
    if versions["same"]:
        output.print_line("The versions differ in nothing that runs.")
        return
    output.print_line("The versions differ:")
    for node in versions["changed"]:
        for change in node["changes"]:
            _print_change(f"{node['node_id']}  {change['path']}", change)
    for change in versions["variables"]:
        _print_change(change["path"], change)
    for side in ("a", "b"):
        for node in versions[f"only_{side}"]:
            output.print_line(f"  {node['node_id']}  only in {side.upper()}")
        for edge in versions["edges"][f"only_{side}"]:
            output.print_line(f"  {edge['from']} -> {edge['to']}  only in {side.upper()}")
    if versions["cut"]:
        output.print_message("There are more differences of the versions, which are not listed.")


def _print_change(subject: str, change: Mapping[str, Any]) -> None:
    """Print a changed value on one line, or its diff below."""
    if change.get("diff") is None:
        values = [f"{_quote(change[side])} in {side.upper()}" for side in ("a", "b") if change[side] is not None]
        missing = "" if len(values) == 2 else f", missing in {'B' if change['b'] is None else 'A'}"
        output.print_line(f"  {subject}: {', '.join(values)}{missing}")
        return
    output.print_line(f"  {subject}:")
    lines: Sequence[str] = change["diff"].split("\n")
    for line in lines[:MAX_DIFF_LINES]:
        output.print_line(f"    {line}")
    if len(lines) > MAX_DIFF_LINES or change["diff_cut"]:
        output.print_message("    (cut: --json has more)", output.DIM)


def _quote(shown: Mapping[str, Any]) -> str:
    return divergence.quote(shown["value"])


def _duration(elapsed_ms: int | None) -> str:
    return output.format_seconds(elapsed_ms / 1000) if elapsed_ms is not None else ""


def _money(cost: Mapping[str, float] | None) -> str:
    return ", ".join(f"{amount:g} {currency}" for currency, amount in (cost or {}).items())
