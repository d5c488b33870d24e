"""Frames that several clients of a run get in the same changed form, changed once for all of them.

Clients that are equally far get the same frames within a moment, so the latest ones are enough. A client that is slower
has its frames changed for itself.
"""

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass, field

MAX_BYTES = 4 * 1024 * 1024  # of the latest frames of a run in one form, before and after the change

Change = Callable[[bytes], bytes]


@dataclass(slots=True)
class _Latest:
    """The latest frames in one form, the oldest first, and how many clients get them."""

    made: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    size: int = 0
    clients: int = 0

    def put(self, frame: bytes, changed: bytes, max_bytes: int) -> None:
        self.made[frame] = changed
        self.size += len(frame) + len(changed)
        while self.size > max_bytes and len(self.made) > 1:
            oldest = next(iter(self.made))
            self.size -= len(oldest) + len(self.made.pop(oldest))


class SharedFrames:
    """The changed frames of a process, while a client gets them. They belong to one event loop."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._latest: dict[Hashable, _Latest] = {}

    def __len__(self) -> int:
        """Return how many forms have a client."""
        return len(self._latest)

    @contextmanager
    def share(self, form: Hashable, change: Change) -> Generator[Change]:
        """Yield a function that returns what `change` makes of a frame, once for all clients of this form.

        Equal forms must have changes that make the same of the same frame.
        """
        latest = self._latest.setdefault(form, _Latest())
        latest.clients += 1

        def change_once(frame: bytes) -> bytes:
            made = latest.made.get(frame)
            if made is None:
                made = change(frame)
                latest.put(frame, made, self._max_bytes)
            return made

        try:
            yield change_once
        finally:
            latest.clients -= 1
            if not latest.clients:
                del self._latest[form]
