"""Model prices: of the account, then of the deployment, then built in; an unknown price is never zero."""

from decimal import Decimal
from pathlib import Path

import pytest

from canvas.errors import ModelError
from providers.models.billing.prices import FREE, Price, Prices, add_cost, read_prices
from providers.models.types.chat import ModelSpec, Usage


def spec(name: str = "gpt-4o-mini", factory: str = "OpenAI", **more: object) -> ModelSpec:
    return ModelSpec(f"{name}@{factory}", name, factory, None, **more)  # pyright: ignore[reportArgumentType]


def test_a_call_costs_its_tokens_by_kind_in_billionths():
    price = Price(input=Decimal("0.15"), cached=Decimal("0.075"), output=Decimal("0.6"), currency="USD")
    used = Usage(1000, 100, 1100, 1, cached_tokens=400)

    assert price.cost_of(used) == 600 * 150 + 400 * 75 + 100 * 600
    assert add_cost(used, price).costs == {"USD": 180_000}


def test_token_total_without_a_split_is_charged_at_the_higher_price():
    assert Price(input=Decimal(1), output=Decimal(3)).cost_of(Usage(total_tokens=10)) == 30_000


def test_price_comes_from_the_account_then_the_file_then_the_built_in_table(tmp_path: Path):
    file = tmp_path / "prices.toml"
    file.write_text('[OpenAI]\ncurrency = "EUR"\n[OpenAI.models]\n"gpt-4o*" = { input = 7, output = 8 }\n')
    prices = read_prices(file)
    own = spec(extra={"prices": {"gpt-*": {"input": 1, "output": 2, "currency": "CNY"}}})

    assert Prices().price_of(spec()) == Price(input=Decimal("0.15"), cached="0.075", output="0.6", currency="USD")  # pyright: ignore[reportArgumentType]
    assert prices.price_of(spec()) == Price(input=Decimal(7), output=Decimal(8), currency="EUR")
    assert prices.price_of(own) == Price(input=Decimal(1), output=Decimal(2), currency="CNY")


def test_price_of_an_unlisted_model_is_unknown():
    price = Prices().price_of(spec("my-model", "VLLM"))

    assert price is None
    assert add_cost(Usage(1, 1, 2, calls=1), price).unpriced_calls == 1


def test_built_in_models_are_free():
    assert Prices().price_of(spec("echo", "Easel", is_builtin=True)) is FREE
    assert add_cost(Usage(1, 1, 2, calls=1), FREE) == Usage(1, 1, 2, calls=1)


@pytest.mark.parametrize("text", ["[[", "[OpenAI.models]\n'x' = { input = -1, output = 1 }", "[OpenAI]\nprice = 3"])
def test_invalid_price_file_is_refused_with_its_name(tmp_path: Path, text: str):
    file = tmp_path / "prices.toml"
    file.write_text(text)

    with pytest.raises(ModelError, match=r"prices\.toml cannot be read"):
        read_prices(file)


def test_account_with_invalid_prices_is_refused():
    with pytest.raises(ModelError, match="has invalid prices"):
        Prices().price_of(spec(extra={"prices": {"*": {"input": "much"}}}))
