"""What runs may spend: tokens, calls of models, money, and for one run the time it takes.

Each measure is a whole number: tokens, calls, milliseconds, and money in billionths of its currency, so that nothing is
lost by adding. Before a model is called, what the call may need is reserved in every budget that counts for it; after
it, what it has used takes that place. `judge` is the whole rule, and keeps each budget to this: beyond its limit goes
at most one call, by what that call uses above what was left.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeAlias, cast

from canvas.errors import InvalidRequest
from canvas.events.run_warnings import COUNTED

Scope: TypeAlias = Literal["run", "session", "tenant", "day"]
SCOPES: tuple[Scope, ...] = ("run", "session", "tenant", "day")
"""One run, one session, everything a tenant ever does, and what it does in a day (UTC)."""

TOKENS, CALLS, SECONDS = "tokens", "calls", "seconds"
BILLION = 1_000_000_000
EXCEEDED = "budget_exceeded"
MARK = "budget"
"""Where the form of a run that waits for a higher budget carries what has stopped it."""

AT_FIRST = 8
"""Calls that begin side by side under a budget of which nobody knows yet what its calls use."""

_CURRENCY = re.compile("[A-Z]{3}")
_LARGEST = 10**15  # what a limit may be, in its own unit; its billionths still fit a column
_WHOSE: Mapping[str, str] = {
    "run": "The run's budget",
    "session": "The session's budget",
    "tenant": "The tenant's budget",
    "day": "The tenant's budget of the day (UTC)",
}


@dataclass(frozen=True, slots=True)
class Account:
    """One budget as it stands: how much, what is spent, and what calls under way have reserved."""

    scope: Scope
    measure: str
    limit: int
    spent: int
    reserved: int
    largest: int = 0  # what one call has used so far, at most


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a call needs of a measure: it does not begin with less than `least`, and hardly uses more than `most`.

    Tokens are estimated, so what earlier calls have used says more; `is_known` where nothing is estimated.
    """

    least: int
    most: int
    is_known: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """The call may begin. What it reserves in each account, in their order."""

    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Deferred:
    """The call may begin once others have ended that have reserved what it needs."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The call must not begin. `asked` is None where nobody knows what it would cost."""

    account: Account
    asked: int | None


def authorize(accounts: Sequence[Account], asks: Mapping[str, CostEstimate]) -> Granted | Deferred | Denied:
    """Whether a call may begin that all of these budgets count for.

    A call gets all it may need, or, with nobody else under way, what is left. So only one call at a time can go
    beyond a limit.
    """
    amounts: list[int | None] = []
    for account in accounts:
        ask = asks.get(account.measure)
        if ask is None:
            return Denied(account, None)
        if account.spent + ask.least > account.limit:
            return Denied(account, ask.least)
        room = account.limit - account.spent - account.reserved
        wanted = _wanted(account, ask)
        amounts.append(wanted if room >= wanted else None if account.reserved > 0 else room)
    granted = tuple(amount for amount in amounts if amount is not None)
    return Granted(granted) if len(granted) == len(amounts) else Deferred()


def _wanted(account: Account, ask: CostEstimate) -> int:
    """What a call reserves. Until the first one has told what calls use here, few begin at once."""
    if ask.is_known or not ask.most:
        return ask.most
    return max(ask.most, account.largest or account.limit // AT_FIRST)


# -- limits as people write them -------------------------------------------------------------------------------------
def limits_of(written: Any, field: str = "budget") -> dict[str, int]:
    """Limits by measure, from `{"tokens": 10000, "calls": 20, "seconds": 600, "money": 0.5, "currency": "USD"}`.

    Raises InvalidRequest for what is no limit, naming the field.
    """
    if not isinstance(written, Mapping):
        raise _refused(field, 'is no object. Write it as {"tokens": 10000, "calls": 20, "seconds": 600, "money": 0.5}.')
    given = {str(name): value for name, value in cast("Mapping[Any, Any]", written).items() if value is not None}
    unknown = sorted(given.keys() - {TOKENS, CALLS, SECONDS, "money", "currency"})
    if unknown:
        raise _refused(f"{field}.{unknown[0]}", "is nothing that can be limited. Use tokens, calls, seconds and money.")
    currency = given.get("currency", "USD")
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise _refused(f"{field}.currency", "must be a code of three letters: USD, EUR, CNY.")
    units = {TOKENS: (TOKENS, 1), CALLS: (CALLS, 1), SECONDS: (SECONDS, 1000), "money": (currency, BILLION)}
    return {
        measure: _amount(given[name], unit, f"{field}.{name}", is_whole=unit == 1)
        for name, (measure, unit) in units.items()
        if name in given
    }


def scope_of(written: str) -> Scope:
    """The scope of that name. Raises InvalidRequest, which names those there are."""
    if written not in SCOPES:
        raise InvalidRequest(f"{written!r} has no budget. Use one of: {', '.join(SCOPES)}.", field="scope")
    return written


def is_money(measure: str) -> bool:
    """Whether a measure is a currency."""
    return _CURRENCY.fullmatch(measure) is not None


def display_amount(measure: str, amount: int) -> int | float:
    """An amount in the unit people know: tokens, calls, seconds, or the currency."""
    if measure == SECONDS:
        return amount / 1000
    return float(Decimal(amount) / BILLION) if is_money(measure) else amount


def format_amount(measure: str, amount: int) -> str:
    """An amount as it is told: `10,000 tokens`, `0.5 USD`, `90 seconds`."""
    if is_money(measure):
        return f"{(Decimal(amount) / BILLION).normalize():f} {measure}"
    number = f"{amount / 1000:g}" if measure == SECONDS else f"{amount:,}"
    return f"{number} {measure.removesuffix('s') if number == '1' else measure}"


def _amount(value: Any, unit: int, field: str, *, is_whole: bool) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _refused(field, f"is {value!r}, which is no number.")
    if not 0 <= value * (unit if unit > 1 else 1) <= _LARGEST * 1000 or (is_whole and value != int(value)):
        raise _refused(field, f"is {value!r}. Give {'a whole number' if is_whole else 'a number'} from 0 on.")
    return int(Decimal(str(value)) * unit)


def _refused(field: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"`{field}` {problem}", field=field)


def account_json(account: Account) -> dict[str, Any]:
    """A budget as it stands, for machines."""
    return {
        "scope": account.scope,
        **_measured(account.measure),
        "limit": display_amount(account.measure, account.limit),
        "spent": display_amount(account.measure, account.spent),
        "reserved": display_amount(account.measure, account.reserved),
    }


def _measured(measure: str) -> dict[str, str]:
    return {"measure": "money", "currency": measure} if is_money(measure) else {"measure": measure}


# -- what is told of a refusal ---------------------------------------------------------------------------------------
def details(refused: Denied, model: str) -> dict[str, Any]:
    """A refused call for machines: whose budget, of what, its limit, what is spent, and what was asked for."""
    account = refused.account
    measure = account.measure
    return {
        "code": EXCEEDED,
        "scope": account.scope,
        **_measured(measure),
        "limit": display_amount(measure, account.limit),
        "spent": display_amount(measure, account.spent),
        "asked": display_amount(measure, refused.asked) if refused.asked is not None else None,
        "model": model,
    }


def sentence(refused: Denied, model: str, then: str = "resume the run") -> str:
    """A refused call for people: what stopped it, and what to do."""
    account = refused.account
    limit = format_amount(account.measure, account.limit)
    if refused.asked is None:
        return (
            f"{_WHOSE[account.scope]} is {limit}, and what a call of {model} costs in {account.measure} is not known. "
            "Give its price in the file that EASEL_PRICES_FILE names or in the account of its vendor, "
            "or limit tokens instead."
        )
    return (
        f"{_WHOSE[account.scope]} of {limit} is used up. Spent: {format_amount(account.measure, account.spent)}; "
        f"needed for the next call of {model}: {format_amount(account.measure, refused.asked)}. "
        f"Raise the budget, and {then}."
    )


def out_of_time(limit_ms: int) -> str:
    """Why a run ends that has taken too long."""
    return f"The run has used up its time of {format_amount(SECONDS, limit_ms)}. Start it anew with more."


# -- forms of runs that wait for a higher budget ---------------------------------------------------------------------
def budget_form(called: str, reason: str, told: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The form of a node that was stopped before a call: `again` has it go on. `called`: as a question names it."""
    asked = {"type": "options", "name": "Go on", "options": ["again"], "optional": False, "value": None}
    return {called: {**asked, MARK: dict(told)}}, reason


def budget_stop(inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What has stopped the node that shows a form; None for any other form."""
    for field in inputs.values():
        told = cast("Mapping[str, Any]", field).get(MARK) if isinstance(field, Mapping) else None
        if isinstance(told, Mapping):
            return cast("Mapping[str, Any]", told)
    return None


# -- usage -----------------------------------------------------------------------------------------------------------
COST = "cost_"
"""Before the currency, in stored usage: billionths."""
UNPRICED = "unpriced_calls"
OF = "of_"
"""Before the kind of a model that is no chat, and what is counted of it: `of_embedding_tokens`; in the sums too."""


def usage_json(usage: Mapping[str, int]) -> dict[str, Any]:
    """Stored usage as it is shown: money by currency; `unpriced_calls` says that calls are not in it.

    `kinds` has what of all this did not come of chat: {"embedding": {"calls": 1, "tokens": 7}}.
    """
    told: dict[str, Any] = {
        name: count for name, count in usage.items() if name not in COUNTED and not name.startswith((COST, OF))
    }
    kinds: dict[str, dict[str, int]] = {}
    for name in sorted(name for name in usage if name.startswith(OF)):
        kind, _, counted = name.removeprefix(OF).rpartition("_")
        kinds.setdefault(kind, {})[counted] = usage[name]
    if kinds:
        told["kinds"] = kinds
    costs = {
        name.removeprefix(COST): display_amount(name.removeprefix(COST), n)
        for name, n in usage.items()
        if name.startswith(COST)
    }
    if costs:
        told["cost"] = costs
    elif usage.get(UNPRICED):
        told["cost"] = None  # nothing is known, which is not nothing
    return told
