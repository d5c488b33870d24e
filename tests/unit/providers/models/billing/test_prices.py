"""Model prices: of the account, the deployment, the public list, then our own; an unknown price is never zero."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from canvas.budget import BILLION
from canvas.errors import ModelError
from providers.models.billing import price_list
from providers.models.billing.fixed_price import FREE, FixedPrice
from providers.models.billing.price_list import ListedPrice
from providers.models.billing.prices import FoundPrice, Prices, add_cost, read_prices
from providers.models.types.chat import ModelSpec, Usage


def spec(name: str = "gpt-4o-mini", factory: str = "OpenAI", **more: object) -> ModelSpec:
    return ModelSpec(**{"id": f"{name}@{factory}", "name": name, "factory": factory, "base_url": None, **more})  # pyright: ignore[reportArgumentType]


def test_a_call_costs_its_tokens_by_kind_in_billionths():
    price = FixedPrice(input=Decimal("0.15"), cached=Decimal("0.075"), output=Decimal("0.6"), currency="USD")
    used = Usage(1000, 100, 1100, 1, cached_tokens=400)

    assert price.cost_of(used) == 600 * 150 + 400 * 75 + 100 * 600
    assert add_cost(used, price).costs == {"USD": 180_000}


def test_token_total_without_a_split_is_charged_at_the_higher_price():
    assert FixedPrice(input=Decimal(1), output=Decimal(3)).cost_of(Usage(total_tokens=10)) == 30_000


def test_price_comes_from_the_account_then_the_file_then_the_public_list(tmp_path: Path):
    file = tmp_path / "prices.toml"
    file.write_text('[OpenAI]\ncurrency = "EUR"\n[OpenAI.models]\n"gpt-4o*" = { input = 7, output = 8 }\n')
    prices = read_prices(file)
    own = spec(extra={"prices": {"gpt-*": {"input": 1, "output": 2, "currency": "CNY"}}})

    assert prices.find(own) == FoundPrice(FixedPrice(input=Decimal(1), output=Decimal(2), currency="CNY"), "account")
    assert prices.find(spec()) == FoundPrice(
        FixedPrice(input=Decimal(7), output=Decimal(8), currency="EUR"), "EASEL_PRICES_FILE"
    )
    listed = Prices().find(spec())
    assert listed is not None
    assert listed.source.startswith("genai-prices ")
    assert listed.source.endswith(": gpt-4o-mini")


def test_price_that_the_public_list_lacks_comes_from_easels_own_table():
    found = Prices().find(spec("rerank-v3.5", "Cohere"))

    assert found == FoundPrice(
        FixedPrice(input=Decimal(0), output=Decimal(0), requests=Decimal("2.0"), currency="USD"), "Easel"
    )


@pytest.mark.parametrize(
    ("factory", "name", "million"),
    [  # of input tokens, of cached tokens, of output tokens: USD, from the vendors' pages
        ("OpenAI", "gpt-4o", ("2.5", "1.25", "10")),
        ("OpenAI", "gpt-4o-mini-2024-07-18", ("0.15", "0.075", "0.6")),
        ("OpenAI", "gpt-4.1", ("2", "0.5", "8")),
        ("OpenAI", "gpt-5", ("1.25", "0.125", "10")),
        ("OpenAI", "o4-mini", ("1.1", "0.275", "4.4")),
        ("OpenAI", "text-embedding-3-small", ("0.02", "0.02", "0")),
        ("Azure-OpenAI", "gpt-4o", ("2.5", "1.25", "10")),
        ("Anthropic", "claude-opus-4-1", ("15", "1.5", "75")),
        ("Anthropic", "claude-opus-4-6", ("5", "0.5", "25")),
        ("Anthropic", "claude-sonnet-4-5-20250929", ("3", "0.3", "15")),
        ("Anthropic", "claude-haiku-4-5", ("1", "0.1", "5")),
        ("Bedrock", "anthropic.claude-3-haiku-20240307-v1:0", ("0.25", "0.25", "1.25")),
        ("Gemini", "gemini-2.5-flash", ("0.3", "0.03", "2.5")),
        ("Gemini", "gemini-2.5-pro", ("1.25", "0.125", "10")),
        ("Groq", "llama-3.3-70b-versatile", ("0.59", "0.59", "0.79")),
        ("Mistral", "mistral-large-2411", ("2", "2", "6")),
    ],
)
def test_well_known_models_have_their_vendors_price(factory: str, name: str, million: tuple[str, str, str]):
    price = Prices().price_of(spec(name, factory))

    assert price is not None
    million_tokens = 1_000_000
    calls = (
        Usage(million_tokens, 0, million_tokens),
        Usage(million_tokens, 0, million_tokens, cached_tokens=million_tokens),
        Usage(0, million_tokens, million_tokens),
    )
    short = [
        replace(
            call,
            prompt_tokens=call.prompt_tokens // 10,
            total_tokens=call.total_tokens // 10,
            completion_tokens=call.completion_tokens // 10,
            cached_tokens=call.cached_tokens // 10,
        )
        for call in calls
    ]  # below the length from which some vendors ask for more
    assert [Decimal(price.cost_of(call)) / BILLION * 10 for call in short] == [Decimal(each) for each in million]


def test_long_prompt_costs_the_price_of_its_length():
    price = Prices().price_of(spec("gemini-2.5-pro", "Gemini"))

    assert price is not None
    assert price.cost_of(Usage(200_000, 0, 200_000)) == 200_000 * 1250
    assert price.cost_of(Usage(200_001, 0, 200_001)) == 200_001 * 2500


def test_price_that_changes_with_the_time_is_that_of_the_call():
    found = price_list.find_model("DeepSeek", None, "deepseek-chat")
    assert found is not None
    night, day = (
        ListedPrice(found, lambda hour=hour: datetime(2025, 7, 1, hour, 0, tzinfo=UTC)).cost_of(Usage(10, 0, 10))
        for hour in (20, 8)
    )

    assert night < day


def test_vendor_of_an_unknown_factory_is_found_by_its_address():
    known = spec("llama-3.3-70b-versatile", "OpenAI-API-Compatible", base_url="https://api.groq.com/openai/v1")
    other = replace(known, base_url="http://gateway.internal/v1")

    assert Prices().price_of(known) is not None
    assert Prices().price_of(other) is None


def test_model_that_is_paid_by_the_hour_has_no_known_price():
    assert Prices().price_of(spec("whisper-1")) is None


def test_spoken_characters_have_their_price():
    price = Prices().price_of(spec("tts-1"))

    assert price is not None
    assert price.cost_of(Usage(calls=1, characters=1_000_000)) == 15 * BILLION


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
