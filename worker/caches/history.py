"""What was said before a turn, read once for all nodes of a run that ask for as much of it, however many run at once.

Messages up to a turn's number stay as they are. Kept as JSON, since those who are given one may change it.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from store.primitives.json_codec import decode, encode
from store.runs.activations import Claim
from worker.caches.lru_cache import LruCache, size_of

MOST = 4 * 2**20  # code points of JSON in all, about
LARGEST = 64 * 2**10  # of one history; larger ones are read
OF_AN_ENTRY = 300  # what an entry takes besides

_Key = tuple[UUID, int, int]
_SEEN: LruCache[_Key, str] = LruCache(MOST)


def get(claim: Claim, limit: int) -> list[Mapping[str, Any]] | None:
    """The last `limit` messages, if a node of the run has asked for them before."""
    seen = _SEEN.find((claim.run_id, claim.history_upto, limit))
    return None if seen is None else decode(seen)


def put(claim: Claim, limit: int, entries: Sequence[Mapping[str, Any]]) -> None:
    """What was read, for the run's other nodes."""
    weight = size_of(entries, LARGEST)
    if weight <= LARGEST:
        _SEEN.keep((claim.run_id, claim.history_upto, limit), encode(entries), weight + OF_AN_ENTRY)
