"""How many requests a token may send a minute, and how many streams it may have open.

Requests are counted in Redis, for all processes together; if Redis does not answer, they are let through, since the
limit protects a deployment from a client and must not end it. Streams are counted in each process.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import structlog
from fastapi import Request

from api.http.edge import add_reply_header
from api.http.errors import TooManyRequests
from api.requests.token_bucket import BucketsUnavailable, TokenBuckets

log = structlog.get_logger()

WINDOW = 60  # seconds
STREAM_RETRY = 5  # seconds after which a client may try to open a stream again


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """The limits of a process for each token. `requests` None: no limit."""

    buckets: TokenBuckets
    requests: int | None = None  # a minute
    streams: int = 500  # open at once
    open: Counter[UUID | None] = field(default_factory=Counter[UUID | None])

    def count_request(self, request: Request, token_id: UUID) -> None:
        """Count a request, and say in its reply how many are left. Raises TooManyRequests.

        It waits for Redis, so call it in a thread.
        """
        if self.requests is None:
            return
        try:
            taken = self.buckets.take_counted(f"token:{token_id.hex}", self.requests, WINDOW)
        except BucketsUnavailable:
            log.warning("rate_not_limited", reason="Redis does not answer")
            return
        add_reply_header(request, "RateLimit-Limit", str(self.requests))
        add_reply_header(request, "RateLimit-Remaining", str(taken.remaining))
        add_reply_header(request, "RateLimit-Reset", str(taken.full_after))
        if not taken.is_taken:
            message = f"This token may send {self.requests} requests a minute. Try again in {taken.retry_after} s."
            raise TooManyRequests(message, retry_after=taken.retry_after)

    def open_stream(self, token_id: UUID | None) -> Callable[[], None]:
        """Count a stream that is about to open; return the function that counts it as closed. Raises TooManyRequests.

        `token_id`: of the token, or of the sign-in or share.
        """
        if self.open[token_id] >= self.streams:
            message = (
                f"This token has {self.streams} open streams, the most that a process serves it. Close one of them."
            )
            raise TooManyRequests(message, retry_after=STREAM_RETRY)
        self.open[token_id] += 1
        is_open = True

        def close() -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                self.open[token_id] -= 1
                if not self.open[token_id]:
                    del self.open[token_id]

        return close
