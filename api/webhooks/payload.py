"""From what a webhook's caller sends to the payload of its run (http-api 7.3).

Each section of the schema (`query`, `headers`, `body`) lets through the fields that it declares, casts texts to the
types it names and fills in what is missing. What came in as a whole stays visible beside them as `input`, without the
headers that carried credentials. Whatever is sent and whatever the schema says, the result is a payload or an
InvalidRequest.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from api.http.request_bodies import json_of
from api.http.uploads import file_name
from api.webhooks.security import texts
from canvas.document import json_checks
from canvas.errors import InvalidCanvas, InvalidRequest, NodeFailure
from components.text.extraction.file_texts import UnreadFile
from providers.isolation.untrusted_threads import in_untrusted_thread

MOST_FILES = 10
MOST_FIELDS = 1000
MOST_SECONDS = 30.0  # for the files of a request; its caller waits
PIECE = 64 * 1024  # bytes
SECTIONS = ("query", "headers", "body")

FORM_TYPE, MULTIPART_TYPE = "application/x-www-form-urlencoded", "multipart/form-data"

_ABSENT: Mapping[str, Any] = {"boolean": False, "number": 0, "string": ""}
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_LONGEST_ECHO = 100  # characters of a value that a message repeats


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a caller has sent. Names of headers are lower case, `content_type` is without its parameters."""

    query: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)
    body: Any
    content_type: str


# -- the body ---------------------------------------------------------------------------------------------------------


def content_type_of(header: str, wanted: Any) -> str:
    """The type of a body. Raises InvalidRequest if the webhook wants another one."""
    given = header.partition(";")[0].strip()
    allowed = texts(wanted)
    if wanted and given.lower() not in [kind.partition(";")[0].strip().lower() for kind in allowed]:
        expected = ", ".join(allowed)
        raise InvalidRequest(f"Invalid Content-Type: expect '{expected}', got '{given[:_LONGEST_ECHO]}'")
    return given.lower()


async def body_of(content_type: str, header: str, data: bytes) -> Any:
    """The value of a body: JSON, or the fields of a form, files as lists of their texts; {} for anything else.

    `header` is the whole Content-Type. Raises InvalidRequest for a form that breaks off, and for files that are too
    many, cannot be read, or take longer than MOST_SECONDS together.
    """
    if content_type == FORM_TYPE:
        return _form(data)
    if content_type == MULTIPART_TYPE:
        try:
            async with asyncio.timeout(MOST_SECONDS):
                return await _multipart(header, data)
        except TimeoutError:
            raise InvalidRequest(f"The files of the request take longer than {MOST_SECONDS:g} s to read.") from None
    return await in_untrusted_thread(_json_value, data)


def _json_value(data: bytes) -> Any:
    try:
        return json_of(data)
    except (ValueError, RecursionError):
        return {}


def _form(data: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        return {}
    return dict(reversed(pairs))  # of a name that comes again the first value counts


async def _multipart(header: str, data: bytes) -> dict[str, Any]:
    parser = MultiPartParser(
        Headers({"content-type": header}),
        _in_pieces(data),
        max_files=MOST_FILES,
        max_fields=MOST_FIELDS,
        max_part_size=max(len(data), 1),
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise InvalidRequest(f"The multipart body cannot be read. {error.message}") from None
    except ValueError:  # out of a charset or a name that is none
        raise InvalidRequest("The multipart body cannot be read.") from None
    try:
        return await _fields(form.multi_items())
    finally:
        await form.close()


async def _in_pieces(data: bytes) -> AsyncGenerator[bytes]:
    """A body bit by bit: others get their turn while it is taken apart."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]
        await asyncio.sleep(0)


async def _fields(items: list[tuple[str, UploadFile | str]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, item in items:
        if isinstance(item, str):
            fields.setdefault(name, item)
            continue
        told = await _text_of(item)
        known = fields.get(name)
        fields[name] = [*known, told] if isinstance(known, list) else [told]
    return fields


async def _text_of(file: UploadFile) -> str:
    data = await file.read()
    try:
        return await UnreadFile(file_name(file.filename or ""), file.content_type or "", data).text()
    except NodeFailure as failure:
        raise InvalidRequest(failure.message) from failure


# -- the schema -------------------------------------------------------------------------------------------------------


def payload_of(schema: Any, delivery: Delivery, hidden: Collection[str] = ()) -> dict[str, Any]:
    """The payload of a run: {query, headers, body, input}. `hidden` headers are not shown in `input`.

    Raises InvalidRequest, which names section and field.
    """
    sent = _storable({"query": delivery.query, "headers": delivery.headers, "body": delivery.body})
    sections = {name: _section(name, _member(schema, name), sent[name]) for name in SECTIONS}
    shown = {name: value for name, value in sent["headers"].items() if name not in hidden}
    return {**sections, "input": {**sent, "headers": shown, "content_type": delivery.content_type}}


def _section(name: str, schema: Any, values: Any) -> dict[str, Any]:
    """The declared fields of one section."""
    declared = _member(schema, "properties")
    properties: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {}
    required = texts(_member(schema, "required"))
    known: Mapping[str, Any] = values if isinstance(values, Mapping) else {}
    keys = {key: key.lower() if name == "headers" else key for key in (*properties, *required)}
    for key in required:
        if keys[key] not in known:
            raise InvalidRequest(f"{name} missing required field: {key}")
    return {
        key: _field(f"{name}.{key}", known[keys[key]], kind) if keys[key] in known else absent(kind)
        for key, kind in ((key, _type_in(spec)) for key, spec in properties.items())
    }


def _member(schema: Any, name: str) -> Any:
    return schema.get(name) if isinstance(schema, Mapping) else None


def _type_in(spec: Any) -> str:
    kind = _member(spec, "type")
    return kind if isinstance(kind, str) else ""


def absent(kind: str) -> Any:
    """What stands for an optional field that was not sent."""
    if kind == "file" or kind.startswith("array"):
        return []
    return {} if kind == "object" else _ABSENT.get(kind)


def _field(where: str, value: Any, kind: str) -> Any:
    if isinstance(value, str):
        try:
            value = cast(value, kind)
        except _CannotCast as error:
            raise InvalidRequest(f"{where} auto-cast failed: {error}") from None
    if not is_of(value, kind):
        raise InvalidRequest(f"{where} type mismatch: expected {kind}, got {type_of(value)}")
    return value


class _CannotCast(Exception):
    """A text does not say anything of the type that is wanted."""


def cast(text: str, kind: str) -> Any:
    """What a text says, read as a type; texts of other types stay texts. Raises _CannotCast."""
    match kind:
        case "boolean" if text.strip().lower() in (*_TRUE, *_FALSE):
            return text.strip().lower() in _TRUE
        case "number" if (number := _number(text)) is not None:
            return number
        case "object" if isinstance(value := _value_in(text), dict):
            return value
        case "boolean" | "number" | "object":
            raise _CannotCast(f"Cannot convert '{text[:_LONGEST_ECHO]}' to {kind}")
        case _ if kind.startswith("array"):
            if not isinstance(value := _value_in(text), list):
                raise _CannotCast(f"Cannot convert '{text[:_LONGEST_ECHO]}' to {kind}")
            return value
        case _:
            return text


def _value_in(text: str) -> Any:
    """The JSON value of a text; None if there is none that could be stored."""
    try:
        return json_checks.copied({"": json_of(text)})[""]
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


def is_of(value: Any, kind: str) -> bool:
    """Whether a value is of a type; booleans count as numbers, and types that nobody knows hold everything."""
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
            return isinstance(value, list) and all(is_of(item, inner) for item in value)
        case _:
            return True


def type_of(value: Any) -> str:
    """A value's type, as schemas name it."""
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


def _storable(sent: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return json_checks.copied(sent)
    except json_checks.Unstorable as error:
        message = f"The request cannot be stored. {error.where}: {error.reason}."
        raise InvalidRequest(message, field=error.field) from None
