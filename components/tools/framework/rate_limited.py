"""A tool's requests at the pace that its vendor asks for (providers/models/types/rate_limits.py): each of them, further
tries as well.
"""

from dataclasses import replace
from typing import Any, cast

from components.context import NodeContext
from providers.interfaces import Call, Http, Reply
from providers.models.types.rate_limits import VendorRateLimit


def in_pace(ctx: NodeContext, pace: VendorRateLimit | None) -> NodeContext:
    """The context, with a way out that keeps the pace."""
    return cast(NodeContext, _Unhurried(ctx, pace)) if pace is not None else ctx


class _Unhurried:
    """Passes on to the context whatever it does not say itself."""

    def __init__(self, ctx: NodeContext, pace: VendorRateLimit) -> None:
        self._ctx = ctx
        self.services = replace(ctx.services, http=_PacedHttp(ctx.services.http, pace))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _PacedHttp:
    """The way out of one call of a tool."""

    def __init__(self, http: Http, pace: VendorRateLimit) -> None:
        self._http = http
        self._pace = pace

    async def send(self, call: Call) -> Reply:
        return await self._http.send(replace(call, pace=self._pace))
