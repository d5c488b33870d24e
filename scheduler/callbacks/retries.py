"""When a failed delivery is tried again: after delays that grow, for a day, and not before the receiver says."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

FACTOR = 3.0
LONGEST = timedelta(hours=6)
JITTER = 0.2  # of a delay, in both directions, so that what failed at once is not sent again at once


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """`first`: the delay after the first attempt. `period`: the time after which no attempt begins.

    By default 5 s, 15 s, 45 s, ... 3 h, then every 6 h: eleven or twelve attempts in a day.
    """

    first: timedelta = timedelta(seconds=5)
    period: timedelta = timedelta(hours=24)

    def delay(self, tries: int) -> timedelta:
        """Return the delay after so many attempts, without jitter."""
        longest = max(LONGEST, self.first)
        exponent = min(tries - 1, 40)  # so that the product is no overflow
        return timedelta(seconds=min(self.first.total_seconds() * FACTOR**exponent, longest.total_seconds()))

    def next_wait(
        self, tries: int, began_at: datetime, now: datetime, chance: float, retry_after: timedelta | None = None
    ) -> timedelta | None:
        """Return how long to wait after so many attempts; None: the delivery is given up.

        `chance`: a random number from 0 to 1, for the jitter. `retry_after`: what the receiver asked for; if it lies
        beyond the period, the last attempt is at the end of the period.
        """
        left = began_at + self.period - now
        wait = self.delay(tries) * (1 - JITTER + 2 * JITTER * chance)
        if retry_after is not None and retry_after > wait:
            wait = max(wait, min(retry_after, left))
        return wait if wait <= left else None


DEFAULT_SCHEDULE = RetrySchedule()


def parse_retry_after(written: str | None, now: datetime) -> timedelta | None:
    """Return the value of a `Retry-After` header: seconds, or a date. None for any other text, and for the past."""
    text = (written or "").strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=int(text[:9]))
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return at - now if at > now else None
