"""A price that does not depend on the call: of an account, of a deployment's own file, or free."""

from decimal import ROUND_CEILING, Decimal
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from canvas.budget import BILLION
from providers.models.types.chat import Usage

MILLION, THOUSAND = 1_000_000, 1_000


class Price(Protocol):
    """The price of a model's calls."""

    @property
    def currency(self) -> str: ...

    def cost_of(self, usage: Usage) -> int:
        """Return the cost of usage in billionths of the currency, rounded up."""
        ...


class FixedPrice(BaseModel):
    """The price of a million tokens, of a million spoken characters, and of a thousand requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Decimal = Field(ge=0)
    output: Decimal = Field(ge=0)
    cached: Decimal | None = Field(default=None, ge=0)
    characters: Decimal = Field(default=Decimal(0), ge=0)
    requests: Decimal = Field(default=Decimal(0), ge=0)
    currency: str = Field(default="", pattern="^([A-Z]{3})?$")  # "": the currency of the factory, or USD

    def cost_of(self, usage: Usage) -> int:
        """Return the cost of usage in billionths, rounded up. Tokens of an unknown kind cost the higher price."""
        cached = self.input if self.cached is None else self.cached
        money = (
            self.input * (usage.prompt_tokens - usage.cached_tokens)
            + cached * usage.cached_tokens
            + self.output * usage.completion_tokens
            + max(self.input, self.output) * (usage.total_tokens - usage.prompt_tokens - usage.completion_tokens)
            + self.characters * usage.characters
            + self.requests * usage.calls * (MILLION // THOUSAND)
        )
        return int((money * BILLION / MILLION).to_integral_value(ROUND_CEILING))


FREE: Price = FixedPrice(input=Decimal(0), output=Decimal(0))
"""The price of the built-in models, in any currency."""
