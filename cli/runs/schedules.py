"""Schedules: `easel schedule create`, `list`, `show`, `pause`, `resume`, `trigger`, `delete`."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import typer

from canvas.errors import NotFound
from canvas.ids import TenantId
from cli.agents import agents
from cli.runs import inputs
from cli.shell import output
from cli.shell.connection import find_tenant_id, open_connection
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
    Tokens,
)
from scheduler.schedules import changes, slots
from scheduler.schedules.firing import Firing
from scheduler.schedules.schedule_json import fire_json, schedule_json, status_of
from store.agents import schedules
from store.agents.schedules import Schedule
from store.db.transaction import Transaction
from store.monitoring import server_info

schedule = typer.Typer(help="Schedules: start runs of an agent at times.", no_args_is_help=True)

SHOWN_SLOTS = 5
SHOWN_FIRES = 10

Named = Annotated[str, typer.Argument(help="The schedule, by id or name.", metavar="SCHEDULE")]
Agent = Annotated[str, typer.Argument(help="The agent, by id or title.", metavar="AGENT")]


@schedule.command()
def create(
    agent: Agent,
    cron: Annotated[
        str | None, typer.Option(help="Five fields: `30 7 * * mon-fri`; or @hourly, @daily.", metavar="EXPRESSION")
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Time zone of --cron, such as Europe/Berlin; by default UTC.", metavar="ZONE")
    ] = None,
    every: Annotated[int | None, typer.Option(help="A run every so many seconds.", metavar="SECONDS")] = None,
    offset: Annotated[int | None, typer.Option(help="Seconds by which --every is moved.", metavar="SECONDS")] = None,
    at: Annotated[
        str | None, typer.Option(help="One run at this time: 2027-01-01T09:00+01:00.", metavar="TIME")
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for lists.", metavar="TEXT")] = None,
    query: Query = None,
    pairs: Pairs = None,
    all_inputs: Inputs = None,
    user: Annotated[str | None, typer.Option(help="The user of the runs.", metavar="TEXT")] = None,
    version: Annotated[
        str | None, typer.Option(help="`latest`, `draft`, or the id of a version; by default the draft.", metavar="ID")
    ] = None,
    release: Released = False,
    session: Annotated[str, typer.Option(help="`new` for each run, or the `same` for all.", metavar="POLICY")] = "new",
    overlap: Annotated[
        str,
        typer.Option(help="While a run is open: `skip`, `enqueue`, `cancel_previous` or `allow`.", metavar="POLICY"),
    ] = "skip",
    catch_up: Annotated[
        str | None, typer.Option(help="How old a late slot may be: 30m, 12h, 7d; by default 1h.", metavar="TIME")
    ] = None,
    catch_up_at_most: Annotated[
        int | None, typer.Option(help="How many late slots are fired; by default 1.", metavar="N")
    ] = None,
    end_at: Annotated[str | None, typer.Option(help="No slot is later than this.", metavar="TIME")] = None,
    max_runs: Annotated[int | None, typer.Option(help="End after this number of runs.", metavar="N")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Create it paused.")] = False,
    tokens: Tokens = None,
    calls: Calls = None,
    seconds: Seconds = None,
    money: Money = None,
    currency: Currency = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Create a schedule of an agent and print its id."""
    start = {
        "query": query,
        "inputs": inputs.parse_inputs(pairs, all_inputs),
        "user_id": user,
        "version": version,
        "release": release or None,
        "budget": inputs.parse_budget(tokens, calls, seconds, money, currency),
    }
    window = inputs.parse_duration(catch_up, "--catch-up") if catch_up is not None else None
    caught_up = {
        "window_seconds": int(window.total_seconds()) if window is not None else None,
        "at_most": catch_up_at_most,
    }
    fields = {
        "name": name,
        "spec": _set({"cron": cron, "time_zone": time_zone, "every_seconds": every, "offset": offset, "at": at}),
        "start": _set(start),
        "session": session,
        "overlap": overlap,
        "catch_up": _set(caught_up),
        "end_at": end_at,
        "max_runs": max_runs,
        "paused": paused,
    }
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            now = server_info.read_clock(tx)
            made = changes.create(tx, tenant_id, agents.find(tx, tenant_id, agent).id, fields, now=now)
        connection.bus.publish_schedule_change()
    _print(made, as_json=as_json)


@schedule.command("list")
def list_all(
    agent: Annotated[str | None, typer.Option(help="Only those of this agent.", metavar="AGENT")] = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """List schedules, the oldest first."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        canvas_id = agents.find(tx, tenant_id, agent).id if agent is not None else None
        found = schedules.list_schedules(tx, tenant_id, canvas_id=canvas_id, most=schedules.MAX_SCHEDULES)
    if as_json:
        for each in found:
            output.print_json(schedule_json(each))
        return
    rows = [
        {
            "id": each.id.hex,
            "name": each.name,
            "when": changes.describe_spec(slots.parse_spec(each.spec)),
            "status": status_of(each),
            "next": each.next_at,
            "last": each.last_at,
            "runs": each.started,
        }
        for each in found
    ]
    columns = ("id", "name", "when", "status", "next", "last", "runs")
    output.print_table(rows, columns, as_json=False, empty="There are no schedules. `easel schedule create` adds one.")


@schedule.command()
def show(named: Named, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Show a schedule with its next slots, and what came of the last ones."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = _find(tx, tenant_id, named)
        fires = schedules.list_fires(tx, tenant_id, found.id, most=SHOWN_FIRES)
    following = _next_slots(found)
    if as_json:
        shown = {"next_slots": [slot.isoformat() for slot in following], "fires": [fire_json(fire) for fire in fires]}
        output.print_json({**schedule_json(found), **shown})
        return
    output.print_line(f"{found.name}  {found.id.hex}")
    output.print_line(f"agent {found.canvas_id.hex}, {changes.describe_spec(slots.parse_spec(found.spec))}")
    output.print_line(f"{status_of(found)}, overlap {found.overlap}, session {found.session}, runs {found.started}")
    if found.paused_reason:
        output.print_line(f"paused: {found.paused_reason}")
    for slot in following:
        output.print_line(f"next  {output.format_time(slot)}")
    for fire in fires:
        run_id = fire.run_id.hex if fire.run_id is not None else ""
        what = "  ".join(filter(None, (output.format_time(fire.slot), fire.outcome, run_id, fire.reason)))
        output.print_line(f"slot  {what}")


@schedule.command()
def pause(
    named: Named,
    reason: Annotated[str, typer.Option(help="Why; the schedule shows it.", metavar="TEXT")] = "",
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Pause a schedule: no slot is fired until it is resumed."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found, now = _find(tx, tenant_id, named), server_info.read_clock(tx)
        after = changes.pause(tx, tenant_id, found.id, reason, now=now)
    _print(after, as_json=as_json)


@schedule.command()
def resume(named: Named, tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Resume a schedule at its next slot. Slots of the pause are not caught up."""
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            found, now = _find(tx, tenant_id, named), server_info.read_clock(tx)
            after = changes.resume(tx, tenant_id, found.id, now=now)
        connection.bus.publish_schedule_change()
    _print(after, as_json=as_json)


@schedule.command()
def trigger(
    named: Named,
    overlap: Annotated[
        str | None, typer.Option(help="The policy of this run instead of the schedule's.", metavar="POLICY")
    ] = None,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """Start a run of a schedule now and print the id of the run. The slots of the schedule stay as they are."""
    if overlap is not None and overlap not in changes.OVERLAPS:
        known = ", ".join(changes.OVERLAPS)
        raise typer.BadParameter(f"{overlap!r} is not a policy. Use one of: {known}.", param_hint="--overlap")
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            found = _find(tx, tenant_id, named)
        started, _ = Firing(connection.lifecycle).trigger(tenant_id, found.id, overlap)
    if as_json:
        output.print_json({"run_id": started.run_id.hex, "session_id": started.conversation_id.hex})
    else:
        output.print_line(started.run_id.hex)


@schedule.command()
def delete(named: Named, tenant: OfTenant = LOCAL_TENANT) -> None:
    """Delete a schedule. Its runs stay."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = _find(tx, tenant_id, named)
        schedules.delete_schedule(tx, tenant_id, found.id)
    output.print_message(f"Schedule {found.name} is deleted.")


def _find(tx: Transaction, tenant_id: TenantId, named: str) -> Schedule:
    """Return the schedule of that id or name. Raises NotFound, also for a name that several have."""
    try:
        return schedules.get(tx, tenant_id, UUID(named))
    except ValueError:
        pass
    listed = schedules.list_schedules(tx, tenant_id, canvas_id=None, most=schedules.MAX_SCHEDULES)
    found = [each for each in listed if each.name == named]
    if len(found) > 1:
        raise NotFound(f'{len(found)} schedules have the name "{named}". Use an id: `easel schedule list`.')
    if not found:
        raise NotFound(f'There is no schedule "{named}". `easel schedule list` lists them.')
    return found[0]


def _next_slots(found: Schedule) -> list[datetime]:
    if found.next_at is None:
        return []
    later = slots.next_slots(slots.parse_spec(found.spec), found.next_at, SHOWN_SLOTS - 1, until=found.end_at)
    return [found.next_at, *later]


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that are set."""
    return {name: value for name, value in values.items() if value is not None}


def _print(found: Schedule, *, as_json: bool) -> None:
    if as_json:
        output.print_json(schedule_json(found))
        return
    output.print_line(found.id.hex)
    following = f"next {output.format_time(found.next_at)}" if found.next_at is not None else status_of(found)
    output.print_message(f"{found.name}: {following}")
