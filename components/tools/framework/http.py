"""How tools ask their vendors over HTTP: addresses, limits, and how a refusal reads (tools 1.10).

    reply = await web.fetch(ctx, "TavilySearch", Call("POST", "https://api.tavily.com/search", json=body))
    found = web.object_of(reply)

A deployment may name another address for a tool, and for one host of a tool that asks several (`TAVILYSEARCH`,
`YAHOOFINANCE_QUERY1_FINANCE_YAHOO_COM`). Such an address is trusted; all others go through the guard.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from canvas.errors import HttpFailed, ToolError
from components.context import NodeContext
from components.text.extraction import charsets
from providers.http.redirects import url_of
from providers.interfaces import Call, Reply

MOST_BYTES = 10 * 1024 * 1024  # of one reply
REDIRECTS = 5
SHOWN = 200  # characters of a refusal's body

WHO_ASKS = (
    "(The vendor refuses requests that do not say who sends them: an operator sets EASEL_CONTACT to an URL or a mail "
    "address.)"
)
NO_PROGRAMS = (
    "(The vendor refuses programs, or this machine's address, at times: ask less often, or choose another tool. An "
    "operator may set another HTTP_CLIENT_USER_AGENT.)"
)
_NOT_ADMITTED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_MAY_PASS = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


async def ask(ctx: NodeContext, tool: str, call: Call) -> Reply:
    """The vendor's answer of any status. Raises AddressRefused or HttpFailed when there is none."""
    url, is_named = _address(ctx.services.base_urls, tool, call.url)
    return await ctx.services.http.send(
        replace(
            call,
            url=url,
            trusted=call.trusted or is_named,
            redirects=REDIRECTS,
            most_bytes=min(call.most_bytes, MOST_BYTES),
            timeout=min(call.timeout, ctx.time_limit(tool)),
        )
    )


async def fetch(ctx: NodeContext, tool: str, call: Call, advice: str = "") -> Reply:
    """The vendor's answer of status 2xx. Raises HttpFailed for every other, as `refusal` does."""
    reply = await ask(ctx, tool, call)
    if not reply.is_success:
        raise refusal(reply, advice=advice)
    return reply


def refusal(reply: Reply, message: str = "", *, wait: float | None = None, advice: str = "") -> HttpFailed:
    """An answer of the wrong status as an error, in the vendor's own words where the tool has found them.

    `wait`: the tool knows that it passes, after so many seconds unless the answer has a `Retry-After`. `advice` says
    what may help where the vendor refuses programs that it does not know (403, 429).
    """
    asked = _retry_after(reply.headers.get("retry-after", ""))
    told = f" {advice}" if advice and reply.status in _NOT_ADMITTED else ""
    may_pass = reply.status in _MAY_PASS or reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return HttpFailed(
        (message or f"HTTP {reply.status}: {text_of(reply)[:SHOWN]}") + told,
        retryable=may_pass or wait is not None,
        status=reply.status,
        retry_after=wait if asked is None else asked,
    )


def text_of(reply: Reply) -> str:
    """The body as text, in the charset it declares, else UTF-8."""
    charset = charsets.named(reply.headers.get("content-type", "")) or "utf-8"
    try:
        return reply.content.decode(charset, "replace")
    except UnicodeError:  # UTF-16 without a mark, of which some decoders make nothing
        return reply.content.decode("utf-8", "replace")


def json_of(reply: Reply) -> Any:
    """The body as JSON; NaN and infinity, which JSON does not have, are null. Raises ToolError if it is none."""
    text = _json_text(reply)
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise ToolError(f"The answer is no JSON: {text[:SHOWN]}") from None


def object_of(reply: Reply) -> dict[str, Any]:
    """The body as a JSON object. Raises ToolError if it is none."""
    body = json_of(reply)
    if not isinstance(body, dict):
        raise ToolError(f"The answer is no JSON object but {type(body).__name__}.")
    return body


def listed(reply: Reply, name: str, *, error: str, otherwise: str, wait: float | None = None) -> list[Any]:
    """A list out of an answer of any status. Without it, what the vendor says under `error` is what went wrong."""
    try:
        body = object_of(reply)
    except ToolError:
        if reply.is_success:
            raise
        raise refusal(reply, wait=wait) from None
    if isinstance(body.get(name), list) and reply.is_success:
        return body[name]
    said = body[error] if isinstance(body.get(error), str) else ""
    raise ToolError(said or otherwise) if reply.is_success else refusal(reply, said, wait=wait)


def rows_of(value: Any, name: str) -> list[Any]:
    """A member that must be a list; null and absent count as an empty one. Raises ToolError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ToolError(f'The answer\'s "{name}" is no list but {type(value).__name__}.')
    return value


def _json_text(reply: Reply) -> str:
    """JSON is Unicode whatever charset a vendor says; what is none after all is read as it is declared."""
    try:
        return reply.content.decode(json.detect_encoding(reply.content))
    except UnicodeError:
        return text_of(reply)


def named_place(base_urls: Mapping[str, str], tool: str, host: str) -> str | None:
    """Where the deployment says that a host of a tool is to be found; None if it says nothing."""
    spelled = re.sub(r"[^A-Z0-9]", "_", host.upper())
    return base_urls.get(f"{tool.upper()}_{spelled}") or base_urls.get(tool.upper()) or None


def _address(base_urls: Mapping[str, str], tool: str, url: str) -> tuple[str, bool]:
    """Where to ask, and whether the deployment has named it. Raises AddressRefused for what is no address of the web.

    Of an address that somebody else may have written, only path and query stand behind the one that is named.
    """
    asked = url_of(url)
    named = named_place(base_urls, tool, asked.host)
    if not named:
        return url, False
    return named.rstrip("/") + asked.raw_path.decode("ascii"), True


def _retry_after(value: str) -> float | None:
    """Seconds that a server asks to wait, given as such or as a date."""
    if value.strip().isdecimal():
        return float(value[:6])
    try:
        due = parsedate_to_datetime(value)
    except ValueError:
        return None
    if due.tzinfo is None:
        due = due.replace(tzinfo=UTC)
    return max(0.0, (due - datetime.now(UTC)).total_seconds())
