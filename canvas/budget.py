"""Budgets: limits on tokens, model calls, money, and for one run on its time.

Each measure is a whole number: tokens, calls, milliseconds, and money in billionths of its currency, so sums are exact.
Before a model call, the estimated need of the call is reserved in every budget that applies to it; after the call, its
usage replaces the reservation. `authorize` is the whole rule. It guarantees that at most one call exceeds a limit, by
what that call uses above what was left.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast

from canvas.errors import InvalidRequest
from canvas.run_warnings import COUNTED

Scope: TypeAlias = Literal["run", "session", "tenant", "day"]
SCOPES: tuple[Scope, ...] = ("run", "session", "tenant", "day")
"""What a budget applies to: one run, one session, all runs of a tenant, and those of one day (UTC)."""

TOKENS, CALLS, SECONDS = "tokens", "calls", "seconds"
BILLION = 1_000_000_000
EXCEEDED = "budget_exceeded"
DENIAL_KEY = "budget"
"""Key, in the form of a run that waits for a higher budget, of the refusal that stopped it."""

INITIAL_CALLS = 8
"""Calls that may begin at once under a budget as long as the usage of its calls is not known."""

_CURRENCY = re.compile("[A-Z]{3}")
_LARGEST = 10**15  # what a limit may be, in its own unit; its billionths still fit a column
_BUDGET_NAMES: Mapping[str, str] = {
    "run": "The run's budget",
    "session": "The session's budget",
    "tenant": "The tenant's budget",
    "day": "The tenant's budget of the day (UTC)",
}


@dataclass(frozen=True, slots=True)
class Account:
    """The state of one budget: its limit, what is spent, and what calls in flight have reserved."""

    scope: Scope
    measure: str
    limit: int
    spent: int
    reserved: int
    largest: int = 0  # the largest usage of one call so far


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a call needs of a measure: it does not begin with less than `least`, and rarely uses more than `most`.

    Tokens are estimated, so the usage of earlier calls is a better guide; `is_known`: the amount is exact.
    """

    least: int
    most: int
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """The call may begin. `amounts` is what it reserves in each account, in their order."""

    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Deferred:
    """The call may begin later: other calls in flight have reserved what it needs."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The call must not begin: the account cannot cover what it needs, or its cost is not known (None)."""

    account: Account
    needed: int | None


def authorize(accounts: Sequence[Account], estimates: Mapping[str, CostEstimate]) -> Granted | Deferred | Denied:
    """Decide whether a call that all of these budgets apply to may begin.

    A call reserves all it may need or, with no other call in flight, what is left. So only one call at a time can
    exceed a limit.
    """
    amounts: list[int | None] = []
    for account in accounts:
        ask = estimates.get(account.measure)
        if ask is None:
            return Denied(account, None)
        if account.spent + ask.least > account.limit:
            return Denied(account, ask.least)
        available = account.limit - account.spent - account.reserved
        needed = _amount_to_reserve(account, ask)
        amounts.append(needed if available >= needed else None if account.reserved > 0 else available)
    granted = tuple(amount for amount in amounts if amount is not None)
    return Granted(granted) if len(granted) == len(amounts) else Deferred()


def _amount_to_reserve(account: Account, ask: CostEstimate) -> int:
    """Return what a call reserves. Before the first call has ended it is large, so that few calls begin at once."""
    if ask.is_known or not ask.most:
        return ask.most
    return max(ask.most, account.largest or account.limit // INITIAL_CALLS)


# -- limits in requests and settings ---------------------------------------------------------------------------------
def parse_limits(written: Any, field: str = "budget") -> dict[str, int]:
    """Parse limits, `{"tokens": 10000, "calls": 20, "seconds": 600, "money": 0.5, "currency": "USD"}`, by measure.

    Raises InvalidRequest, naming the field, for an invalid limit.
    """
    if not isinstance(written, Mapping):
        example = '{"tokens": 10000, "calls": 20, "seconds": 600, "money": 0.5}'
        raise _invalid_limit(field, f"must be an object. Write it as {example}.")
    limits = {str(name): value for name, value in cast("Mapping[Any, Any]", written).items() if value is not None}
    unknown = sorted(limits.keys() - {TOKENS, CALLS, SECONDS, "money", "currency"})
    if unknown:
        raise _invalid_limit(f"{field}.{unknown[0]}", "cannot be limited. Use tokens, calls, seconds and money.")
    currency = limits.get("currency", "USD")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise _invalid_limit(f"{field}.currency", "must be a code of three letters: USD, EUR, CNY.")
    units = {TOKENS: (TOKENS, 1), CALLS: (CALLS, 1), SECONDS: (SECONDS, 1000), "money": (currency, BILLION)}
    return {
        measure: _amount(limits[name], unit, f"{field}.{name}", is_whole=unit == 1)
        for name, (measure, unit) in units.items()
        if name in limits
    }


def parse_scope(written: str) -> Scope:
    """Parse the name of a scope. Raises InvalidRequest."""
    if written not in SCOPES:
        raise InvalidRequest(f"{written!r} has no budget. Use one of: {', '.join(SCOPES)}.", field="scope")
    return written


def is_money(measure: str) -> bool:
    """Whether a measure is a currency."""
    return _CURRENCY.fullmatch(measure) is not None


def display_amount(measure: str, amount: int) -> int | float:
    """Return an amount in its display unit: tokens, calls, seconds, or the currency."""
    if measure == SECONDS:
        return amount / 1000
    return float(Decimal(amount) / BILLION) if is_money(measure) else amount


def format_amount(measure: str, amount: int) -> str:
    """Format an amount: `10,000 tokens`, `0.5 USD`, `90 seconds`."""
    if is_money(measure):
        return f"{(Decimal(amount) / BILLION).normalize():f} {measure}"
    number = f"{amount / 1000:g}" if measure == SECONDS else f"{amount:,}"
    return f"{number} {measure.removesuffix('s') if number == '1' else measure}"


def _amount(value: Any, unit: int, field: str, *, is_whole: bool) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _invalid_limit(field, f"is {value!r}. It must be a number.")
    if not 0 <= value * (unit if unit > 1 else 1) <= _LARGEST * 1000 or (is_whole and value != int(value)):
        raise _invalid_limit(field, f"is {value!r}. Give {'a whole number' if is_whole else 'a number'} from 0 on.")
    return int(Decimal(str(value)) * unit)


def _invalid_limit(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"`{field}` {problem}", field=field)


def account_json(account: Account) -> dict[str, Any]:
    """Return the state of a budget as JSON."""
    return {
        "scope": account.scope,
        **_measure_json(account.measure),
        "limit": display_amount(account.measure, account.limit),
        "spent": display_amount(account.measure, account.spent),
        "reserved": display_amount(account.measure, account.reserved),
    }


def _measure_json(measure: str) -> dict[str, str]:
    return {"measure": "money", "currency": measure} if is_money(measure) else {"measure": measure}


# -- denied calls ----------------------------------------------------------------------------------------------------
def denial_json(denied: Denied, model: str) -> dict[str, Any]:
    """Return a denied call as JSON: the budget's scope, measure, limit and spent amount, and what the call needs."""
    account = denied.account
    measure = account.measure
    return {
        "code": EXCEEDED,
        "scope": account.scope,
        **_measure_json(measure),
        "limit": display_amount(measure, account.limit),
        "spent": display_amount(measure, account.spent),
        "asked": display_amount(measure, denied.needed) if denied.needed is not None else None,
        "model": model,
    }


def denial_message(denied: Denied, model: str, then: str = "resume the run") -> str:
    """Return the error of a denied call: which budget denied it, and what to do. `then`: the step after raising it."""
    account = denied.account
    limit = format_amount(account.measure, account.limit)
    if denied.needed is None:
        return (
            f"{_BUDGET_NAMES[account.scope]} is {limit}, "
            f"and what a call of {model} costs in {account.measure} is not known. "
            "Give its price in the file that EASEL_PRICES_FILE names or in the account of its vendor, "
            "or limit tokens instead."
        )
    return (
        f"{_BUDGET_NAMES[account.scope]} of {limit} is used up. "
        f"Spent: {format_amount(account.measure, account.spent)}; "
        f"needed for the next call of {model}: {format_amount(account.measure, denied.needed)}. "
        f"Raise the budget, and {then}."
    )


def time_budget_error(limit_ms: int) -> str:
    """Return the error of a run that has used up its time budget."""
    return f"The run has used up its time of {format_amount(SECONDS, limit_ms)}. Start it again with more."


# -- forms of runs that wait for a higher budget ---------------------------------------------------------------------
def budget_form(called: str, reason: str, denied: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the form (fields, prompt) of a node that a budget stopped before a call; the answer `again` continues it.

    called: the name of the form's field. denied: the denied call, from `details`.
    """
    field = {"type": "options", "name": "Go on", "options": ["again"], "optional": False, "value": None}
    return {called: {**field, DENIAL_KEY: dict(denied)}}, reason


def budget_stop(inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the denied call (from `details`) in a form of a node that a budget stopped; None for any other form."""
    for field in inputs.values():
        denied = cast("Mapping[str, Any]", field).get(DENIAL_KEY) if isinstance(field, Mapping) else None
        if isinstance(denied, Mapping):
            return cast("Mapping[str, Any]", denied)
    return None


# -- usage -----------------------------------------------------------------------------------------------------------
COST = "cost_"
"""Prefix of a currency in stored usage; the amount is in billionths."""
UNPRICED = "unpriced_calls"
OF = "of_"
"""Prefix, in stored usage, of what models other than chat models used: `of_embedding_tokens`. The sums include it."""


def usage_json(usage: Mapping[str, int]) -> dict[str, Any]:
    """Return stored usage as JSON: money by currency; `unpriced_calls` counts calls that it does not include.

    `kinds` has the part that models other than chat models used: {"embedding": {"calls": 1, "tokens": 7}}.
    """
    shown: dict[str, Any] = {
        name: count for name, count in usage.items() if name not in COUNTED and not name.startswith((COST, OF))
    }
    kinds: dict[str, dict[str, int]] = {}
    for name in sorted(name for name in usage if name.startswith(OF)):
        kind, _, counted = name.removeprefix(OF).rpartition("_")
        kinds.setdefault(kind, {})[counted] = usage[name]
    if kinds:
        shown["kinds"] = kinds
    costs = {
        name.removeprefix(COST): display_amount(name.removeprefix(COST), n)
        for name, n in usage.items()
        if name.startswith(COST)
    }
    if costs:
        shown["cost"] = costs
    elif usage.get(UNPRICED):
        shown["cost"] = None  # the cost is unknown, not 0
    return shown
