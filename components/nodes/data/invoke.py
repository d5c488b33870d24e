"""Invoke: send one HTTP request to a URL.

DSL: `url`, `method`, `headers`, `variables[] {key, ref, value}`, `datatype` (`json`, `formdata`), `proxy`, `timeout`,
`clean_html`, `max_retries`, `delay_after_error`. Additions to upstream: `body`, the methods `patch` and `delete`, an
`Idempotency-Key` header on every request but GET, which is the same in every attempt, and the output `status_code`. A
response of any status is a result; a status of 500 or more is retried up to `max_retries` times. Redirects are not
followed, and the run gets a warning. An author whose server ignores idempotency keys sets `on_unknown`: a request that
may have reached the server is then not repeated automatically.
"""

import asyncio
import json
import math
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from pydantic import Field, field_validator

from canvas.document import references
from canvas.errors import AddressRefused, HttpFailed, NodeFailure
from canvas.graph import uncertain_outcomes
from canvas.outcome import Finished
from components.base import Effect, Params, component
from components.context import NodeContext
from components.text.extraction.page_text import extract_body_text, read_page
from components.text.templates import templates
from components.tools.framework.refused_addresses import refused_address_text
from providers.http.redirects import REDIRECT_STATUSES, mask_secrets
from providers.interfaces import HttpCall, HttpResponse

METHODS = ("get", "post", "put", "patch", "delete")
DATATYPES = ("json", "formdata")
SERVER_ERROR = 500  # statuses from here on are errors of the server, which may be temporary
MIN_SECONDS = 3.0  # the node's shortest time limit
RESERVE_SECONDS = 5.0  # seconds of the time limit beyond requests and pauses
MAX_SECONDS = 86_400.0  # seconds; the limit for a request's timeout and for a pause

_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_NO_PROXY = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*:)?/*")
_HEADER_NAME = re.compile(r"\{[ \t]*+([a-zA-Z_][a-zA-Z0-9_.@-]*+)[ \t]*+\}")


class InvokeParams(Params):
    default_outputs = ("result",)
    later_outputs = ("status_code",)
    secrets = ("proxy",)  # its URL may contain a user name and a password
    secret_headers = ("headers",)

    url: Any = Field(default="", validate_default=True)
    method: Any = "get"
    headers: Any = ""
    variables: Any = ()
    datatype: Any = "json"
    proxy: Any = None
    timeout: Any = 60
    clean_html: Any = False
    body: Any = None

    @field_validator("url")
    @classmethod
    def _some_url(cls, url: Any) -> Any:
        if not url:
            raise ValueError("End point URL does not support empty value.")
        return url

    @field_validator("method")
    @classmethod
    def _known_method(cls, method: Any) -> Any:
        return _one_of(METHODS, method, "Type of content from the crawler")

    @field_validator("datatype")
    @classmethod
    def _known_datatype(cls, datatype: Any) -> Any:
        return _one_of(DATATYPES, datatype, "Data post type")

    @field_validator("timeout")
    @classmethod
    def _positive_timeout(cls, timeout: Any) -> Any:
        if isinstance(timeout, bool) or not isinstance(timeout, int) or timeout <= 0:
            raise ValueError(f"Timeout time {timeout} not supported, should be positive integer")
        return timeout

    @field_validator("clean_html")
    @classmethod
    def _boolean_clean_html(cls, clean_html: Any) -> Any:
        if not isinstance(clean_html, bool):
            raise ValueError(f"Clean HTML {clean_html} not supported, should be bool type")
        return clean_html


def time_limit(params: InvokeParams) -> float:
    """Return the node's time limit in seconds: all its requests, all its pauses, and a reserve."""
    each = _number(params.timeout) + _number(params.delay_after_error)
    return max(MIN_SECONDS, each * _max_attempts(params) + RESERVE_SECONDS)


def effect_for(params: InvokeParams) -> Effect:
    """Return `unsafe` if the author set `on_unknown`, because the server then ignores idempotency keys."""
    if not uncertain_outcomes.is_unset((params.model_extra or {}).get(uncertain_outcomes.FIELD)):
        return "unsafe"
    return "idempotent" if params.method == "get" else "keyed"


@component("Invoke", InvokeParams, effect="keyed", owns_errors=True, needed_seconds=time_limit, effect_for=effect_for)
async def invoke(params: InvokeParams, ctx: NodeContext) -> Finished:
    call = _build_call(params, ctx)
    reply = await _send(call, params, ctx)
    if reply.status in REDIRECT_STATUSES and reply.headers.get("location"):
        ctx.warn("redirect_not_followed", _redirect_warning(reply))
    kind = reply.headers.get("content-type", "")
    # without HTML cleaning a text of any size is read quickly, so not in a child process
    size = len(reply.content) if params.clean_html else 0
    text = await read_page(size, extract_body_text, reply.content, kind, is_page=bool(params.clean_html))
    return Finished(outputs={"result": text, "status_code": reply.status})


async def _send(call: HttpCall, params: InvokeParams, ctx: NodeContext) -> HttpResponse:
    """Send the request, retry it as often as the author allows, and return the response.

    An error that a retry cannot mend is raised at once. The last response counts, whatever its status. A request that
    must not be sent twice is not repeated because of its status.
    """
    left = _max_attempts(params)
    while True:
        left -= 1
        try:
            reply = await ctx.services.http.send(call)
            if not left or reply.status < SERVER_ERROR or effect_for(params) == "unsafe":
                return reply
        except AddressRefused as error:
            raise AddressRefused(refused_address_text(error), reason=error.message) from error
        except HttpFailed as error:
            if not left or not error.retryable:
                raise
        await asyncio.sleep(_number(params.delay_after_error))


def _build_call(params: InvokeParams, ctx: NodeContext) -> HttpCall:
    is_get = params.method == "get"
    arguments = _arguments(params, ctx)
    headers = _headers(params.headers, ctx)
    content = _raw_body(params, ctx) if not is_get and not params.variables else None
    if content is not None and not _has_header(headers, "Content-Type"):
        headers["Content-Type"] = "application/json" if _is_json(content) else "text/plain; charset=utf-8"
    if not is_get and not _has_header(headers, "Idempotency-Key"):
        headers["Idempotency-Key"] = sha256(ctx.activation_id.encode()).hexdigest()
    is_json = not is_get and content is None and params.datatype == "json"
    is_form = not is_get and content is None and params.datatype == "formdata"
    return HttpCall(
        params.method.upper(),
        _url(params, ctx),
        params=[(key, text) for key, value in arguments.items() for text in _texts(value)] if is_get else None,
        headers=headers,
        json=arguments if is_json else None,
        has_json=is_json,
        form={key: _texts(value) for key, value in arguments.items()} if is_form else None,
        content=content,
        timeout=_number(params.timeout),
        proxy=_proxy(params.proxy),
    )


# -- the request ------------------------------------------------------------------------------------------------
def _url(params: InvokeParams, ctx: NodeContext) -> str:
    url = templates.format_text(str(params.url), ctx.lookup, templates.plain_text).strip()
    return url if _SCHEME.match(url) else f"http://{url}"


def _proxy(proxy: Any) -> str | None:
    """Return the proxy's URL, or None if the field is empty or holds only a scheme."""
    text = str(proxy or "").strip()
    if _NO_PROXY.fullmatch(text):
        return None
    return text if _SCHEME.match(text) else f"http://{text}"


def _arguments(params: InvokeParams, ctx: NodeContext) -> dict[str, Any]:
    """Return the request's arguments by key; the value of each reference is noted as an input."""
    arguments: dict[str, Any] = {}
    rows = params.variables or ()
    if not isinstance(rows, list | tuple):
        raise NodeFailure("The arguments of Invoke must be a list of objects {key, ref, value}.")
    for row in rows:
        if not isinstance(row, Mapping) or row.get("key") is None:
            raise NodeFailure("An argument of Invoke has no key. Each is an object {key, ref, value}.")
        key, ref = str(row["key"]), str(row.get("ref") or "").strip()
        value = _value(ref, row.get("value"), ctx)
        if params.datatype == "json":
            value = _as_json(key, value)
        if ref:
            ctx.note_input(references.parse_reference(ref).expression, value)
        arguments[key] = value
    return arguments


def _value(ref: str, value: Any, ctx: NodeContext) -> Any:
    looked_up = ctx.lookup(ref) if ref else None
    if looked_up is not None:
        return looked_up
    if isinstance(value, str):
        return templates.format_text(value, ctx.lookup, templates.plain_text)
    return "" if value is None else value


def _as_json(key: str, value: Any) -> Any:
    """Return the value of a JSON text; return other values unchanged. Raises NodeFailure if JSON has no such value."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NodeFailure(f'The argument "{key}" is not strict JSON: {error}', key=key) from error
    return value


def _raw_body(params: InvokeParams, ctx: NodeContext) -> bytes | None:
    """Return the author's body, with references replaced by their values as JSON."""
    if params.body is None:
        return None
    text = templates.format_text(templates.value_text(params.body), ctx.lookup)
    return text.encode("utf-8", "replace")


def _texts(value: Any) -> list[str]:
    """Return an argument as texts for a query or form, like upstream: each item of a list, each key of an object."""
    return [str(part) for item in _items(value) if item is not None for part in _items(item)]


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | Mapping) else (value,)


def _headers(headers: Any, ctx: NodeContext) -> dict[str, str]:
    """Return the author's headers. Values that are not texts are written as JSON; a null value omits the header."""
    if headers is None or (isinstance(headers, str) and not headers.strip()):
        return {}
    if isinstance(headers, str):
        try:
            headers = json.loads(headers)
        except (ValueError, RecursionError):
            headers = None
    if not isinstance(headers, Mapping):
        raise NodeFailure("Invoke headers must be a JSON object.")
    return {
        str(name): _header_text(value, ctx) if isinstance(value, str) else templates.json_text(value)
        for name, value in headers.items()
        if value is not None
    }


def _header_text(text: str, ctx: NodeContext) -> str:
    """Fill the references of a header like upstream: globals and outputs by name; ids with a colon stay unchanged."""
    return "".join(
        _fill_names(part, ctx) if isinstance(part, str) else _header_reference(text, part, ctx)
        for part in templates.split_references(text)
    )


def _header_reference(text: str, found: references.ReferenceMatch, ctx: NodeContext) -> str:
    is_foreign = ":" in found.expression or (found.ref.is_alias and not ctx.exists(found.expression))
    return text[found.start : found.end] if is_foreign else templates.plain_text(ctx.lookup(found.expression))


def _fill_names(text: str, ctx: NodeContext) -> str:
    def value_of(found: re.Match[str]) -> str:
        return templates.plain_text(ctx.lookup(found[1])) if ctx.exists(found[1]) else found[0]

    return _HEADER_NAME.sub(value_of, text)


def _has_header(headers: Mapping[str, str], name: str) -> bool:
    return any(header.strip().lower() == name.lower() for header in headers)


# -- the response -----------------------------------------------------------------------------------------------
def _redirect_warning(reply: HttpResponse) -> str:
    """Return the warning about a redirect, without the parts of its URL that may be secret."""
    target = mask_secrets(reply.headers["location"]).partition("?")[0]
    return (
        f"HTTP {reply.status} redirects to {target}, but Invoke does not follow redirects: `result` is the body of the "
        f"redirect itself ({len(reply.content)} bytes). Set `url` to the address that it redirects to."
    )


# -- numbers and choices ----------------------------------------------------------------------------------------
def _max_attempts(params: InvokeParams) -> int:
    return 1 + int(_number(params.max_retries))


def _number(value: Any) -> float:
    """Return the value as a number of 0 or more, also if it is written as text; 0 for anything else."""
    try:
        number = float(value or 0)
    except OverflowError:  # an integer that is too large for a float
        return MAX_SECONDS if value > 0 else 0.0
    except (TypeError, ValueError):
        return 0.0
    return 0.0 if math.isnan(number) else min(max(number, 0.0), MAX_SECONDS)


def _one_of(choices: tuple[str, ...], value: Any, label: str) -> str:
    lower = value.lower() if isinstance(value, str) else value
    if lower not in choices:
        raise ValueError(f"{label} {value} is not supported, it should be in {list(choices)}")
    return lower


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return True
