"""The lists that Iterations go through, kept from visit to visit, so that ten thousand visits read one list once.

What an activation has written never changes, so a list is known by who wrote it. Those who are given one only look.
"""

from collections.abc import Iterable
from uuid import UUID

from store.runs.values import StoredValue
from worker.caches.lru_cache import LruCache, size_of

MOST = 16 * 2**20  # of the lists kept by a process, in code points and eight for each other value: some 100 MB at most
MIN_CACHED_SIZE = 4096  # what is lighter is read as quickly as it is found here


class ListCache:
    """The latest list of each run and source that is long enough to matter."""

    def __init__(self, most: int = MOST) -> None:
        self._kept: LruCache[tuple[UUID, str], StoredValue] = LruCache(most)

    def known(self, run_id: UUID, names: Iterable[str]) -> dict[str, StoredValue]:
        """What is kept of a run, by source."""
        found = {name: self._kept.find((run_id, name)) for name in names}
        return {name: written for name, written in found.items() if written is not None}

    def keep(self, run_id: UUID, name: str, written: StoredValue) -> None:
        """Keep what was read, in place of what this source gave before."""
        weight = size_of(written.value, self._kept.most)
        if weight >= MIN_CACHED_SIZE:
            self._kept.keep((run_id, name), written, weight)
