"""What an attempt may spend on models: each call reserves its estimate in the budgets, and settles what it used.

Only calls of runs that a budget applies to are reserved (`Claim.budgeted`); all others do not wait. A budget may be set
while an attempt works: the claim tells for its first call, and before each further call the run's row is read. The rows
are in store/tenants/budgets.py, the rule in canvas/budget.py.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from canvas import budget
from canvas.budget import CostEstimate, Deferred, Denied, Granted
from canvas.errors import BudgetExceeded
from providers.models.billing.cost_estimates import CostModel, amounts_of, estimates_for
from providers.models.billing.fixed_price import Price
from providers.models.types.chat import ModelSpec, Usage
from store.db.database import Database
from store.db.db_errors import is_outage
from store.primitives.ids import new_id
from store.runs.activations import Claim
from store.tenants import budgets

log = structlog.get_logger()

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 0.5  # seconds until a call that waits for others tries again
RELEASE_ORPHANS_EVERY = 4  # tries: then the reservations of lost attempts are released
SETTLE_RETRY_DELAYS = (0.0, 0.2, 0.5, 1.0, 2.0)  # seconds before each try to store what a call has used


@dataclass(slots=True)
class RunBudget:
    """The budgets of one attempt."""

    claim: Claim
    database: Database
    cost_model: CostModel
    count_refusal: Callable[[str, str], None] = lambda scope, measure: None  # counts a refusal
    is_budgeted: bool = True  # whether a budget applies, as far as the attempt knows
    _has_asked: bool = False

    async def is_limited(self) -> bool:
        """Return whether a budget applies to the next call. A budget that once applied continues to.

        Each call but the first reads the run's row by its key, because a budget that is set in the middle of a run
        holds from the next call. No other statement could carry this read: renewals come every few seconds, and an
        Agent's journal entry comes before its tools have worked. One round trip is little compared to a model call.
        """
        if not self.is_budgeted and self._has_asked:
            self.is_budgeted = await asyncio.to_thread(self._read_is_budgeted)
        self._has_asked = True
        return self.is_budgeted

    async def reserve(self, spec: ModelSpec, estimates: Mapping[str, CostEstimate], price: Price | None) -> UUID | None:
        """Reserve what a call may need; return the reservation, None if no limit applies.

        Waits while running calls hold what it needs. Raises BudgetExceeded if the call must not begin.
        """
        reservation, pause, looks = new_id(), FIRST_PAUSE, 0
        while True:
            verdict = await asyncio.to_thread(self._authorize, reservation, estimates, price)
            match verdict:
                case Granted(amounts):
                    return reservation if amounts else None
                case Denied() as refused:
                    log.info("budget_refused", scope=refused.account.scope, measure=refused.account.measure)
                    self.count_refusal(refused.account.scope, refused.account.measure)
                    raise BudgetExceeded(
                        budget.denial_message(refused, spec.id), **budget.denial_json(refused, spec.id)
                    )
                case Deferred():
                    looks += 1
                    if looks % RELEASE_ORPHANS_EVERY == 0:
                        await asyncio.to_thread(self._release_orphans)
            await self.cost_model.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    async def settle(self, reservation: UUID, usage: Usage) -> None:
        """Store what a call has used, even if the attempt is cancelled meanwhile."""
        settling = asyncio.to_thread(self._settle, reservation, amounts_of(usage))
        await asyncio.shield(asyncio.ensure_future(settling))

    def _read_is_budgeted(self) -> bool:
        with self.database.statements() as tx:
            return budgets.is_flagged(tx, self.claim.tenant_id, self.claim.run_id)

    def _authorize(
        self, reservation: UUID, asks: Mapping[str, CostEstimate], price: Price | None
    ) -> Granted | Deferred | Denied:
        today = self.cost_model.now().astimezone(UTC).date()
        with self.database.transaction() as tx:
            budget_rows = budgets.lock_for_attempt(tx, self.claim, today)
            accounts = [each.account for each in budget_rows]
            verdict = budget.authorize(accounts, estimates_for(accounts, asks, price))
            if isinstance(verdict, Granted) and budget_rows:
                budgets.reserve(tx, reservation, self.claim, budget_rows, verdict.amounts)
        return verdict

    def _settle(self, reservation: UUID, used: Mapping[str, int]) -> None:
        for pause in SETTLE_RETRY_DELAYS:
            if pause:
                time.sleep(pause)
            try:
                with self.database.transaction() as tx:
                    budgets.settle(tx, reservation, used)
                return
            except SQLAlchemyError as error:
                if not is_outage(error):
                    raise
        log.warning("budget_not_settled", run_id=str(self.claim.run_id), used=dict(used))

    def _release_orphans(self) -> None:
        with self.database.transaction() as tx:
            budgets.release_orphans(tx)
