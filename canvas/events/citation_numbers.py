"""Citation numbers: what `[ID:37]` in an answer refers to.

The preferred number of a chunk follows from its id. Numbers are few, so two chunks may prefer the same one: the first
gets it, and a later chunk gets the next free number.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha1

NUMBERS = 500
EXTENDED_NUMBERS = 5000  # size of the range once EXTEND_AFTER numbers are in use
EXTEND_AFTER = 400


def preferred_number(chunk_id: str) -> int:
    """Return the preferred number of a chunk, 0 to 499."""
    return int(sha1(chunk_id.encode(), usedforsecurity=False).hexdigest(), 16) % NUMBERS


def assign_numbers(chunk_ids: Sequence[str], in_use: Mapping[str, int]) -> dict[str, int]:
    """Return a number for each chunk that has none yet, in order; `in_use` has the present numbers, by chunk id.

    The number of a chunk never changes. When all EXTENDED_NUMBERS are in use, numbers continue beyond them.
    """
    used = set(in_use.values())
    new: dict[str, int] = {}
    for chunk_id in chunk_ids:
        if chunk_id in in_use or chunk_id in new:
            continue
        size = NUMBERS if len(used) < EXTEND_AFTER else EXTENDED_NUMBERS
        preferred = preferred_number(chunk_id)
        free = (at % size for at in range(preferred, preferred + size) if at % size not in used)
        number = next(free, EXTENDED_NUMBERS + len(used))
        new[chunk_id] = number
        used.add(number)
    return new
