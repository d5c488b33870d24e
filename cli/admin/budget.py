"""Budgets: `easel budget set`, `show`, `clear`."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from canvas.budget import SCOPES, Scope, account_json, format_amount, parse_limits, parse_scope
from canvas.errors import InvalidRequest, NotFound
from canvas.ids import TenantId
from cli.runs import inputs
from cli.shell import output
from cli.shell.actor import find_actor
from cli.shell.connection import find_run_id, find_tenant_id, open_connection
from cli.shell.options import LOCAL_TENANT, AsJson, Calls, Currency, Money, OfTenant, Seconds, Tokens
from store.db.transaction import Transaction
from store.tables.budgets import DEFAULT_SCOPE_ID
from store.tenants import audit, budgets
from store.tenants.audit import Action
from store.tenants.budgets import BudgetLimits, BudgetRow

budget = typer.Typer(help="Budgets: limits for runs, sessions, a tenant and its days.", no_args_is_help=True)

ScopeArgument = Annotated[str, typer.Argument(help=f"One of {', '.join(SCOPES)}.", metavar="SCOPE")]
ScopeIdArgument = Annotated[str | None, typer.Argument(help="The run or session; by default every one.", metavar="ID")]


@budget.command("set")
def set_limits(
    scope: ScopeArgument,
    of: ScopeIdArgument = None,
    tokens: Tokens = None,
    calls: Calls = None,
    seconds: Seconds = None,
    money: Money = None,
    currency: Currency = None,
    tenant: OfTenant = LOCAL_TENANT,
) -> None:
    """Set limits of a budget; its other limits stay. They apply from the next model call of a run."""
    chosen = parse_scope(scope)
    limits = inputs.parse_budget(tokens, calls, seconds, money, currency)
    if limits is None:
        raise InvalidRequest("Add at least one limit: --tokens, --calls, --seconds or --money.")
    with open_connection() as connection:
        with connection.database.transaction() as tx:
            tenant_id = find_tenant_id(tx, tenant)
            scope_id = _scope_id(tx, chosen, of, tenant_id)
        written = BudgetLimits(chosen, scope_id, parse_limits(limits))
        connection.lifecycle.set_budget(tenant_id, written, by=find_actor())
    amounts = ", ".join(format_amount(measure, amount) for measure, amount in written.limits.items())
    output.print_message(f"{_name(chosen, of)} may spend {amounts}.")


@budget.command()
def show(tenant: OfTenant = LOCAL_TENANT, as_json: AsJson = False) -> None:
    """Show a tenant's budgets: limits, amounts spent, and amounts that running calls have reserved."""
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        found = budgets.list_budgets(tx, tenant_id, datetime.now(UTC).date())
    columns = ("scope", "id", "measure", "currency", "limit", "spent", "reserved")
    rows = [{"currency": "", **account_json(each.account), "id": _shown_id(each, tenant_id)} for each in found]
    output.print_table(rows, columns, as_json=as_json, empty="There are no budgets. `easel budget set day --tokens N`.")


@budget.command()
def clear(scope: ScopeArgument, of: ScopeIdArgument = None, tenant: OfTenant = LOCAL_TENANT) -> None:
    """Remove all limits of a budget."""
    chosen = parse_scope(scope)
    with open_connection() as connection, connection.database.transaction() as tx:
        tenant_id = find_tenant_id(tx, tenant)
        scope_id = _scope_id(tx, chosen, of, tenant_id)
        if not budgets.remove_limits(tx, tenant_id, chosen, scope_id):
            raise NotFound(f"{_name(chosen, of)} has no budget. `easel budget show` lists them.")
        logged = scope_id if scope_id not in (DEFAULT_SCOPE_ID, tenant_id) else None
        audit.record(tx, tenant_id, find_actor(), Action.BUDGET_REMOVED, logged, {"scope": chosen})
    output.print_message(f"{_name(chosen, of)} no longer has its own budget.")


def _scope_id(tx: Transaction, scope: Scope, of: str | None, tenant_id: TenantId) -> UUID:
    if scope in ("tenant", "day"):
        if of is not None:
            raise InvalidRequest(f"The scope {scope} takes no id: the budget is that of --tenant. Remove the id.")
        return tenant_id
    if of is None:
        return DEFAULT_SCOPE_ID
    return find_run_id(tx, tenant_id, of) if scope == "run" else inputs.parse_id(of, scope)


def _name(scope: Scope, of: str | None) -> str:
    if scope in ("tenant", "day"):
        return "The tenant" if scope == "tenant" else "The tenant's day"
    return f"{scope.capitalize()} {of}" if of is not None else f"Each {scope}"


def _shown_id(row: BudgetRow, tenant_id: TenantId) -> str:
    if row.scope_id == tenant_id:
        return ""
    return "each" if row.scope_id == DEFAULT_SCOPE_ID else row.scope_id.hex
