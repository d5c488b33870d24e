"""Runs: `easel runs`, `show`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from canvas.budget import UNPRICED, usage_json
from canvas.errors import NotFound
from canvas.graph.passwords import PasswordMask
from canvas.run_warnings import has_model_error
from canvas.state.run_state import RunStatus
from cli.agents import agents
from cli.runs import tree
from cli.shell import output
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant, Run
from scheduler.coordinator.version_cache import VersionCache
from scheduler.views.json_values import hex_of
from store.agents import canvas_list
from store.db.transaction import Transaction
from store.runs import run_queries
from store.runs.run_queries import RunSummary


def runs(
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.", metavar="AGENT")] = None,
    status: Annotated[RunStatus | None, typer.Option(help="Only runs with this status.")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of runs.", min=1, max=1000)] = 20,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """List runs, the newest first, and refused starts of other services."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        canvas_id = agents.find(tx, tenant_id, agent).id if agent else None
        page, total = run_queries.page(tx, tenant_id, canvas_id=canvas_id, status=status or "", limit=limit)
        found = [_mask_inputs(tx, connection.versions, run) for run in page]
        named, _ = canvas_list.page(
            tx, tenant_id, canvas_list.CanvasFilter(ids=sorted({run.canvas_id for run in found})), limit=1000
        )
    titles = {canvas.id: canvas.title for canvas in named}
    rows = [{**_row(run), "agent": titles.get(run.canvas_id, "")} for run in found]
    if not as_json:
        shown = ({"query": describe_input(run.request), "status": _format_status(run)} for run in found)
        rows = [{**row, **more} for row, more in zip(rows, shown, strict=True)]
    named_by_others = ("external_id",) if any(run.external_id for run in found) else ()
    columns = ("run", *named_by_others, "agent", "status", "created", "took", "query")
    output.print_table(rows, columns, as_json=as_json, empty="There are no runs. `easel run FILE` starts one.")
    if total > len(rows) and not as_json:
        output.print_message(f"{total - len(rows)} more runs: use --limit {min(total, 1000)}")


def show(run: Run, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Show a run: its status, and its steps as a tree with times."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        run_id = find_run_id(tx, tenant_id, run)
        found = run_queries.get_summary(tx, tenant_id, run_id)
        if found is None:
            raise NotFound(f"There is no run {run}. `easel runs` lists them.")
        steps = run_queries.list_steps(tx, run_id)
        found = _mask_inputs(tx, connection.versions, found)
        is_refused = found.status == RunStatus.REFUSED
        canvas = connection.versions.get_or_empty(tx, found.version_id).canvas if not is_refused else None
    if as_json:
        output.print_json({**_row(found), "error": found.error or None, "activations": tree.rows(steps)})
        return
    output.print_line(f"run {found.id.hex}  {found.status}  {_format_duration(found)}".rstrip())
    if found.external_id is not None:
        output.print_line(f"external id {found.external_id}")
    if found.origin is not None:
        output.print_line(_describe_origin(found.origin))
    if canvas is None:
        output.print_line(f"error: {found.error}")
        output.print_line(
            f"agent {found.request.get('agent') or ''}  sent at {output.format_time(found.created_at)}".rstrip()
        )
        return
    output.print_line(
        f"session {found.conversation_id.hex}  agent {found.canvas_id.hex}  version {found.version_id.hex}"
    )
    if found.error:
        output.print_line(f"error: {found.error}")
    if has_model_error(found.usage):
        output.print_line("model error: a model failed, and its error was given as the answer")
    if found.usage:
        output.print_line(f"usage: {_format_usage(found.usage)}")
    for line in tree.lines(steps, canvas, found.created_at):
        output.print_line(line)


def _mask_inputs(tx: Transaction, versions: VersionCache, run: RunSummary) -> RunSummary:
    """Return a run whose request shows the mask in place of what was entered into password fields."""
    if not run.request.get("inputs"):
        return run
    mask = PasswordMask(versions.get_or_empty(tx, run.version_id).canvas.password_fields)
    return replace(run, request={**run.request, "inputs": mask.answers(run.request["inputs"])})


def _describe_origin(origin: Mapping[str, Any]) -> str:
    """Return from which run a rerun or fork was made and what it has changed, or which slot has started a run."""
    if "schedule_id" in origin:
        return f"schedule {origin['schedule_id']}, slot {origin.get('slot')}"
    places = f", from {', '.join(origin['from'])}" if origin.get("from") else ""
    edits = f", with other {', '.join(origin['edits'])}" if origin.get("edits") else ""
    source = f" of {origin['run_id']}" if origin.get("run_id") else ""
    return f"{origin.get('kind')}{source}{places}{edits}"


def describe_input(request: Mapping[str, Any]) -> str:
    """Return the latest input of a run: its query, or the fields of a form ("name: Ada, city: Rome")."""
    if request.get("query"):
        return str(request["query"])
    fields = request.get("inputs") or {}
    values = {name: field.get("value") if isinstance(field, Mapping) else field for name, field in fields.items()}
    return ", ".join(f"{name}: {value}" for name, value in values.items())


def _row(run: RunSummary) -> dict[str, Any]:
    return {
        "id": run.id.hex,
        "run": run.id.hex,  # the former name of `id`, which programs read
        "external_id": run.external_id,
        "session_id": hex_of(run.conversation_id),
        "session": hex_of(run.conversation_id),  # the former name of `session_id`
        "agent_id": hex_of(run.canvas_id),
        "version": hex_of(run.version_id),
        "status": run.status,
        "query": run.request.get("query"),
        "inputs": run.request.get("inputs") or None,
        "created": run.created_at,
        "started": run.started_at,
        "finished": run.finished_at,
        "took": _format_duration(run),
        "has_model_error": has_model_error(run.usage),
        "usage": usage_json(run.usage),
    }


def _format_status(run: RunSummary) -> str:
    """Return the status of a run for people; a run that succeeded with a model's error is marked."""
    return f"{run.status} (model error)" if has_model_error(run.usage) else run.status


def _format_usage(usage: Mapping[str, int]) -> str:
    """Return the usage of models on one line, with the number of calls whose price is unknown."""
    counted = f"{usage.get('calls', 0):,} calls, {usage.get('total_tokens', 0):,} tokens"
    costs = ", ".join(f"{amount:g} {currency}" for currency, amount in (usage_json(usage).get("cost") or {}).items())
    unpriced = usage.get(UNPRICED, 0)
    unknown = f"{unpriced:,} calls of unknown price" if unpriced else ""
    return ", ".join(filter(None, (counted, costs, unknown)))


def _format_duration(run: RunSummary) -> str:
    """Return the duration of a run that is over, else ""."""
    if run.finished_at is None:
        return ""
    return output.format_seconds((run.finished_at - (run.started_at or run.created_at)).total_seconds())
