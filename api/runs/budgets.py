"""Budgets: what a tenant's runs, sessions and days may spend. Limits count from a run's next call of a model.

Those of one run or session are for whoever starts runs. Those that hold for a whole tenant hold for its programs too,
so no token that a program needs to start runs can set them: an `admin` token does, or `easel budget set`.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import APIRouter
from fastapi.responses import Response

from api.dependencies import Edge, TheEdge, in_thread
from api.http.auth import Caller, Principal
from api.http.replies import id_of, json_reply
from api.http.reply_styles import OwnRoute
from api.http.request_bodies import SmallBody, checked, described
from api.http.schemas import Budget
from canvas.budget import account_json, limits_of, scope_of
from canvas.errors import InvalidRequest, NotAllowed, NotFound
from store.runs import external_ids
from store.tables.budgets import DEFAULT_SCOPE_ID
from store.tenants import budgets
from store.tenants.budgets import BudgetLimits, BudgetRow

router = APIRouter(tags=["budgets"], route_class=OwnRoute)


@router.get("/budgets")
def list_budgets(edge: TheEdge, principal: Caller) -> Response:
    """All budgets of the caller's tenant, with what is spent and what calls under way have reserved."""
    return json_reply({"budgets": _shown(edge, principal)})


@router.put("/budgets", openapi_extra=described(Budget))
async def set_budget(edge: TheEdge, principal: Caller, body: SmallBody) -> Response:
    """Set limits of one run or session (`id`), of each, of the tenant, or of its day; others stay as they are."""
    wanted = checked(Budget, body)
    limits = limits_of(wanted.model_dump(exclude={"scope", "id"}))
    if not limits:
        raise InvalidRequest("Give at least one limit: tokens, calls, seconds or money.")
    scope_id = await in_thread(lambda: _writable(edge, principal, wanted.scope, wanted.id or ""))
    written = BudgetLimits(wanted.scope, scope_id, limits)
    await in_thread(lambda: edge.lifecycle.set_budget(principal.tenant_id, written))
    return json_reply({"budgets": await in_thread(lambda: _shown(edge, principal))})


@router.delete("/budgets")
def clear_budget(edge: TheEdge, principal: Caller, scope: str = "", id: str = "") -> Response:  # noqa: A002 (on the wire)
    """Take all limits of a budget away. What was spent in it is still known if it is set again."""
    known = scope_of(scope)
    scope_id = _writable(edge, principal, known, id)
    with edge.database.transaction() as tx:
        if not budgets.remove(tx, principal.tenant_id, known, scope_id):
            raise NotFound(f"There is no such budget of {scope} {id}".rstrip() + ".")
    return json_reply({"budgets": _shown(edge, principal)})


def _shown(edge: Edge, principal: Principal) -> list[dict[str, Any]]:
    with edge.database.transaction() as tx:
        found = budgets.list_budgets(tx, principal.tenant_id, datetime.now(UTC).date())
    return [{**account_json(each.account), "id": _id(principal, each)} for each in found]


def _id(principal: Principal, kept: BudgetRow) -> str | None:
    return None if kept.scope_id in (DEFAULT_SCOPE_ID, principal.tenant_id) else kept.scope_id.hex


def _writable(edge: Edge, principal: Principal, scope: str, written: str) -> UUID:
    """Whose budget it is, for a caller who may set it. Raises NotAllowed and NotFound."""
    found = _scope_id(edge, principal, scope, written)
    if found in (DEFAULT_SCOPE_ID, principal.tenant_id) and principal.kind != "admin":
        whose = "the tenant" if scope in ("tenant", "day") else f"each {scope}"
        raise NotAllowed(
            f"A budget of {whose} is set with a token of kind admin (`easel tokens create --kind admin`), or by "
            f"`easel budget set {scope}`. This token may set that of one run or session (`id`)."
        )
    return found


def _scope_id(edge: Edge, principal: Principal, scope: str, written: str) -> UUID:
    """Whose budget it is. Raises NotFound for what is no id."""
    if scope in ("tenant", "day"):
        return principal.tenant_id
    if not written:
        return DEFAULT_SCOPE_ID
    found = id_of(written)
    if scope == "run":  # an external id will do as well; a run that is gone may have left its budget
        with edge.database.statements() as tx:
            found = external_ids.find_run(tx, principal.tenant_id, written) or found
    if found is None:
        raise NotFound(f"There is no {scope} {written[:64]}.")
    return found
