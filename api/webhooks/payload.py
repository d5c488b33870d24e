"""Turn the request of a webhook's caller into the payload of its run.

Each section of the schema (`query`, `headers`, `body`) passes the fields that it declares, casts texts to their types
and adds defaults for missing ones. The whole request is in `input` beside them, without the headers with credentials.
For any request and any schema, the result is a payload or an InvalidRequest.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from api.requests.request_bodies import parse_json
from api.requests.uploads import file_name
from api.webhooks.security import texts
from canvas.document import json_checks
from canvas.errors import InvalidCanvas, InvalidRequest, NodeFailure
from components.text.extraction.file_texts import UnparsedFile
from providers.isolation.untrusted_threads import in_untrusted_thread

MAX_FILES = 10
MAX_FIELDS = 1000
MAX_FILE_SECONDS = 30.0  # for reading the files of a request, while its caller waits
PARSE_BYTES = 64 * 1024  # bytes
SECTIONS = ("query", "headers", "body")

FORM_TYPE, MULTIPART_TYPE = "application/x-www-form-urlencoded", "multipart/form-data"

_ABSENT: Mapping[str, Any] = {"boolean": False, "number": 0, "string": ""}
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_MAX_QUOTED_CHARS = 100  # characters of a value that a message repeats


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    """The request of a caller. Header names are in lower case; `content_type` is without its parameters."""

    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: Any
    content_type: str


# -- the body ---------------------------------------------------------------------------------------------------------


def check_content_type(header: str, configured: Any) -> str:
    """Return the media type of a body. Raises InvalidRequest if the webhook expects another one."""
    content_type = header.partition(";")[0].strip()
    allowed = texts(configured)
    if configured and content_type.lower() not in [kind.partition(";")[0].strip().lower() for kind in allowed]:
        expected = ", ".join(allowed)
        raise InvalidRequest(f"Invalid Content-Type: expect '{expected}', got '{content_type[:_MAX_QUOTED_CHARS]}'")
    return content_type.lower()


async def parse_body(content_type: str, header: str, data: bytes) -> Any:
    """Return the value of a body: JSON, or form fields with files as lists of their texts; {} for any other type.

    `header` is the whole Content-Type. Raises InvalidRequest for an incomplete form, too many or unreadable files, and
    files that take longer than `MAX_FILE_SECONDS` together.
    """
    if content_type == FORM_TYPE:
        return _form(data)
    if content_type == MULTIPART_TYPE:
        try:
            async with asyncio.timeout(MAX_FILE_SECONDS):
                return await _multipart(header, data)
        except TimeoutError:
            raise InvalidRequest(f"The files of the request take longer than {MAX_FILE_SECONDS:g} s to read.") from None
    return await in_untrusted_thread(_json_value, data)


def _json_value(data: bytes) -> Any:
    try:
        return parse_json(data)
    except (ValueError, RecursionError):
        return {}


def _form(data: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        return {}
    return dict(reversed(pairs))  # the first value of a repeated name counts


async def _multipart(header: str, data: bytes) -> dict[str, Any]:
    parser = MultiPartParser(
        Headers({"content-type": header}),
        _split_body(data),
        max_files=MAX_FILES,
        max_fields=MAX_FIELDS,
        max_part_size=max(len(data), 1),
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"The multipart body cannot be read. {error.message}") from None
    except ValueError:  # an invalid charset or name
        raise InvalidRequest("The multipart body cannot be read.") from None
    try:
        return await _fields(form.multi_items())
    finally:
        await form.close()


async def _split_body(data: bytes) -> AsyncGenerator[bytes]:
    """Yield a body in parts, so that other requests run while it is parsed."""
    for start in range(0, len(data), PARSE_BYTES):
        yield data[start : start + PARSE_BYTES]
        await asyncio.sleep(0)


async def _fields(items: list[tuple[str, UploadFile | str]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, item in items:
        if isinstance(item, str):
            fields.setdefault(name, item)
            continue
        turn_result = await _text_of(item)
        known = fields.get(name)
        fields[name] = [*known, turn_result] if isinstance(known, list) else [turn_result]
    return fields


async def _text_of(file: UploadFile) -> str:
    data = await file.read()
    try:
        return await UnparsedFile(file_name(file.filename or ""), file.content_type or "", data).text()
    except NodeFailure as failure:
        raise InvalidRequest(failure.message) from failure


# -- the schema -------------------------------------------------------------------------------------------------------


def build_payload(schema: Any, delivery: WebhookRequest, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Return the payload of a run: {query, headers, body, input}. `hidden` headers are left out of `input`.

    Raises InvalidRequest, which names section and field.
    """
    sent = _check_storable({"query": delivery.query, "headers": delivery.headers, "body": delivery.body})
    sections = {name: _section(name, _member(schema, name), sent[name]) for name in SECTIONS}
    shown = {name: value for name, value in sent["headers"].items() if name not in hidden}
    return {**sections, "input": {**sent, "headers": shown, "content_type": delivery.content_type}}


def _section(name: str, schema: Any, values: Any) -> dict[str, Any]:
    """Return the declared fields of one section."""
    declared = _member(schema, "properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    required = texts(_member(schema, "required"))
    known: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
    keys = {key: key.lower() if name == "headers" else key for key in (*properties, *required)}
    for key in required:
        if keys[key] not in known:
            raise InvalidRequest(f"{name} missing required field: {key}")
    return {
        key: _field(f"{name}.{key}", known[keys[key]], kind) if keys[key] in known else default_value(kind)
        for key, kind in ((key, _type_in(spec)) for key, spec in properties.items())
    }


def _member(schema: Any, name: str) -> Any:
    return schema.get(name) if isinstance(schema, Mapping) else None


def _type_in(spec: Any) -> str:
    kind = _member(spec, "type")
    return kind if isinstance(kind, str) else ""


def default_value(kind: str) -> Any:
    """Return the value of an optional field that was not sent."""
    if kind == "file" or kind.startswith("array"):
        return []
    return {} if kind == "object" else _ABSENT.get(kind)


def _field(where: str, value: Any, kind: str) -> Any:
    if isinstance(value, str):
        try:
            value = cast(value, kind)
        except _CannotCast as error:
            raise InvalidRequest(f"{where} auto-cast failed: {error}") from None
    if not has_type(value, kind):
        raise InvalidRequest(f"{where} type mismatch: expected {kind}, got {type_name(value)}")
    return value


class _CannotCast(Exception):
    """A text cannot be read as the declared type."""


def cast(text: str, kind: str) -> Any:
    """Return the value of a text as a type; for unknown types, the text. Raises _CannotCast."""
    match kind:
        case "boolean" if text.strip().lower() in (*_TRUE, *_FALSE):
            return text.strip().lower() in _TRUE
        case "number" if (number := _number(text)) is not None:
            return number
        case "object" if isinstance(value := _value_in(text), dict):
            return value
        case "boolean" | "number" | "object":
            raise _CannotCast(f"Cannot convert '{text[:_MAX_QUOTED_CHARS]}' to {kind}")
        case _ if kind.startswith("array"):
            if not isinstance(value := _value_in(text), list):
                raise _CannotCast(f"Cannot convert '{text[:_MAX_QUOTED_CHARS]}' to {kind}")
            return value
        case _:
            return text


def _value_in(text: str) -> Any:
    """Return the JSON value of a text; None if it is not JSON or cannot be stored."""
    try:
        return json_checks.copy_storable({"": parse_json(text)})[""]
    except (ValueError, RecursionError, InvalidCanvas):
        return None


def _number(text: str) -> int | float | None:
    try:
        whole = int(text)
    except ValueError:
        pass
    else:
        return whole if json_checks.SMALLEST <= whole <= json_checks.LARGEST else None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def has_type(value: Any, kind: str) -> bool:
    """Return whether a value has a type. Booleans count as numbers; every value has an unknown type."""
    match kind:
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case "file":
            return isinstance(value, list)
        case _ if kind.startswith("array"):
            inner = kind.removeprefix("array<").removesuffix(">") if kind.startswith("array<") else ""
            return isinstance(value, list) and all(has_type(item, inner) for item in value)
        case _:
            return True


def type_name(value: Any) -> str:
    """Return the name of a value's type in schemas."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _check_storable(sent: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return json_checks.copy_storable(sent)
    except json_checks.Unstorable as error:
        message = f"The request cannot be stored. {error.where}: {error.reason}."
        raise InvalidRequest(message, field=error.field) from None
