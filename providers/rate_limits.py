"""The rate limits of credentials and vendors, and the response headers in which vendors report them.

An account, or one of its models, sets limits per minute and a concurrency. Vendors report in response headers what is
left of a limit (`x-ratelimit-remaining-requests`) and when it is reset (`anthropic-ratelimit-tokens-reset`), as a
duration or a time. The definition of a tool sets the rate limit of the tool's vendor (`VendorRateLimit`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrency")
MINUTE = 60.0  # seconds
SLACK = 0.1  # seconds added to a window, since a request may travel faster than the one before it

_KEY_DIGEST_PREFIX = "easel: shown to a vendor\n"
_FAMILIES = ("x-ratelimit", "anthropic-ratelimit")
_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class RateLimits(BaseModel):
    """Limits for requests; None means no limit."""

    model_config = ConfigDict(frozen=True)

    requests_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)
    concurrency: int | None = Field(default=None, gt=0)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "RateLimits":
        """Return the limits among the fields of an account."""
        return cls.model_validate({name: fields[name] for name in LIMITS if name in fields})

    @property
    def limits_by_name(self) -> dict[str, int]:
        """Return the limits that are set, by name."""
        limits = ((name, getattr(self, name)) for name in LIMITS)
        return {name: limit for name, limit in limits if limit is not None}


@dataclass(frozen=True, slots=True)
class RateLimitKey:
    """Limits and the key under which requests share them. `title` is the name in messages.

    `window` is the window of the limits in seconds: 60, unless a vendor uses another window.
    """

    limits: RateLimits
    key: str
    title: str
    window: float = MINUTE


@dataclass(frozen=True, slots=True)
class VendorRateLimit:
    """The rate limit of a tool's vendor for each of its hosts: a number of requests in a number of seconds.

    Requests with an API key may send `with_key` requests, if that is set, and then share no limit with other keys.
    """

    requests: int
    seconds: float
    with_key: int | None = None
    account: str = ""  # a digest of the key

    def for_key(self, key: str) -> "VendorRateLimit":
        """Return the limit for requests with this API key; "" for requests without a key."""
        if not key or self.with_key is None:
            return self
        return replace(
            self, requests=self.with_key, account=sha256(f"{_KEY_DIGEST_PREFIX}{key}".encode()).hexdigest()[:32]
        )

    def for_host(self, host: str) -> RateLimitKey:
        """Return the limit at one host, which all tenants share. Requests with another limit are counted separately."""
        key = "/".join(("vendor", host, f"{self.requests} in {self.seconds:g}", self.account or "all"))
        return RateLimitKey(RateLimits(requests_per_minute=self.requests), key, host, self.seconds + SLACK)


def reset_delay(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds until a vendor resets an exhausted limit; None if it does not report an exhausted one."""
    moment = now or datetime.now(UTC)
    found = [
        _seconds(headers.get(f"{family}-reset-{kind}") or headers.get(f"{family}-{kind}-reset"), moment)
        for family in _FAMILIES
        for kind in _KINDS
        if (headers.get(f"{family}-remaining-{kind}") or headers.get(f"{family}-{kind}-remaining")) == "0"
    ]
    return max((seconds for seconds in found if seconds is not None), default=None)


def _seconds(text: str | None, now: datetime) -> float | None:
    """Parse a duration (`6m0s`, `120ms`, `1.5`) or the time until a moment (`2026-01-27T12:00:30Z`), in seconds."""
    if not text:
        return None
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_DURATION.pattern})+", text):
        return _seconds_until(text, now)
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))


def _seconds_until(text: str, now: datetime) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds())
