"""Work that waits in rows, of one kind, worked off by one thread of this process: nodes keep all the others.

Documents of knowledge bases that are to be read, and what memories were told and is to be looked through.
"""

import threading
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Protocol

from worker.event_loop import Loop


class BackgroundJob(Protocol):
    """Work of one kind."""

    async def next(self) -> bool:
        """Do what waits longest; False if nothing waits. Whoever is cancelled gives it back."""
        ...


class SingleRunner:
    """One at a time for each process. Whoever finds the place taken leaves: the one in it looks for more in the end."""

    def __init__(self, work: BackgroundJob, loop: Loop) -> None:
        self._work = work
        self._loop = loop
        self._place = threading.Lock()
        self._at_work: Future[bool] | None = None
        self._is_closed = False

    def work_off(self) -> None:
        """Do everything that waits. Safe to call too often, or for nothing."""
        if not self._place.acquire(blocking=False):
            return
        try:
            while not self._is_closed:
                self._at_work = self._loop.submit(self._work.next())
                if self._is_closed:
                    self._at_work.cancel()
                if not self._at_work.result():
                    return
        except CancelledError:
            return
        finally:
            self._at_work = None
            self._place.release()

    def close(self) -> None:
        """Give back what is at work, so that others take over."""
        self._is_closed = True
        at_work = self._at_work
        if at_work is not None:
            at_work.cancel()
            with suppress(TimeoutError):  # it lets go, or its lease runs out
                if self._place.acquire(timeout=2):
                    self._place.release()
