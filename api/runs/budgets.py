"""Routes of budgets: limits for a tenant's runs, sessions and days. They apply from the next model call of a run.

Any API token may set the budget of one run or session. A budget of the whole tenant also limits the tenant's programs,
so the tokens of these programs must not change it: that needs an `admin` token or `easel budget set`.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from api.http.replies import json_reply, parse_id
from api.http.reply_styles import OwnRoute
from api.http.schemas import BudgetBody
from api.requests.auth import ApiTokenCaller, RequestPrincipal
from api.requests.dependencies import ApiContext, ApiContextDep, run_in_thread
from api.requests.request_bodies import SmallBody, body_openapi, parse_body
from api.requests.scopes import NEEDS_EDIT, NEEDS_READ
from canvas.budget import account_json, parse_limits, parse_scope
from canvas.errors import InvalidRequest, NotAllowed, NotFound
from store.runs import external_ids
from store.tables.budgets import DEFAULT_SCOPE_ID
from store.tenants import budgets
from store.tenants.audit import Action
from store.tenants.budgets import BudgetLimits, BudgetRow
from store.tenants.scopes import TokenScope

router = APIRouter(tags=["budgets"], route_class=OwnRoute, dependencies=[NEEDS_EDIT])


@router.get("/budgets", dependencies=[NEEDS_READ])
def list_budgets(context: ApiContextDep, principal: ApiTokenCaller) -> Response:
    """List all budgets of the tenant, with the amounts spent and those that running calls have reserved."""
    return json_reply({"budgets": _list_json(context, principal)})


@router.put("/budgets", openapi_extra=body_openapi(BudgetBody))
async def set_budget(context: ApiContextDep, principal: ApiTokenCaller, body: SmallBody) -> Response:
    """Set limits of one run or session (`id`), of every one, of the tenant, or of its day. Other limits stay."""
    fields = parse_body(BudgetBody, body)
    limits = parse_limits(fields.model_dump(exclude={"scope", "id"}))
    if not limits:
        raise InvalidRequest("Add at least one limit: tokens, calls, seconds or money.")
    scope_id = await run_in_thread(lambda: _require_writable(context, principal, fields.scope, fields.id or ""))
    written = BudgetLimits(fields.scope, scope_id, limits)
    await run_in_thread(lambda: context.lifecycle.set_budget(principal.tenant_id, written, by=principal.actor))
    return json_reply({"budgets": await run_in_thread(lambda: _list_json(context, principal))})


@router.delete("/budgets")
def clear_budget(context: ApiContextDep, principal: ApiTokenCaller, scope: str = "", id: str = "") -> Response:  # noqa: A002 (on the wire)
    """Remove all limits of a budget. The amounts spent remain if it is set again."""
    known = parse_scope(scope)
    scope_id = _require_writable(context, principal, known, id)
    with context.database.transaction() as tx:
        if not budgets.remove_limits(tx, principal.tenant_id, known, scope_id):
            raise NotFound(f"No budget is set for {scope} {id}".rstrip() + ".")
        is_one = scope_id not in (DEFAULT_SCOPE_ID, principal.tenant_id)
        of = scope_id if is_one else None
        principal.record(tx, Action.BUDGET_REMOVED, of, scope=known)
    return json_reply({"budgets": _list_json(context, principal)})


def _list_json(context: ApiContext, principal: RequestPrincipal) -> list[dict[str, Any]]:
    with context.database.transaction() as tx:
        found = budgets.list_budgets(tx, principal.tenant_id, datetime.now(UTC).date())
    return [{**account_json(each.account), "id": _id(principal, each)} for each in found]


def _id(principal: RequestPrincipal, row: BudgetRow) -> str | None:
    return None if row.scope_id in (DEFAULT_SCOPE_ID, principal.tenant_id) else row.scope_id.hex


def _require_writable(context: ApiContext, principal: RequestPrincipal, scope: str, written: str) -> UUID:
    """Return the id of the scope of a budget that the caller may set. Raises NotAllowed and NotFound."""
    found = _scope_id(context, principal, scope, written)
    if found in (DEFAULT_SCOPE_ID, principal.tenant_id) and not principal.has(TokenScope.ADMIN):
        whose = "the tenant" if scope in ("tenant", "day") else f"each {scope}"
        raise NotAllowed(
            f"A budget of {whose} is set with the scope `admin` (`easel tokens create --scope admin`), or by "
            f"`easel budget set {scope}`. This token may set that of one run or session (`id`)."
        )
    return found


def _scope_id(context: ApiContext, principal: RequestPrincipal, scope: str, written: str) -> UUID:
    """Return the id of the scope of a budget. Raises NotFound if the text is not an id."""
    if scope in ("tenant", "day"):
        return principal.tenant_id
    if not written:
        return DEFAULT_SCOPE_ID
    found = parse_id(written)
    if scope == "run":  # an external id is accepted too; the budget of a deleted run may still exist
        with context.database.statements() as tx:
            found = external_ids.find_run(tx, principal.tenant_id, written) or found
    if found is None:
        raise NotFound(f"There is no {scope} {written[:64]}.")
    return found
