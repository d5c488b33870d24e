"""How many more hints a process takes. Threads that wait cost nothing; those that compute share one interpreter.

Eight of them, one for each connection to PostgreSQL, keep both as busy as sixty-four do, and change less often from one
to the next: each change costs what lies in the processor's caches, and each wait for a connection two more. So no more
are begun than that, beside all that wait for a model or for each other (decisions/0030).

What computes for long must not keep a process from its work, nor short runs from theirs: whatever the threads do, one
more hint is taken once none was for a tenth of a second.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import monotonic

from celery.worker import state

MOST = 8  # threads that compute at once; as many as there are connections in a pool
PATIENCE = 0.1  # seconds without a new task after which one more is taken


class Admission:
    """What the threads of a process do, and whether there is room for one more."""

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._computing = set[int]()  # threads, by their numbers
        self._began = 0.0  # when a thread last took up something new; monotonic
        self._call: Callable[[], object] | None = None  # once there is room again

    # -- what threads tell of themselves ------------------------------------------------------------------------
    def begins(self) -> None:
        """This thread has taken up a task, or goes on with the next."""
        thread = threading.get_ident()
        if thread not in self._computing:
            self._began = monotonic()
            self._computing.add(thread)

    def ends(self) -> None:
        """It is done with it, and with all that came of it. Ending twice is ending once."""
        self._computing.discard(threading.get_ident())
        self._there_is_room()

    def was_left_behind(self, thread: int) -> None:
        """Nobody waits for what this thread still does; others take its place. It tells itself when it is back."""
        self._computing.discard(thread)
        self._there_is_room()

    @contextmanager
    def waits(self) -> Generator[None]:
        """This thread waits for something that needs no processor."""
        thread = threading.get_ident()
        if thread not in self._computing:  # of a task that nobody counts
            yield
            return
        self._computing.discard(thread)
        self._there_is_room()
        try:
            yield
        finally:
            self._computing.add(thread)

    # -- what the consumer asks ---------------------------------------------------------------------------------
    def room(self, call: Callable[[], object]) -> int:
        """How many more messages to take. If none: `call` is called when a thread ends or waits; ask a while later."""
        self._call = call
        room = self.most - len(self._computing) - _to_begin()
        if room <= 0 and monotonic() - self._began >= PATIENCE:
            room = 1
        if room > 0:
            self._call = None
        return max(0, room)

    def _there_is_room(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call()


def _to_begin() -> int:
    """Tasks that were received, and that no thread has taken up yet."""
    return max(0, len(state.reserved_requests) - len(state.active_requests))


ADMISSION = Admission()
"""Of this process's threads."""
