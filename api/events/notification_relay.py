"""The notifications of a run on their way to the clients that watch it: joined, and not more often than they need them.

Of event notifications only the last counts, since clients read the events from the rows; adjacent text deltas are one.
The first after a pause is passed on at once.
"""

from scheduler.messaging.subscriptions import Notification


class NotificationRelay:
    """The notifications that were not passed on yet. Times are those of the event loop, in seconds."""

    def __init__(self, text_interval: float, event_interval: float) -> None:
        """Pass on text and events at most once in these intervals."""
        self._text_interval, self._event_interval = text_interval, event_interval
        self._texts: list[Notification] = []
        self._events: list[Notification] = []
        self._text_at = self._events_at = 0.0  # not before

    @property
    def due_at(self) -> float | None:
        """When there is something to pass on; None if there is nothing."""
        times = [at for at, waiting in ((self._text_at, self._texts), (self._events_at, self._events)) if waiting]
        return min(times, default=None)

    def add(self, notification: Notification) -> None:
        """Add a notification. An unknown one means that the rows must be read, like an event."""
        match notification:
            case {"n": int() as number}:
                for known in self._events:
                    if "n" in known:
                        known["n"] = max(number, known["n"])
                        known["over"] = bool(known.get("over") or notification.get("over"))
                        return
                self._events.append(dict(notification))
            case {"t": str() as stream, "ep": int() as epoch, "o": int() as offset, "x": str() as text}:
                last = self._texts[-1] if self._texts else None
                if last is not None and (last["t"], last["ep"], last["o"] + len(last["x"])) == (stream, epoch, offset):
                    last["x"] += text
                else:
                    self._texts.append(dict(notification))
            case _ if {} not in self._events:
                self._events.append({})
            case _:
                pass

    def take_due(self, now: float) -> list[Notification]:
        """Return what is to be passed on now, text first, and forget it."""
        due: list[Notification] = []
        if self._texts and now >= self._text_at:
            due, self._texts, self._text_at = self._texts, [], now + self._text_interval
        if self._events and now >= self._events_at:
            due, self._events, self._events_at = [*due, *self._events], [], now + self._event_interval
        return due
