"""Cache of the lists that Iterations go through, so that ten thousand visits of an item node read one list once.

What an activation has written never changes, so a list is identified by the activation that wrote it. Readers must not
change the value that they get.
"""

from collections.abc import Iterable

from canvas.ids import RunId
from store.runs.values import StoredValue
from worker.caches.lru_cache import LruCache, size_of

MAX_SIZE = 16 * 2**20  # of all lists of a process, as `size_of` counts: some 100 MB at most
MIN_CACHED_SIZE = 4096  # a smaller list is read from the database as quickly as it is found here


class ListCache:
    """The latest list of each run and source that is long enough to matter. `max_size` 0 caches nothing."""

    def __init__(self, max_size: int = MAX_SIZE) -> None:
        self._entries: LruCache[tuple[RunId, str], StoredValue] = LruCache(max_size)

    def get_lists(self, run_id: RunId, names: Iterable[str]) -> dict[str, StoredValue]:
        """Return the cached lists of a run, by source."""
        found = {name: self._entries.get((run_id, name)) for name in names}
        return {name: written for name, written in found.items() if written is not None}

    def put_list(self, run_id: RunId, name: str, written: StoredValue) -> None:
        """Cache what was read, in place of the previous list of this source."""
        size = size_of(written.value, self._entries.max_size)
        if size >= MIN_CACHED_SIZE:
            self._entries.put((run_id, name), written, size)
