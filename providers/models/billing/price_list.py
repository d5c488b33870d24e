"""The public price list: prices and contexts of models, from the package `genai-prices`.

Its data comes with the package, so that a lookup needs no network; an update is a new version of the package, or a file
that `EASEL_PRICES_URL` names (providers/models/billing/price_updates.py). Prices are those of ordinary calls, in USD,
without batch or priority tariffs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from providers.models.billing.fixed_price import FixedPrice
from providers.models.types.chat import Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

PROVIDERS = {
    "OpenAI": "openai",
    "Azure-OpenAI": "azure",
    "Anthropic": "anthropic",
    "Gemini": "google",
    "Bedrock": "aws",
    "DeepSeek": "deepseek",
    "Moonshot": "moonshotai",
    "ZHIPU-AI": "zhipuai",
    "OpenRouter": "openrouter",
    "MiniMax": "minimax",
    "NovitaAI": "novita",
    "xAI": "x-ai",
    "Groq": "groq",
    "Cohere": "cohere",
    "TogetherAI": "together",
    "Mistral": "mistral",
    "Voyage AI": "voyageai",
}
"""The list's name of a vendor, by factory. A vendor of another factory is found by its base URL."""

CURRENCY = "USD"


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """The price of a model in the list. It depends on the time of the call and on the length of its prompt."""

    model: "ModelInfo"
    now: Callable[[], datetime] = _utc_now

    @property
    def currency(self) -> str:
        return CURRENCY

    def cost_of(self, usage: Usage) -> int:
        """Return the cost of usage in billionths, rounded up."""
        return self.at_length(usage.prompt_tokens).cost_of(usage)

    def at_length(self, prompt_tokens: int = 0) -> FixedPrice:
        """Return the price of a call that is made now, with so many tokens in its prompt."""
        prices = self.model.get_prices(self.now())

        def at(price: "Decimal | TieredPrices | None") -> Decimal | None:
            if price is None or isinstance(price, Decimal):
                return price
            reached = [tier.price for tier in price.tiers if prompt_tokens > tier.start]
            return reached[-1] if reached else price.base

        return FixedPrice(
            input=at(prices.input_mtok) or Decimal(0),
            output=at(prices.output_mtok) or Decimal(0),
            cached=at(prices.cache_read_mtok),
            characters=at(prices.input_mchars) or Decimal(0),
            requests=at(prices.requests_kcount) or Decimal(0),
            currency=CURRENCY,
        )

    def thresholds(self) -> list[int]:
        """Return the lengths of a prompt, in tokens, above which the price changes."""
        prices = self.model.get_prices(self.now())
        priced = (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok)
        tiers = [price.tiers for price in priced if price is not None and not isinstance(price, Decimal)]
        return sorted({tier.start for each in tiers for tier in each})


def find_price(factory: str, base_url: str | None, model: str) -> ListedPrice | None:
    """Return the listed price of a model; None if it is not listed, or is paid by what Easel does not count."""
    found = find_model(factory, base_url, model)
    if found is None or not _is_counted(found.get_prices(_utc_now())):
        return None
    return ListedPrice(found)


def find_context(factory: str, base_url: str | None, model: str) -> int | None:
    """Return the listed context of a model in tokens; None if it is not known."""
    found = find_model(factory, base_url, model)
    return found.context_window if found is not None else None


def find_model(factory: str, base_url: str | None, model: str) -> "ModelInfo | None":
    """Return the entry of a model; None if there is none. The first call of a process reads the list (0.2 s)."""
    provider = PROVIDERS.get(factory)
    if provider is None and not base_url:
        return None
    try:
        return snapshot().find_provider_model(model, None, provider, base_url if provider is None else None)[1]
    except LookupError:
        return None


def snapshot() -> "DataSnapshot":
    """Return the list as it is now."""
    from genai_prices import data_snapshot

    return data_snapshot.get_snapshot()


def title() -> str:
    """Return the name and version of the list, to show where a price comes from."""
    data = snapshot()
    if data.from_auto_update:
        return f"EASEL_PRICES_URL at {data.timestamp:%Y-%m-%d %H:%M}"
    from genai_prices import __version__

    return f"genai-prices {__version__}"


def _is_counted(prices: "ModelPrice") -> bool:
    """Whether a call is paid by tokens, characters or requests, which usage has."""
    counted = (prices.input_mtok, prices.output_mtok, prices.input_mchars, prices.requests_kcount)
    return any(price is not None for price in counted)
