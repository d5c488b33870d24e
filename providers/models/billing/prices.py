"""Prices of model calls, and a chat model that adds the cost of each call to its usage.

A price is looked up in the vendor's account (`extra.prices`: model name pattern -> price), then in the deployment's own
file, then in the public list (`price_list.py`), then in `prices.toml` beside this module, which has what that list
lacks. A model that none of them has is of unknown price, which is reported and never counts as zero. Amounts are
integers, in billionths of a currency.
"""

import tomllib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from canvas.errors import ModelError
from providers.models.billing import price_list
from providers.models.billing.fixed_price import FREE, FixedPrice, Price
from providers.models.types.chat import ChatModel, ChatRequest, Completion, Delta, ModelSpec, Usage, UsageDelta


class _Factory(BaseModel):
    model_config = ConfigDict(extra="forbid")

    currency: str = Field(default="USD", pattern="^[A-Z]{3}$")
    models: dict[str, FixedPrice] = {}


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a deployment, by factory and model name pattern; `own` comes before the built-in ones."""

    own: Mapping[str, Mapping[str, FixedPrice]] = field(default_factory=dict[str, Mapping[str, FixedPrice]])

    def price_of(self, spec: ModelSpec) -> Price | None:
        """Return the price of a model; None if it is not known. Raises ModelError if its account has invalid prices."""
        found = self.find(spec)
        return found.price if found is not None else None

    def find(self, spec: ModelSpec) -> "FoundPrice | None":
        """Return the price of a model and where it comes from. Raises ModelError if its account has invalid prices."""
        if spec.is_builtin:
            return FoundPrice(FREE, "built-in model")
        account = _find_price(_account_prices(spec), spec.name)
        if account is not None:
            return FoundPrice(account, "account")
        own = _find_price(self.own.get(spec.factory, {}), spec.name)
        if own is not None:
            return FoundPrice(own, "EASEL_PRICES_FILE")
        listed = price_list.find_price(spec.factory, spec.base_url, spec.name)
        if listed is not None:
            return FoundPrice(listed, f"{price_list.title()}: {listed.model.id}")
        supplement = _find_price(_supplement().get(spec.factory, {}), spec.name)
        return FoundPrice(supplement, "Easel") if supplement is not None else None


@dataclass(frozen=True, slots=True)
class FoundPrice:
    """A price and where it comes from, in words."""

    price: Price
    source: str


def read_prices(path: Path | None) -> Prices:
    """Read the prices of a deployment: those of its own file come first, if it has one (None: it has none).

    Raises a ModelError that says what is wrong with the file.
    """
    return Prices(_read_tables(path)) if path is not None else Prices()


class PricedModel:
    """A chat model whose usage includes its cost."""

    def __init__(self, model: ChatModel, price: Price | None) -> None:
        self._model = model
        self._price = price

    @property
    def spec(self) -> ModelSpec:
        return self._model.spec

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Yield deltas as they arrive, one UsageDelta at the end. Closing the generator closes the connection."""
        async with aclosing(cast("AsyncGenerator[Delta, None]", self._model.stream(request))) as deltas:
            async for delta in deltas:
                yield UsageDelta(add_cost(delta.usage, self._price)) if isinstance(delta, UsageDelta) else delta

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the whole answer without streaming."""
        answer = await self._model.complete(request)
        return replace(answer, usage=add_cost(answer.usage, self._price))


def add_cost(usage: Usage, price: Price | None) -> Usage:
    """Return usage with its cost; without a price, count its calls as `unpriced_calls`."""
    if price is None:
        return replace(usage, unpriced_calls=usage.calls)
    cost = price.cost_of(usage)
    return replace(usage, costs={price.currency: cost}) if cost else usage


def _find_price(table: Mapping[str, FixedPrice], model: str) -> FixedPrice | None:
    return next((price for pattern, price in table.items() if fnmatchcase(model, pattern)), None)


def _account_prices(spec: ModelSpec) -> Mapping[str, FixedPrice]:
    prices: Any = spec.extra.get("prices")
    if not prices:
        return {}
    try:
        return _factory_prices({"models": prices})
    except ValidationError as problem:
        raise ModelError(
            f"The account of {spec.factory} has invalid prices: {_first_error(problem)}",
            kind="MODEL_ERROR",
            provider=spec.factory,
            model=spec.name,
        ) from None


@cache
def _supplement() -> Mapping[str, Mapping[str, FixedPrice]]:
    return _read_tables(Path(__file__).with_name("prices.toml"))


def _read_tables(path: Path) -> Mapping[str, Mapping[str, FixedPrice]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return {factory: _factory_prices(block) for factory, block in table.items()}
    except (OSError, ValueError) as problem:  # a ValidationError is a ValueError
        reason = _first_error(problem) if isinstance(problem, ValidationError) else str(problem)
        raise ModelError(f"The prices in {path} cannot be read: {reason}") from None


def _factory_prices(block: Any) -> Mapping[str, FixedPrice]:
    read = _Factory.model_validate(block)
    return {
        pattern: price if price.currency else price.model_copy(update={"currency": read.currency})
        for pattern, price in read.models.items()
    }


def _first_error(problem: ValidationError) -> str:
    first = problem.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(str(step) for step in first['loc'])}: {first['msg']}"
