"""The order in which errors list the known names: those that resemble the unknown one come first."""

from collections.abc import Collection
from difflib import get_close_matches


def nearest_first(name: str, known: Collection[str]) -> list[str]:
    """Return the known names: those that resemble `name`, the most similar first, then the others by alphabet."""
    near = get_close_matches(name, sorted(known), len(known) or 1)
    return near + sorted(set(known) - set(near))
