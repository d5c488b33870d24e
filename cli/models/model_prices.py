"""What `easel models prices` shows: the price of a model that counts, and where it comes from."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from canvas.errors import InvalidRequest, ModelError
from cli.models.model_test import resolve_model
from providers.models.billing.fixed_price import FREE, FixedPrice
from providers.models.billing.price_list import ListedPrice
from providers.models.billing.prices import FoundPrice
from providers.models.chat.catalogue import spec_without_account
from providers.models.types.chat import ModelSpec
from providers.models.vendors.accounts import VendorAccount

UNITS = {
    "input": "million tokens",
    "cached": "million tokens from the vendor's cache",
    "output": "million tokens",
    "characters": "million spoken characters",
    "requests": "thousand requests",
}


def find_spec(model: str, accounts: Sequence[VendorAccount]) -> ModelSpec:
    """Return a model of an account, or of a vendor that Easel knows. Raises InvalidRequest if neither has it."""
    try:
        return resolve_model(model, accounts)[0]
    except ModelError as problem:
        spec = spec_without_account(model)
        if spec is None:
            raise InvalidRequest(problem.message) from problem
        return spec


def price_rows(found: FoundPrice) -> list[Mapping[str, Any]]:
    """Return a row for each amount of a price: what it is for, and for how much of it."""
    rows = _rows(_price_at(found, 0), "")
    price = found.price
    for start in price.thresholds() if isinstance(price, ListedPrice) else ():
        rows += _rows(_price_at(found, start + 1), f"; prompts of more than {start:,} tokens")
    return rows


def price_fields(spec: ModelSpec, found: FoundPrice | None) -> dict[str, Any]:
    """Return what `--json` prints: the price of a short prompt, and of longer ones under `above`."""
    fields: dict[str, Any] = {"model": spec.id, "context_tokens": spec.context_tokens}
    if found is None:
        return {**fields, "source": None}
    price = found.price
    starts = price.thresholds() if isinstance(price, ListedPrice) else []
    above = {str(start): _amounts(_price_at(found, start + 1)) for start in starts}
    return {
        **fields,
        "source": found.source,
        "currency": price.currency,
        **_amounts(_price_at(found, 0)),
        **({"above": above} if above else {}),
    }


def _price_at(found: FoundPrice, prompt_tokens: int) -> FixedPrice:
    price = found.price
    if isinstance(price, ListedPrice):
        return price.at_length(prompt_tokens)
    assert isinstance(price, FixedPrice)
    return price


def _amounts(price: FixedPrice) -> dict[str, str]:
    """Return the amounts of a price that are not zero, and those of tokens."""
    amounts = {name: getattr(price, name) for name in UNITS}
    return {
        name: f"{amount:f}"
        for name, amount in amounts.items()
        if amount is not None and (amount != Decimal(0) or name in ("input", "output"))
    }


def _rows(price: FixedPrice, condition: str) -> list[Mapping[str, Any]]:
    if price is FREE:
        return []
    return [
        {"for": name, "price": f"{amount} {price.currency}", "per": f"{UNITS[name]}{condition}"}
        for name, amount in _amounts(price).items()
    ]
