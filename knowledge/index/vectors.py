"""Vectors as they are stored and searched for."""

from collections.abc import Sequence
from math import isfinite, sqrt

from providers.errors import ErrorCode, ProviderError


def normalize(numbers: Sequence[float]) -> list[float]:
    """Scale a vector to length 1; a zero vector stays as it is. Raises ProviderError if a number is not finite."""
    length = sqrt(sum(number * number for number in numbers))
    if not isfinite(length):
        raise ProviderError(ErrorCode.SERVER_ERROR, "The embedding model returned a vector that is not finite.")
    return [number / length for number in numbers] if length else list(numbers)
