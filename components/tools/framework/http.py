"""HTTP requests of tools to their vendors: addresses, limits, parsing of replies, and errors.

    reply = await http.fetch(ctx, "TavilySearch", HttpCall("POST", "https://api.tavily.com/search", json=body))
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
from providers.http.redirects import parse_url
from providers.interfaces import HttpCall, HttpResponse

MAX_BYTES = 10 * 1024 * 1024  # of one reply
MAX_REDIRECTS = 5
MAX_ERROR_BODY = 200  # characters of an error's body

CONTACT_ADVICE = (
    "(The vendor refuses requests without a contact address. An operator can set EASEL_CONTACT to a URL or a mail "
    "address.)"
)
BLOCKED_ADVICE = (
    "(The vendor refuses programs, or this machine's address, at times. Send fewer requests, or choose another tool. "
    "An operator can set another HTTP_CLIENT_USER_AGENT.)"
)
_BLOCKED_STATUSES = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
_RETRYABLE_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


async def send(ctx: NodeContext, tool: str, call: HttpCall) -> HttpResponse:
    """Send a request and return the reply, whatever its status. Raises AddressRefused or HttpFailed without a reply."""
    url, is_named = _resolve_address(ctx.services.base_urls, tool, call.url)
    return await ctx.services.http.send(
        replace(
            call,
            url=url,
            trusted=call.trusted or is_named,
            redirects=MAX_REDIRECTS,
            max_bytes=min(call.max_bytes, MAX_BYTES),
            timeout=min(call.timeout, ctx.time_limit(tool)),
        )
    )


async def fetch(ctx: NodeContext, tool: str, call: HttpCall, advice: str = "") -> HttpResponse:
    """Send a request and return a reply of status 2xx. Raises HttpFailed for every other status."""
    reply = await send(ctx, tool, call)
    if not reply.is_success:
        raise error_from_reply(reply, advice=advice)
    return reply


def error_from_reply(
    reply: HttpResponse, message: str = "", *, wait: float | None = None, advice: str = ""
) -> HttpFailed:
    """Return the error for a reply with a status other than 2xx.

    `message` is the vendor's own text, if the tool found one. `wait` marks the error as retryable after so many
    seconds; a `Retry-After` header goes first. `advice` is appended where the vendor refuses unknown programs (403,
    429).
    """
    retry_after = _parse_retry_after(reply.headers.get("retry-after", ""))
    advice_text = f" {advice}" if advice and reply.status in _BLOCKED_STATUSES else ""
    may_pass = reply.status in _RETRYABLE_STATUSES or reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return HttpFailed(
        (message or f"HTTP {reply.status}: {decode_text(reply)[:MAX_ERROR_BODY]}") + advice_text,
        retryable=may_pass or wait is not None,
        status=reply.status,
        retry_after=wait if retry_after is None else retry_after,
    )


def decode_text(reply: HttpResponse) -> str:
    """Return the body as text, decoded with the declared charset, else as UTF-8."""
    charset = charsets.find_charset(reply.headers.get("content-type", "")) or "utf-8"
    try:
        return reply.content.decode(charset, "replace")
    except UnicodeError:  # UTF-16 without a byte order mark, which some decoders reject
        return reply.content.decode("utf-8", "replace")


def parse_json(reply: HttpResponse) -> Any:
    """Return the body as JSON, with null for NaN and infinity. Raises ToolError if it is not valid JSON."""
    text = _decode_json_text(reply)
    try:
        return json.loads(text.removeprefix("\ufeff"), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        raise ToolError(f"The answer is not valid JSON: {text[:MAX_ERROR_BODY]}") from None


def parse_object(reply: HttpResponse) -> dict[str, Any]:
    """Return the body as a JSON object. Raises ToolError if it is anything else."""
    body = parse_json(reply)
    if not isinstance(body, dict):
        raise ToolError(f"The answer is not a JSON object: it is of type {type(body).__name__}.")
    return body


def list_in_reply(
    reply: HttpResponse, name: str, *, error_key: str, default_error: str, wait: float | None = None
) -> list[Any]:
    """Return the list under `name` of a reply.

    Raises ToolError or HttpFailed if there is none, with the vendor's text under `error_key`, or `default_error`.
    """
    try:
        body = parse_object(reply)
    except ToolError:
        if reply.is_success:
            raise
        raise error_from_reply(reply, wait=wait) from None
    if isinstance(body.get(name), list) and reply.is_success:
        return body[name]
    message = body[error_key] if isinstance(body.get(error_key), str) else ""
    raise ToolError(message or default_error) if reply.is_success else error_from_reply(reply, message, wait=wait)


def require_list(value: Any, name: str) -> list[Any]:
    """Return a member of a reply that must be a list, [] for null. Raises ToolError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ToolError(f'The answer\'s "{name}" is not a list: it is of type {type(value).__name__}.')
    return value


def _decode_json_text(reply: HttpResponse) -> str:
    """Decode a body as Unicode, whatever charset the vendor declares; if that fails, with the declared charset."""
    try:
        return reply.content.decode(json.detect_encoding(reply.content))
    except UnicodeError:
        return decode_text(reply)


def configured_address(base_urls: Mapping[str, str], tool: str, host: str) -> str | None:
    """Return the address that the deployment configured for a tool's host; None if there is none."""
    spelled = re.sub(r"[^A-Z0-9]", "_", host.upper())
    return base_urls.get(f"{tool.upper()}_{spelled}") or base_urls.get(tool.upper()) or None


def _resolve_address(base_urls: Mapping[str, str], tool: str, url: str) -> tuple[str, bool]:
    """Return the address for a request, and whether the deployment configured it.

    Only the path and query of `url`, which a model may have written, are appended to a configured address. Raises
    AddressRefused if `url` is not a valid http or https address.
    """
    requested = parse_url(url)
    named = configured_address(base_urls, tool, requested.host)
    if not named:
        return url, False
    return named.rstrip("/") + requested.raw_path.decode("ascii"), True


def _parse_retry_after(value: str) -> float | None:
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
