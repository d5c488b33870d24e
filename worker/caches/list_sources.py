"""The lists that Iterations go through, kept from visit to visit, so that ten thousand visits read one list once.

What an activation has written never changes, so a list is known by who wrote it. Those who are given one only look.
"""

from collections.abc import Iterable
from uuid import UUID

from store.runs.values import Written
from worker.caches.lru_cache import Kept, weight_of

MOST = 16 * 2**20  # of the lists kept by a process, in code points and eight for each other value: some 100 MB at most
LIGHT = 4096  # what is lighter is read as quickly as it is found here


class Lists:
    """The latest list of each run and source that is long enough to matter."""

    def __init__(self, most: int = MOST) -> None:
        self._kept: Kept[tuple[UUID, str], Written] = Kept(most)

    def known(self, run_id: UUID, names: Iterable[str]) -> dict[str, Written]:
        """What is kept of a run, by source."""
        found = {name: self._kept.find((run_id, name)) for name in names}
        return {name: written for name, written in found.items() if written is not None}

    def keep(self, run_id: UUID, name: str, written: Written) -> None:
        """Keep what was read, in place of what this source gave before."""
        weight = weight_of(written.value, self._kept.most)
        if weight >= LIGHT:
            self._kept.keep((run_id, name), written, weight)
