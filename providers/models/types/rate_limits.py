"""What a vendor allows with one credential, and what it says about that while it answers.

An account, or a model of it, names what may be sent in a minute and at the same time. How near the end of it is,
vendors tell in headers beside their answers (`x-ratelimit-remaining-requests`, `anthropic-ratelimit-tokens-reset`), and
when that is over as a span or as a moment. A tool's vendor that wants to be asked slowly has a pace in the tool's
definition (`VendorRateLimit`).
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
SLACK = 0.1  # seconds, by which a request may travel faster than the one before it

_SHOWN = "easel: shown to a vendor\n"
_FAMILIES = ("x-ratelimit", "anthropic-ratelimit")
_KINDS = ("requests", "tokens", "input-tokens", "output-tokens")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class RateLimits(BaseModel):
    """What may be sent; None is without a limit."""

    model_config = ConfigDict(frozen=True)

    requests_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)
    concurrency: int | None = Field(default=None, gt=0)

    @classmethod
    def among(cls, fields: Mapping[str, Any]) -> "RateLimits":
        """The limits among other fields of an account."""
        return cls.model_validate({name: fields[name] for name in LIMITS if name in fields})

    @property
    def told(self) -> dict[str, int]:
        """The limits that there are."""
        given = ((name, getattr(self, name)) for name in LIMITS)
        return {name: limit for name, limit in given if limit is not None}


@dataclass(frozen=True, slots=True)
class RateLimitKey:
    """Limits, and what shares them: `key` is the same wherever one credential is used. `title` is for people.

    `minute` is in how many seconds the limits may be used up: a minute, unless a vendor counts otherwise.
    """

    rates: RateLimits
    key: str
    title: str
    minute: float = MINUTE


@dataclass(frozen=True, slots=True)
class VendorRateLimit:
    """How fast a tool's vendor wants to be asked at each of its hosts: so many requests in so many seconds.

    Whoever shows a key may send `with_key` of them, if that is given, and is then counted by himself.
    """

    requests: int
    seconds: float
    with_key: int | None = None
    account: str = ""  # what stands for the key, and does not tell it

    def of(self, key: str) -> "VendorRateLimit":
        """The pace of who shows this key; "" for nobody."""
        if not key or self.with_key is None:
            return self
        return replace(self, requests=self.with_key, account=sha256(f"{_SHOWN}{key}".encode()).hexdigest()[:32])

    def at(self, host: str) -> RateLimitKey:
        """The pace at one host, which all tenants share. What is asked there at another pace is counted by itself."""
        key = "/".join(("vendor", host, f"{self.requests} in {self.seconds:g}", self.account or "all"))
        return RateLimitKey(RateLimits(requests_per_minute=self.requests), key, host, self.seconds + SLACK)


def reset_delay(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds until a vendor answers again that says that nothing is left; None if it does not say so."""
    moment = now or datetime.now(UTC)
    found = [
        _seconds(headers.get(f"{family}-reset-{kind}") or headers.get(f"{family}-{kind}-reset"), moment)
        for family in _FAMILIES
        for kind in _KINDS
        if (headers.get(f"{family}-remaining-{kind}") or headers.get(f"{family}-{kind}-remaining")) == "0"
    ]
    return max((seconds for seconds in found if seconds is not None), default=None)


def _seconds(text: str | None, now: datetime) -> float | None:
    """A span as vendors write it (`6m0s`, `120ms`, `1.5`), or how far away a moment is (`2026-01-27T12:00:30Z`)."""
    if not text:
        return None
    text = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not re.fullmatch(rf"(?:{_SPAN.pattern})+", text):
        return _until(text, now)
    return sum(float(number) * _UNITS[unit] for number, unit in _SPAN.findall(text))


def _until(text: str, now: datetime) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return max(0.0, ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now).total_seconds())
