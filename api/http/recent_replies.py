"""A cache of replies that are expensive to compute, for a few seconds. Threads may share it."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_ENTRIES = 256


class RecentReplies(Generic[T]):
    """The replies of the last `max_age` seconds by key. A key names everything that a reply depends on."""

    def __init__(
        self, max_age: float, max_entries: int = MAX_ENTRIES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_age = max_age
        self._max_entries = max_entries
        self._clock = clock
        self._lock = Lock()
        self._replies: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()
        self._computing: dict[Hashable, Lock] = {}

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the reply for a key; compute it if there is none that is recent.

        Threads that ask for a key while another thread computes its reply wait for that thread. An error of `compute`
        is raised and not kept.
        """
        with self._lock:
            lock = self._computing.setdefault(key, Lock())
        with lock:
            found = self._find(key)
            if found is not None:
                return found[1]
            try:
                computed = compute()
                self._keep(key, computed)
                return computed
            finally:
                with self._lock:
                    self._computing.pop(key, None)

    def _find(self, key: Hashable) -> tuple[float, T] | None:
        with self._lock:
            found = self._replies.get(key)
            if found is None or self._clock() - found[0] >= self._max_age:
                return None
            self._computing.pop(key, None)
            return found

    def _keep(self, key: Hashable, reply: T) -> None:
        with self._lock:
            self._replies[key] = (self._clock(), reply)
            self._replies.move_to_end(key)
            while len(self._replies) > self._max_entries:
                self._replies.popitem(last=False)
