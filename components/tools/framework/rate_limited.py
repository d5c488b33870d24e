"""Rate limiting of a tool's requests, retries included, by the vendor's limit
(providers/models/types/rate_limits.py).
"""

from dataclasses import replace
from typing import Any, cast

from components.context import NodeContext
from providers.interfaces import Call, Http, Reply
from providers.models.types.rate_limits import VendorRateLimit


def in_pace(ctx: NodeContext, pace: VendorRateLimit | None) -> NodeContext:
    """Return the context with HTTP requests that keep the vendor's rate limit."""
    return cast(NodeContext, _Unhurried(ctx, pace)) if pace is not None else ctx


class _Unhurried:
    """Passes on to the context whatever it does not say itself."""

    def __init__(self, ctx: NodeContext, pace: VendorRateLimit) -> None:
        self._ctx = ctx
        self.services = replace(ctx.services, http=_PacedHttp(ctx.services.http, pace))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _PacedHttp:
    """The HTTP client of one tool call; every request keeps the vendor's rate limit."""

    def __init__(self, http: Http, pace: VendorRateLimit) -> None:
        self._http = http
        self._pace = pace

    async def send(self, call: Call) -> Reply:
        return await self._http.send(replace(call, pace=self._pace))
