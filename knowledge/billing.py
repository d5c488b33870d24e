"""Billing of model calls outside of runs: ingestion of documents, extraction of memories, searches.

The tenant's budgets, total and daily, apply; budgets of runs do not. No lease stands behind such a call. So the
estimate is booked before the call, and the difference is returned after it. If the process ends in between, too much
stays booked and never too little.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas import budget
from canvas.budget import CostEstimate, Deferred, Denied, Granted
from canvas.errors import ModelError
from canvas.ids import TenantId
from providers.models.billing.budgeted_model import BudgetedModel
from providers.models.billing.cost_estimates import CostModel, amounts_of, estimates_for
from providers.models.billing.fixed_price import Price
from providers.models.billing.metering import MAX_WAIT, BillingContext
from providers.models.types.chat import ChatModel, ModelSpec, Usage
from store.db.database import Database
from store.db.db_errors import is_outage
from store.tenants import budgets
from store.tenants.budgets import BudgetRow

log = structlog.get_logger()

CHECK_INTERVAL = 0.2  # seconds between two checks of a call that waits for others
MAX_CHECKS = 300  # checks after which the call is refused


@dataclass(frozen=True, slots=True)
class Booking:
    """What was booked for a call before it began."""

    rows: Sequence[BudgetRow]
    amounts: Sequence[int]


@dataclass(frozen=True, slots=True)
class TenantBudget:
    """A tenant's budget for model calls outside of runs."""

    tenant_id: TenantId
    database: Database
    cost_model: CostModel

    async def is_limited(self) -> bool:
        return True

    async def reserve(
        self, spec: ModelSpec, estimates: Mapping[str, CostEstimate], price: Price | None
    ) -> Booking | None:
        """Book a call's estimate; return None if no budget applies. Raises ModelError if a budget forbids the call."""
        for _ in range(MAX_CHECKS):
            rows, verdict = await asyncio.to_thread(self._try_booking, estimates, price)
            match verdict:
                case Granted(amounts):
                    return Booking(rows, amounts) if rows else None
                case Denied():
                    log.info("budget_refused", scope=verdict.account.scope, measure=verdict.account.measure)
                    message = budget.denial_message(verdict, spec.id, "try again")
                    raise ModelError(message, kind=budget.EXCEEDED.upper(), **budget.denial_json(verdict, spec.id))
                case Deferred():
                    await self.cost_model.sleep(CHECK_INTERVAL)
        message = (
            f"Calls in flight reserve all of the tenant's budgets. No call of {spec.id} fits beside them. Try later."
        )
        raise ModelError(message, retryable=True)

    async def settle(self, reservation: Booking, usage: Usage) -> None:
        """Return the booked difference to the budgets, also if the caller is cancelled meanwhile."""
        settling = asyncio.to_thread(self._settle, reservation, amounts_of(usage))
        await asyncio.shield(asyncio.ensure_future(settling))

    def _try_booking(
        self, estimates: Mapping[str, CostEstimate], price: Price | None
    ) -> tuple[list[BudgetRow], Granted | Deferred | Denied]:
        today = self.cost_model.now().astimezone(UTC).date()
        with self.database.transaction() as tx:
            rows = budgets.lock_for_tenant(tx, self.tenant_id, today)
            accounts = [each.account for each in rows]
            verdict = budget.authorize(accounts, estimates_for(accounts, estimates, price))
            if isinstance(verdict, Granted) and rows:
                budgets.spend(tx, self.tenant_id, rows, verdict.amounts)
        return rows, verdict

    def _settle(self, booking: Booking, used: Mapping[str, int]) -> None:
        pairs = zip(booking.rows, booking.amounts, strict=True)
        more = [used.get(each.account.measure, 0) - amount for each, amount in pairs]
        try:
            with self.database.transaction() as tx:
                budgets.spend(tx, self.tenant_id, booking.rows, more)
        except SQLAlchemyError as error:
            if not is_outage(error):
                raise
            log.warning("budget_not_settled", tenant_id=str(self.tenant_id), used=dict(used))


def tenant_billing(
    tenant_id: TenantId, database: Database, cost_model: CostModel | None = None, max_wait: float = MAX_WAIT
) -> BillingContext:
    """Return the billing context for calls outside of runs.

    `max_wait` is how many seconds a request may wait for the rate limit.
    """
    tenant_budget = TenantBudget(tenant_id, database, cost_model or CostModel())

    def paid(model: ChatModel) -> ChatModel:
        return BudgetedModel(model, tenant_budget)

    return BillingContext(budget=tenant_budget, wrap_model=paid, max_wait=max_wait)
