"""What a process has read and will be asked for again, up to a weight: the least recently used goes first."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key; those who are given one only look. `most` is in weights as `weight_of` gives them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._weight = 0
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def find(self, key: K) -> V | None:
        """What is kept under a key."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, weight: int) -> None:
        """Keep a value in place of what was there; not at all if it is heavier than everything may be."""
        if weight > self.most:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = value, weight
            self._weight += weight
            while self._weight > self.most:
                self._drop(next(iter(self._kept)))

    def _drop(self, key: K) -> None:
        found = self._kept.pop(key, None)
        if found is not None:
            self._weight -= found[1]


def size_of(value: Any, most: int) -> int:
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
