"""Rate limiting of a tool's requests, retries included, by the vendor's limit
(providers/rate_limits.py).
"""

from dataclasses import replace

from components.context import NodeContext
from components.delegating_context import DelegatingContext
from providers.interfaces import Http, HttpCall, HttpResponse
from providers.rate_limits import VendorRateLimit


def with_rate_limit(ctx: NodeContext, rate_limit: VendorRateLimit | None) -> NodeContext:
    """Return the context with HTTP requests that keep the vendor's rate limit."""
    return _RateLimitedContext(ctx, rate_limit) if rate_limit is not None else ctx


class _RateLimitedContext(DelegatingContext):
    """A context whose requests keep a vendor's rate limit."""

    def __init__(self, ctx: NodeContext, rate_limit: VendorRateLimit) -> None:
        super().__init__(ctx)
        self.services = replace(ctx.services, http=_RateLimitedHttp(ctx.services.http, rate_limit))


class _RateLimitedHttp:
    """The HTTP client of one tool call; every request keeps the vendor's rate limit."""

    def __init__(self, http: Http, rate_limit: VendorRateLimit) -> None:
        self._http = http
        self._rate_limit = rate_limit

    async def send(self, call: HttpCall) -> HttpResponse:
        return await self._http.send(replace(call, rate_limit=self._rate_limit))
