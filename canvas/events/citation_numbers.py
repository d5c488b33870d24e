"""Display numbers of evidence: what `[ID:37]` in an answer points at (tools 1.6).

A chunk asks for the number that follows from its id. Numbers are few, so two chunks may ask for one: the first keeps
it, and a later one takes the next that is free.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha1

NUMBERS = 500
ROOM = 5000  # numbers there are once CROWDED are taken
CROWDED = 400


def wanted_number(chunk_id: str) -> int:
    """The number a chunk asks for, 0 to 499."""
    return int(sha1(chunk_id.encode(), usedforsecurity=False).hexdigest(), 16) % NUMBERS


def assign_numbers(chunk_ids: Sequence[str], taken: Mapping[str, int]) -> dict[str, int]:
    """A number for each chunk that has none yet, in order; `taken` has the numbers given so far, by chunk id.

    Nobody's number ever changes. Beyond the room that tools 1.6 leaves, numbers just go on.
    """
    used = set(taken.values())
    new: dict[str, int] = {}
    for chunk_id in chunk_ids:
        if chunk_id in taken or chunk_id in new:
            continue
        room = NUMBERS if len(used) < CROWDED else ROOM
        wanted = wanted_number(chunk_id)
        free = (at % room for at in range(wanted, wanted + room) if at % room not in used)
        number = next(free, ROOM + len(used))
        new[chunk_id] = number
        used.add(number)
    return new
