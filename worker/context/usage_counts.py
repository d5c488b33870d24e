"""The usage of model calls as the counts of a usage column."""

from canvas import budget
from providers.models.types.chat import Usage


def usage_counts(usage: Usage) -> dict[str, int]:
    """Return the usage of model calls as the counts of a usage column; empty without a call."""
    if not usage.calls:
        return {}
    further = {"cached_tokens": usage.cached_tokens, budget.UNPRICED: usage.unpriced_calls}
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "calls": usage.calls,
        **{name: count for name, count in further.items() if count},
        **{f"{budget.COST}{currency}": amount for currency, amount in usage.costs.items()},
        **{f"{budget.OF}{name}": count for name, count in usage.kinds.items()},
    }
