"""A tool's requests at the pace that its vendor asks for (providers/models/types/rate_limits.py): each of them, further
tries as well.
"""

from dataclasses import replace

from components.context import NodeContext
from components.delegating_context import DelegatingContext
from providers.interfaces import Call, Http, Reply
from providers.models.types.rate_limits import VendorRateLimit


def in_pace(ctx: NodeContext, pace: VendorRateLimit | None) -> NodeContext:
    """The context, with a way out that keeps the pace."""
    return _RateLimitedContext(ctx, pace) if pace is not None else ctx


class _RateLimitedContext(DelegatingContext):
    """A context whose requests keep a vendor's rate limit."""

    def __init__(self, ctx: NodeContext, pace: VendorRateLimit) -> None:
        super().__init__(ctx)
        self.services = replace(ctx.services, http=_PacedHttp(ctx.services.http, pace))


class _PacedHttp:
    """The way out of one call of a tool."""

    def __init__(self, http: Http, pace: VendorRateLimit) -> None:
        self._http = http
        self._pace = pace

    async def send(self, call: Call) -> Reply:
        return await self._http.send(replace(call, pace=self._pace))
