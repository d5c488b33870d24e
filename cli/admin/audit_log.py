"""The audit log: `easel audit`."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from canvas.errors import InvalidRequest
from cli.runs.inputs import parse_duration
from cli.shell import output
from cli.shell.connection import find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, OfTenant
from store.runs.external_ids import uuid_of
from store.tenants.audit import ACTORS, Action, AuditEntry, AuditFilter, list_entries


def audit(
    action: Annotated[
        list[str] | None,
        typer.Option(help="Only this action, or all of a kind: agent.published, agent; repeatable.", metavar="ACTION"),
    ] = None,
    object_id: Annotated[
        str | None, typer.Option("--object", help="Only what was done to this agent, run, token, …", metavar="ID")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(help=f"Only by this token, or by one of {', '.join(ACTORS)}.", metavar="ACTOR")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only of the last 30d, 12h, 90m.", metavar="TIME")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of entries.", min=1, max=1000)] = 50,
    tenant: OfTenant = LOCAL_TENANT,
    as_json: AsJson = False,
) -> None:
    """List who changed, published, deleted or cancelled what, the newest first."""
    actor_id = uuid_of(actor) if actor is not None and actor not in ACTORS else None
    if actor is not None and actor not in ACTORS and actor_id is None:
        raise InvalidRequest(f"--actor {actor!r} is not an id. Use one, or one of: {', '.join(ACTORS)}.")
    written = uuid_of(object_id) if object_id is not None else None
    chosen = AuditFilter(
        actions=[known for each in action for known in _actions_of(each)] if action else None,
        object_id=written.hex if written is not None else object_id,
        actors=[actor] if actor in ACTORS else None,
        actor_id=actor_id,
        since=datetime.now(UTC) - parse_duration(since, "--since") if since is not None else None,
    )
    with open_connection() as connection, connection.database.transaction() as tx:
        found = list_entries(tx, find_tenant_id(tx, tenant), chosen, limit=limit)
    columns = ("at", "actor", "name", "action", "object", "times", "details")
    output.print_table(
        [_row(entry, as_json=as_json) for entry in found], columns, as_json=as_json, empty="There are no entries."
    )


def _actions_of(written: str) -> list[str]:
    matching = [known.value for known in Action if written in (known.value, known.object_kind)]
    if not matching:
        raise InvalidRequest(f"--action {written!r} is unknown. Use some of: {', '.join(Action)}.")
    return matching


def _row(entry: AuditEntry, *, as_json: bool) -> dict[str, Any]:
    details = entry.details if as_json else " ".join(f"{name}={value}" for name, value in entry.details.items())
    row = {
        "at": entry.at,
        "actor": entry.actor,
        "name": entry.actor_name,
        "action": entry.action,
        "object": entry.object_id,
        "times": entry.times,
        "details": details,
    }
    if not as_json:
        return row
    ids = {"actor_id": entry.actor_id, "token_id": entry.token_id}
    return {
        "id": entry.id.hex,
        **row,
        "last_at": entry.last_at,
        **{name: value.hex if value is not None else None for name, value in ids.items()},
        "request_id": entry.request_id,
    }
