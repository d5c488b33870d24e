"""The lists that Iterations go through, kept from visit to visit, so that ten thousand visits read one list once.

What an activation has written never changes, so a list is known by who wrote it. Those who are given one only look.
"""

from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock
from typing import Any
from uuid import UUID

from store.values import Written

MOST = 16 * 2**20  # of the lists kept by a process, in code points and eight for each other value: some 100 MB at most
LIGHT = 4096  # what is lighter is read as quickly as it is found here


class Lists:
    """The latest list of each run and source that is long enough to matter; the least recently used ones go."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._weight = 0
        self._kept: OrderedDict[tuple[UUID, str], tuple[Written, int]] = OrderedDict()
        self._lock = Lock()

    def known(self, run_id: UUID, names: Iterable[str]) -> dict[str, Written]:
        """What is kept of a run, by source."""
        with self._lock:
            found = {name: self._kept[run_id, name] for name in names if (run_id, name) in self._kept}
            for name in found:
                self._kept.move_to_end((run_id, name))
        return {name: written for name, (written, _) in found.items()}

    def keep(self, run_id: UUID, name: str, written: Written) -> None:
        """Keep what was read, in place of what this source gave before."""
        weight = weight_of(written.value, self._most)
        if not LIGHT <= weight <= self._most:
            return
        with self._lock:
            self._drop((run_id, name))
            self._kept[run_id, name] = written, weight
            self._weight += weight
            while self._weight > self._most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[UUID, str]) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._weight -= found[1]


def weight_of(value: Any, most: int) -> int:
    """How much a JSON value weighs: its code points, and eight for each value; more than `most` is not counted out."""
    weight = 0
    stack = [value]
    while stack and weight <= most:
        top = stack.pop()
        weight += 8
        if isinstance(top, str):
            weight += len(top)
        elif isinstance(top, dict):
            weight += sum(map(len, top))
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
    return weight
