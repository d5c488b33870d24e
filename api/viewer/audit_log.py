"""The route of the audit log: who changed, published, deleted or cancelled what (store/tenants/audit.py)."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.query_values import parse_number, parse_position, parse_time, split_list
from api.http.replies import json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.requests.auth import Viewer
from api.requests.dependencies import ApiContextDep
from api.requests.scopes import NEEDS_ADMIN
from api.viewer.reply_models import AuditReply
from canvas.errors import InvalidRequest
from scheduler.views.json_values import hex_of, iso
from store.monitoring import server_info
from store.tenants import audit
from store.tenants.audit import ACTORS, LAST_ID, Action, AuditEntry, AuditFilter

router = APIRouter(tags=["audit log"], route_class=OwnRoute, dependencies=[NEEDS_ADMIN])

MAX_LIMIT = 100  # entries of a page


@router.get("/audit", response_model=AuditReply)
def list_entries(
    context: ApiContextDep,
    principal: Viewer,
    action: str = "",
    object_id: str = "",
    actor: str = "",
    since: str = "",
    until: str = "",
    before: str = "",
    limit: str = "50",
) -> Response:
    """List the tenant's audit log, the newest first.

    `action`: a comma list of actions, or of kinds of objects (`agent` for `agent.created`, …). `object_id`: the id of
    an agent, a run, …. `actor`: token, sign_in, share_link, share or command_line, or the id of one. `next` is the
    `before` of the next page.
    """
    most = parse_number("limit", limit, MAX_LIMIT)
    parsed = parse_id(object_id)
    actor_id = parse_id(actor) if actor and actor not in ACTORS else None
    if actor and actor not in ACTORS and actor_id is None:
        message = f"`actor` is {actor[:64]!r}. Use an id, or one of: {', '.join(ACTORS)}."
        raise InvalidRequest(message, field="actor")
    chosen = AuditFilter(
        actions=_parse_actions(action) if action else None,
        object_id=(parsed.hex if parsed is not None else object_id) if object_id else None,
        actors=[actor] if actor in ACTORS else None,
        actor_id=actor_id,
        since=parse_time("since", since) if since else None,
        until=parse_time("until", until) if until else None,
    )
    with context.database.transaction() as tx:
        now = server_info.read_clock(tx)
        last = parse_position("before", before) or LAST_ID
        found = audit.list_entries(tx, principal.tenant_id, chosen, before=last, limit=most + 1)
    shown = [entry_json(each) for each in found[:most]]
    return json_reply({"now": iso(now), "entries": shown, "next": shown[-1]["id"] if len(found) > most else None})


def entry_json(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry as lists show it."""
    return {
        "id": entry.id.hex,
        "at": iso(entry.at),
        "last_at": iso(entry.last_at),
        "times": entry.times,
        "actor": {
            "kind": entry.actor,
            "id": hex_of(entry.actor_id),
            "token_id": hex_of(entry.token_id),
            "name": entry.actor_name,
        },
        "action": entry.action,
        "object": {"kind": entry.action.partition(".")[0], "id": entry.object_id or None},
        "details": entry.details,
        "request_id": entry.request_id,
    }


def _parse_actions(written: str) -> list[str]:
    """Return the actions of a comma list. Raises InvalidRequest for an unknown one."""
    found: list[str] = []
    for each in split_list("action", written, len(Action)):
        matching = [known.value for known in Action if each in (known.value, known.object_kind)]
        if not matching:
            listed = ", ".join(known.value for known in Action)
            raise InvalidRequest(f"`action` has {each[:64]!r}. Use some of: {listed}.", field="action")
        found += matching
    return found
