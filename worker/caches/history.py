"""Cache of conversation history before a turn: read once for all nodes of a run that ask for the same length.

Messages up to a turn's number never change. They are cached as JSON, because a component may change the list that it
gets.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from canvas.ids import RunId
from store.primitives.json_codec import decode, encode
from store.runs.activations import Claim
from worker.caches.lru_cache import LruCache, size_of

MAX_SIZE = 4 * 2**20  # code points of JSON in all, about
MAX_HISTORY_SIZE = 64 * 2**10  # of one history; larger ones are read from the database
ENTRY_OVERHEAD = 300  # what an entry takes besides

_Key = tuple[RunId, int, int]


class HistoryCache:
    """Histories by run, turn and length. `max_size` is in code points of JSON, about; 0 caches nothing."""

    def __init__(self, max_size: int = MAX_SIZE) -> None:
        self._entries: LruCache[_Key, str] = LruCache(max_size)

    def get(self, claim: Claim, limit: int) -> list[Mapping[str, Any]] | None:
        """Return the last `limit` messages; None if no node of the run has asked for as many before."""
        entry = self._entries.get((claim.run_id, claim.history_upto, limit))
        return None if entry is None else decode(entry)

    def put(self, claim: Claim, limit: int, entries: Sequence[Mapping[str, Any]]) -> None:
        """Cache what was read, for the run's other nodes."""
        size = size_of(entries, MAX_HISTORY_SIZE) + ENTRY_OVERHEAD
        if size <= min(MAX_HISTORY_SIZE + ENTRY_OVERHEAD, self._entries.max_size):
            self._entries.put((claim.run_id, claim.history_upto, limit), encode(entries), size)
