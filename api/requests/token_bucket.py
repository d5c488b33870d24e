"""Token buckets in Redis: a rate limit that all processes share.

A bucket holds `capacity` tokens and refills within the window. A single script takes a token by the clock of Redis, so
two processes, or two clocks, cannot take the same one. An unused bucket expires once it would be full again.
"""

from dataclasses import dataclass

import redis

from canvas.ids import CanvasId

_TAKE = """
local capacity, seconds = tonumber(ARGV[1]), tonumber(ARGV[2])
local rate = capacity / seconds
local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000
local known = redis.call('HMGET', KEYS[1], 'tokens', 'timestamp')
local tokens = tonumber(known[1] or '') or capacity
local since = tonumber(known[2] or '') or now
tokens = math.min(capacity, tokens + math.max(0, now - since) * rate)
local taken = 0
if tokens >= 1 then
    tokens, taken = tokens - 1, 1
end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens), 'timestamp', string.format('%.6f', now))
redis.call('EXPIRE', KEYS[1], math.ceil(seconds) + 1)
local wait = taken == 1 and 0 or math.ceil((1 - tokens) / rate)
return {taken, math.floor(tokens), wait, math.ceil((capacity - tokens) / rate)}
"""


@dataclass(frozen=True, slots=True)
class Taken:
    """Whether a token was taken, how many are left, and after how many seconds there is one, and all are back."""

    is_taken: bool
    remaining: int
    retry_after: int
    full_after: int


class BucketsUnavailable(Exception):
    """Redis does not answer, so tokens cannot be counted."""


class TokenBuckets:
    """The buckets in Redis, as one process uses them."""

    def __init__(self, url: str) -> None:
        self._redis: redis.Redis = redis.Redis.from_url(
            url, socket_timeout=2, socket_connect_timeout=1, socket_keepalive=True, health_check_interval=10
        )
        self._take = self._redis.register_script(_TAKE)

    def take(self, agent_id: CanvasId, capacity: int, seconds: int) -> bool:
        """Take a token of an agent's webhook; return False if there is none left. Raises BucketsUnavailable."""
        return self.take_named(agent_id.hex, capacity, seconds)

    def take_named(self, name: str, capacity: int, seconds: int) -> bool:
        """Take a token of the bucket with this name, like `take`."""
        return self.take_counted(name, capacity, seconds).is_taken

    def take_counted(self, name: str, capacity: int, seconds: int) -> Taken:
        """Take a token, like `take`, and return what is left."""
        try:
            taken, *numbers = self._take(keys=[f"rl:tb:{name}"], args=[capacity, seconds])
            return Taken(taken == 1, *numbers)
        except redis.RedisError as error:
            raise BucketsUnavailable from error

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()
