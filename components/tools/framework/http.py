"""HTTP requests of tools to their vendors: addresses, limits, parsing of replies, and errors.

    reply = await http.fetch(ctx, "TavilySearch", Call("POST", "https://api.tavily.com/search", json=body))
    found = http.parse_object(reply)

A deployment may override the address of a tool, or of one host of a tool that has several (`TAVILYSEARCH`,
`YAHOOFINANCE_QUERY1_FINANCE_YAHOO_COM`). Such an address is trusted; the address policy checks all others.
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
SHOWN = 200  # characters of an error's body

WHO_ASKS = (
    "(The vendor refuses requests without a contact address. An operator can set EASEL_CONTACT to a URL or a mail "
    "address.)"
)
NO_PROGRAMS = (
    "(The vendor refuses programs, or this machine's address, at times. Send fewer requests, or choose another tool. "
    "An operator can set another HTTP_CLIENT_USER_AGENT.)"
)
_NOT_ADMITTED = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_MAY_PASS = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


async def ask(ctx: NodeContext, tool: str, call: Call) -> Reply:
    """Send a request and return the reply, whatever its status. Raises AddressRefused or HttpFailed without a reply."""
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
    """Send a request and return a reply of status 2xx. Raises HttpFailed for every other status."""
    reply = await ask(ctx, tool, call)
    if not reply.is_success:
        raise refusal(reply, advice=advice)
    return reply


def refusal(reply: Reply, message: str = "", *, wait: float | None = None, advice: str = "") -> HttpFailed:
    """Return the error for a reply with a status other than 2xx.

    `message` is the vendor's own text, if the tool found one. `wait` marks the error as retryable after so many
    seconds; a `Retry-After` header goes first. `advice` is appended where the vendor refuses unknown programs (403,
    429).
    """
    retry_after = _retry_after(reply.headers.get("retry-after", ""))
    advice_text = f" {advice}" if advice and reply.status in _NOT_ADMITTED else ""
    may_pass = reply.status in _MAY_PASS or reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return HttpFailed(
        (message or f"HTTP {reply.status}: {text_of(reply)[:SHOWN]}") + advice_text,
        retryable=may_pass or wait is not None,
        status=reply.status,
        retry_after=wait if retry_after is None else retry_after,
    )


def text_of(reply: Reply) -> str:
    """Return the body as text, decoded with the declared charset, else as UTF-8."""
    charset = charsets.named(reply.headers.get("content-type", "")) or "utf-8"
    try:
        return reply.content.decode(charset, "replace")
    except UnicodeError:  # UTF-16 without a byte order mark, which some decoders reject
        return reply.content.decode("utf-8", "replace")


def json_of(reply: Reply) -> Any:
    """Return the body as JSON, with null for NaN and infinity. Raises ToolError if it is not valid JSON."""
    text = _json_text(reply)
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise ToolError(f"The answer is not valid JSON: {text[:SHOWN]}") from None


def object_of(reply: Reply) -> dict[str, Any]:
    """Return the body as a JSON object. Raises ToolError if it is anything else."""
    body = json_of(reply)
    if not isinstance(body, dict):
        raise ToolError(f"The answer is not a JSON object: it is of type {type(body).__name__}.")
    return body


def listed(reply: Reply, name: str, *, error: str, otherwise: str, wait: float | None = None) -> list[Any]:
    """Return the list under `name` of a reply.

    Raises ToolError or HttpFailed if there is none, with the vendor's text under `error_key`, or `default_error`.
    """
    try:
        body = object_of(reply)
    except ToolError:
        if reply.is_success:
            raise
        raise refusal(reply, wait=wait) from None
    if isinstance(body.get(name), list) and reply.is_success:
        return body[name]
    message = body[error] if isinstance(body.get(error), str) else ""
    raise ToolError(message or otherwise) if reply.is_success else refusal(reply, message, wait=wait)


def rows_of(value: Any, name: str) -> list[Any]:
    """Return a member of a reply that must be a list, [] for null. Raises ToolError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ToolError(f'The answer\'s "{name}" is not a list: it is of type {type(value).__name__}.')
    return value


def _json_text(reply: Reply) -> str:
    """Decode a body as Unicode, whatever charset the vendor declares; if that fails, with the declared charset."""
    try:
        return reply.content.decode(json.detect_encoding(reply.content))
    except UnicodeError:
        return text_of(reply)


def named_place(base_urls: Mapping[str, str], tool: str, host: str) -> str | None:
    """Return the address that the deployment configured for a tool's host; None if there is none."""
    spelled = re.sub(r"[^A-Z0-9]", "_", host.upper())
    return base_urls.get(f"{tool.upper()}_{spelled}") or base_urls.get(tool.upper()) or None


def _address(base_urls: Mapping[str, str], tool: str, url: str) -> tuple[str, bool]:
    """Return the address for a request, and whether the deployment configured it.

    Only the path and query of `url`, which a model may have written, are appended to a configured address. Raises
    AddressRefused if `url` is not a valid http or https address.
    """
    requested = url_of(url)
    named = named_place(base_urls, tool, requested.host)
    if not named:
        return url, False
    return named.rstrip("/") + requested.raw_path.decode("ascii"), True


def _retry_after(value: str) -> float | None:
    """Parse a Retry-After header, seconds or a date; return seconds, None if it is neither."""
    if value.strip().isdecimal():
        return float(value[:6])
    try:
        due = parsedate_to_datetime(value)
    except ValueError:
        return None
    if due.tzinfo is None:
        due = due.replace(tzinfo=UTC)
    return max(0.0, (due - datetime.now(UTC)).total_seconds())
