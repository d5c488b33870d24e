"""An LRU cache that is limited by the sizes of its values."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """Values by key, for all threads. Callers must not change a value they get. `max_size` is in units of `size_of`."""

    def __init__(self, max_size: int) -> None:
        self.max_size = max_size
        self._size = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Cache a value in place of the key's previous one. A value larger than the whole cache is not cached."""
        if size > self.max_size:
            return
        with self._lock:
            self._drop(key)
            self._entries[key] = value, size
            self._size += size
            while self._size > self.max_size:
                self._drop(next(iter(self._entries)))

    def _drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= entry[1]


def size_of(value: Any, max_size: int) -> int:
    """Return the size of a JSON value: its code points, and eight for each value. Stops counting above `max_size`."""
    size = 0
    stack = [value]
    while stack and size <= max_size:
        top = stack.pop()
        size += 8
        if isinstance(top, str):
            size += len(top)
        elif isinstance(top, dict):
            size += sum(map(len, top))
            stack.extend(top.values())
        elif isinstance(top, list):
            stack.extend(top)
    return size
